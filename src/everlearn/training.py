"""How a network is trained, whatever the method: the settings an experiment and a Learner share."""

from __future__ import annotations

from dataclasses import dataclass

from everlearn import errors
from everlearn.arguments import checked
from everlearn.errors import BadInput, number, unknown

FORWARDS = ("separate", "joint")
LARGEST = 1_000_000  # rows of a batch
PRECISIONS = ("float32", "tfloat32", "bfloat16")  # the last two for a GPU


@checked
@dataclass(frozen=True)
class Training:
    """SGD for `epochs` per task on batches of `batch` new samples, each memory draw beside them of the same size.

    `forward` `separate`: each batch normalised by its own BatchNorm statistics; `joint`: one pass for all of them.
    `average`: what is tested is a moving average of the network with this decay, 0.999 say, or over about the last half
    of a `task`. With 0 it is the network itself, with None what the method has.
    """

    epochs: int = 5
    batch: int = 32
    lr: float = 0.03
    momentum: float = 0.0
    weight_decay: float = 0.0
    forward: str = "separate"
    precision: str = "float32"
    average: float | str | None = None

    def __post_init__(self) -> None:
        number("epochs", self.epochs, whole=True, positive=True)
        number("batch", self.batch, whole=True, positive=True, below=LARGEST)
        number("lr", self.lr, positive=True)
        number("momentum", self.momentum, below=1)
        number("weight_decay", self.weight_decay)
        if self.average is not None:
            errors.decay(self.average)
        kinds = {"epochs": int, "batch": int, "lr": float, "momentum": float, "weight_decay": float}
        if self.average not in (None, errors.TASK):
            kinds["average"] = float
        for name, kind in kinds.items():  # numpy's numbers can be written nowhere, and 1 and 1.0 are one setting
            object.__setattr__(self, name, kind(getattr(self, name)))
        if self.forward not in FORWARDS:
            raise BadInput(
                f"forward '{self.forward}' is neither 'separate' (one pass per batch) nor 'joint' (one for all)"
            )
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)

    def decay(self, usual: float | str) -> float | str:
        """Of the average that is tested, given the method's usual one; 0: none."""
        return usual if self.average is None else self.average
