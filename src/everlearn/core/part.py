"""Methods are made of parts: what has to know the task, or to do something once per step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn.arguments import Checked
from everlearn.core.state import Stateful

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.core.terms import Terms


class Part(Checked, Stateful):
    """Each hook is called on the parts it holds as attributes, then on itself. A method is one, and so is a loss term
    with a mask, a prior or a teacher."""

    @property
    def parts(self) -> list[Part]:
        return [value for value in vars(self).values() if isinstance(value, Part)]

    def tell(self, hook: str, *given: Any) -> None:
        for part in self.parts:
            part.tell(hook, *given)
        getattr(self, hook)(*given)

    def select(self, step: Step) -> None:
        """Before anything else, once per step: exchange `step.replay`, by losses say, or `step.new`, row by row.

        `step.ask(batch)` is the batch with its logits, `batch.rows(which)` some of its rows. Row i of `step.new` stays
        sample i, which is what the memory may keep.
        """

    def remember(self, step: Step, terms: Terms) -> None:
        """What to keep of a step, when θ has moved."""

    def begin_task(self, learner: Any, task: Any) -> None:
        """Before a task's first step."""

    def end_task(self, learner: Any, task: Any) -> None:
        """After its last."""

    def grow(self, learner: Any) -> None:
        """There are more classes: `learner.classes`. Vectors like θ and snapshots have followed, with 0 for them."""

    def forget(self, learner: Any, kept: Tensor) -> None:
        """Samples were taken out of the memory; its rows are now those that had these numbers."""


def mask_of(classes: Iterable[int], learner: Any) -> Tensor:
    """Which of a learner's outputs stand for these classes, bool [C]."""
    numbers = torch.tensor(sorted(classes), dtype=torch.long, device=learner.device)
    return torch.zeros(learner.classes, dtype=torch.bool, device=learner.device).index_fill(0, numbers, True)
