"""recollect: rehearsal-based continual learning, one network taught task after task by replaying a small memory."""

from recollect.errors import BadInput, RecollectError
from recollect.experiments import Experiment
from recollect.learner import Learner
from recollect.methods import (
    AGEM,
    DER,
    ER,
    ERACE,
    GEM,
    GSS,
    METHODS,
    OEWC,
    SI,
    DERpp,
    FineTune,
    ICaRL,
    Joint,
    LwF,
    Method,
)
from recollect.relation import Consolidate, EndToEnd, Relation, Split
from recollect.runs import run
from recollect.streams import Pixels, Stream, Task, load
from recollect.terms import Batch, Fixed, Term, Terms, Weighting, cross_entropy, distance
from recollect.version import __version__

__all__ = [
    "AGEM",
    "DER",
    "ER",
    "ERACE",
    "GEM",
    "GSS",
    "METHODS",
    "OEWC",
    "SI",
    "BadInput",
    "Batch",
    "Consolidate",
    "DERpp",
    "EndToEnd",
    "Experiment",
    "FineTune",
    "Fixed",
    "ICaRL",
    "Joint",
    "Learner",
    "LwF",
    "Method",
    "Pixels",
    "RecollectError",
    "Relation",
    "Split",
    "Stream",
    "Task",
    "Term",
    "Terms",
    "Weighting",
    "__version__",
    "cross_entropy",
    "distance",
    "load",
    "run",
]
