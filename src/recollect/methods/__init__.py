"""One file a method; `METHODS` names them all."""

from recollect.methods.base import Method
from recollect.methods.der import DER
from recollect.methods.derpp import DERpp
from recollect.methods.er import ER
from recollect.methods.er_ace import ERACE
from recollect.methods.finetune import FineTune
from recollect.methods.joint import Joint

METHODS: dict[str, type[Method]] = {
    "finetune": FineTune,
    "joint": Joint,
    "er": ER,
    "er-ace": ERACE,
    "der": DER,
    "der++": DERpp,
}
