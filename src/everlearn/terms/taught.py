"""Learning from the network as it was before this task."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.part import Part
from everlearn.core.snapshot import Snapshot

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner


class Taught(Part):
    """The teacher is a copy of the network in evaluation mode, None in the first task; `old` are its classes.

    `averaged`: it is the network that is tested, its moving average if it has one.
    """

    averaged: bool = False
    teacher: Snapshot | None = None

    def begin_task(self, learner: Learner, task: Task) -> None:
        super().begin_task(learner, task)
        self.old = torch.tensor(sorted(learner.seen), dtype=torch.long, device=learner.device)
        with learner.sgd.average.applied(learner.net) if self.averaged else nullcontext():
            self.teacher = Snapshot(learner.net) if learner.seen else None

    def end_task(self, learner: Learner, task: Task) -> None:
        super().end_task(learner, task)
        self.teacher = None

    def taught(self, x: Tensor) -> Tensor:
        """The teacher's logits of the old classes."""
        return self.teacher(x)[:, self.old]
