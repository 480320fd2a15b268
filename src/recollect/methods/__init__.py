"""One file a method; `METHODS` names them all."""

import inspect

from recollect.methods.agem import AGEM
from recollect.methods.base import Method
from recollect.methods.der import DER
from recollect.methods.derpp import DERpp
from recollect.methods.er import ER
from recollect.methods.er_ace import ERACE
from recollect.methods.finetune import FineTune
from recollect.methods.gem import GEM
from recollect.methods.gss import GSS
from recollect.methods.icarl import ICaRL
from recollect.methods.joint import Joint
from recollect.methods.lwf import LwF
from recollect.methods.oewc import OEWC
from recollect.methods.si import SI

METHODS: dict[str, type[Method]] = {
    "finetune": FineTune,
    "joint": Joint,
    "oewc": OEWC,
    "si": SI,
    "lwf": LwF,
    "gem": GEM,
    "agem": AGEM,
    "icarl": ICaRL,
    "gss": GSS,
    "er": ER,
    "er-ace": ERACE,
    "der": DER,
    "der++": DERpp,
}
# The help of a method without words of its own is its file's, the equation, and not its parent's.
for _method in METHODS.values():
    _method.__doc__ = _method.__doc__ or inspect.getdoc(inspect.getmodule(_method))
