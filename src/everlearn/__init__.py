"""everlearn: rehearsal-based continual learning, one network taught task after task by replaying a small memory."""

from everlearn.errors import BadInput, EverlearnError
from everlearn.experiments.experiment import Experiment
from everlearn.learner import Learner
from everlearn.methods import (
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
from everlearn.weightings import Consolidate, EndToEnd, Relation, Split
from everlearn.experiments.runs import run
from everlearn.data.streams import Pixels, Stream, Task, load
from everlearn.core.terms import Batch, Fixed, Term, Terms, Weighting, cross_entropy, distance
from everlearn.version import __version__

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
    "EverlearnError",
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
