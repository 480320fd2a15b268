"""One file per method."""

import inspect

from everlearn.methods.agem import AGEM
from everlearn.methods.base import Method
from everlearn.methods.der import DER
from everlearn.methods.derpp import DERpp
from everlearn.methods.er import ER
from everlearn.methods.er_ace import ERACE
from everlearn.methods.finetune import FineTune
from everlearn.methods.gem import GEM
from everlearn.methods.gss import GSS
from everlearn.methods.icarl import ICaRL
from everlearn.methods.joint import Joint
from everlearn.methods.lwf import LwF
from everlearn.methods.oewc import OEWC
from everlearn.methods.retain import Retain
from everlearn.methods.si import SI

__all__ = [
    "AGEM",
    "DER",
    "ER",
    "ERACE",
    "GEM",
    "GSS",
    "OEWC",
    "SI",
    "DERpp",
    "FineTune",
    "ICaRL",
    "Joint",
    "LwF",
    "Method",
    "Retain",
]
# The help of a method without words of its own is its file's, the equation, and not its parent's.
for _name in __all__:
    _method = globals()[_name]
    _method.__doc__ = _method.__doc__ or inspect.getdoc(inspect.getmodule(_method))
