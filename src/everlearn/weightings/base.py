"""The contract of a weighting: how much each term of each row counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from everlearn.arguments import Checked, checked
from everlearn.core.plan import Draw
from everlearn.core.state import Stateful
from everlearn.core.terms import Terms, weighed
from everlearn.errors import BadInput, number

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.core.theta import MainNet
    from everlearn.data import Task
    from everlearn.learner import Learner
    from everlearn.methods.base import Method
    from everlearn.training import Training


class Weighting(Checked, Stateful):
    """The same weights for all rows of a term, all 1: subclasses say more."""

    streams: bool = True  # can it weigh mini-batches that belong to no task?

    def usual(self, method: Method) -> Sequence[float]:
        """The weights it starts from by default: the method's own."""
        return method.weights

    def schedule(self, training: Training) -> dict[str, Any]:
        """Options left open that follow from the training, so that a record says them."""
        return {}

    def notes(self, training: Training, tasks: int | None, name: str) -> list[str]:
        """Settings under which it is not itself, in words."""
        return []

    def draws(self, own: tuple[Draw, ...]) -> tuple[Draw, ...]:
        """A step's memory batches: the method's `own` ones first, perhaps from other rows, then the weighting's."""
        return own

    def check(self, method: Method) -> None:
        """Refuse a method it cannot weigh."""

    def begin(self, method: Method, net: MainNet, seed: int) -> None:
        """Before the first task; `net` is the Main Net."""

    def begin_epoch(self, task: int, epoch: int, epochs: int) -> None:
        """`task` and `epoch` count from 0."""

    def begin_stream(self, filled: bool) -> None:
        """Before a mini-batch that belongs to no task; `filled`: is every row of the memory taken?"""

    def variant(self, number: int) -> object:
        """The kind of step `number` of an epoch. On a GPU each kind is recorded: it changes tensors in place only."""

    def loss(self, method: Method, step: Step, terms: Terms) -> Tensor:
        """What the real step descends."""
        return terms.losses.sum(dim=1).mean()

    def after(self, method: Method, step: Step, terms: Terms, direction: Tensor) -> None:
        """Called once the step's direction is known and before θ moves to θ − η · direction."""

    def report(self, names: Sequence[str], tape: dict[str, Tensor]) -> dict[str, Any]:
        """What to write down of an epoch, from what was kept on its tape."""
        return {}

    def review(self, learner: Learner, old: Sequence[Task], new: Task) -> dict[str, Any]:
        """What to write down at the end of a task, given the tasks before it."""
        return {}


def weights_of(weighting: Any, method: Method) -> tuple[float, ...]:
    """The weights a weighting was given, or its usual ones of the method: one for each of the method's terms."""
    given = weighting.weights
    weights = tuple(given if hasattr(given, "__iter__") else [given]) or tuple(weighting.usual(method))
    weights = weights or (1.0,) * len(method.names)
    for weight in weights:
        number("weight", weight)
    if len(weights) != len(method.names):
        shown, names = ", ".join(f"{weight:g}" for weight in weights), ", ".join(method.names)
        raise BadInput(f"weights {shown}: {type(method).__name__} has {len(method.names)} loss terms, {names}")
    return tuple(map(float, weights))


def row_of(weighting: Any, method: Method, like: Tensor) -> Tensor:
    """The same as a tensor [k]."""
    return torch.tensor(weights_of(weighting, method), dtype=torch.float64).to(like)


@checked
@dataclass(eq=False)
class Phased(Weighting):
    """Preset weights in a first phase of each task, something else after it.

    `warmup` is the length of that phase in epochs (default: half of them); `relation_from_task`, counted from 1, the
    first task to have a second phase at all: before it there is no old task to relate to.
    """

    weights: Sequence[float] | float = ()
    warmup: int | None = None
    relation_from_task: int = 2
    derived: ClassVar[tuple[str, ...]] = ("preset",)
    streams = False  # it has phases per task

    def __post_init__(self) -> None:
        if self.warmup is not None:
            number("warmup", self.warmup, whole=True)
        number("relation_from_task", self.relation_from_task, whole=True, positive=True)

    def usual(self, method: Method) -> Sequence[float]:
        return method.weights if method.preset is None else method.preset

    def schedule(self, training: Training) -> dict[str, Any]:
        return {"warmup": training.epochs // 2}

    def check(self, method: Method) -> None:
        weights_of(self, method)
        if not method.own_draws():
            raise BadInput(
                f"{type(self).__name__} weighs new against remembered samples, "
                f"and {type(method).__name__} rehearses none"
            )

    def begin(self, method: Method, net: MainNet, seed: int) -> None:
        self.preset: Tensor = row_of(self, method, net.theta)

    def begin_epoch(self, task: int, epoch: int, epochs: int) -> None:
        """The phase: `preset` before the first task with two phases, then `warm-up` and `relation`."""
        warmup = epochs // 2 if self.warmup is None else self.warmup
        self.phase = "preset" if task + 1 < self.relation_from_task else "warm-up" if epoch < warmup else "relation"

    def past_warmup(self, terms: Terms) -> Tensor:
        """The weights of the second phase, for weightings that need nothing else."""
        return self.preset

    def loss(self, method: Method, step: Step, terms: Terms) -> Tensor:
        return weighed(terms.losses, self.past_warmup(terms) if self.phase == "relation" else self.preset)

    def notes(self, training: Training, tasks: int | None, name: str) -> list[str]:
        if tasks is not None and self.relation_from_task > tasks:
            return [f"the relation begins at a task that does not come: {name} will use the preset weights throughout"]
        if self.warmup is not None and self.warmup >= training.epochs:
            return [f"the warm-up lasts for all epochs: {name} will use the preset weights throughout"]
        return []
