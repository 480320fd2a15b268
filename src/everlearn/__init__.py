"""everlearn: rehearsal-based continual learning, one network taught task after task by replaying a small memory."""

from typing import TYPE_CHECKING

from everlearn.version import __version__

if TYPE_CHECKING:
    from everlearn.core.plan import Draw
    from everlearn.core.snapshot import Average, Snapshot
    from everlearn.core.step import Step
    from everlearn.core.terms import Batch, Term, Terms, cross_entropy, distance
    from everlearn.data import Inputs, Pixels, Stream, Task, load
    from everlearn.errors import BadInput, EverlearnError
    from everlearn.experiments.experiment import Experiment
    from everlearn.experiments.run import run
    from everlearn.learner import Learner
    from everlearn.methods import (
        AGEM,
        DER,
        ER,
        ERACE,
        GEM,
        GSS,
        OEWC,
        SI,
        DERpp,
        FineTune,
        ICaRL,
        Joint,
        LwF,
        Method,
        Retain,
    )
    from everlearn.registry import register
    from everlearn.training import Training
    from everlearn.weightings import Consolidate, EndToEnd, Fixed, Relation, Split, Weighting

# Public names are imported when they are used: `import everlearn` does not wait for torch.
_HOMES = {
    "core.plan": ("Draw",),
    "core.snapshot": ("Average", "Snapshot"),
    "core.step": ("Step",),
    "core.terms": ("Batch", "Term", "Terms", "cross_entropy", "distance"),
    "data": ("Inputs", "Pixels", "Stream", "Task", "load"),
    "errors": ("BadInput", "EverlearnError"),
    "experiments.experiment": ("Experiment",),
    "experiments.run": ("run",),
    "learner": ("Learner",),
    "methods": (
        "AGEM",
        "DER",
        "DERpp",
        "ER",
        "ERACE",
        "FineTune",
        "GEM",
        "GSS",
        "ICaRL",
        "Joint",
        "LwF",
        "Method",
        "OEWC",
        "Retain",
        "SI",
    ),
    "registry": ("register",),
    "training": ("Training",),
    "weightings": ("Consolidate", "EndToEnd", "Fixed", "Relation", "Split", "Weighting"),
}
__all__ = [
    "AGEM",
    "DER",
    "ER",
    "ERACE",
    "GEM",
    "GSS",
    "OEWC",
    "SI",
    "Average",
    "BadInput",
    "Batch",
    "Consolidate",
    "DERpp",
    "Draw",
    "EndToEnd",
    "EverlearnError",
    "Experiment",
    "FineTune",
    "Fixed",
    "ICaRL",
    "Inputs",
    "Joint",
    "Learner",
    "LwF",
    "Method",
    "Pixels",
    "Relation",
    "Retain",
    "Snapshot",
    "Split",
    "Step",
    "Stream",
    "Task",
    "Term",
    "Terms",
    "Training",
    "Weighting",
    "__version__",
    "cross_entropy",
    "distance",
    "load",
    "register",
    "run",
]


def __getattr__(name: str) -> object:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(f"everlearn.{home}"), name)
            return found
    raise AttributeError(f"module 'everlearn' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
