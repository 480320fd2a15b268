"""Backward feature projection (Gu et al., 2023): features may move, if a linear map A takes them back.

‖A f(x) − f*(x)‖² / d, f* the d features of the network before this task. A begins as the identity in each task and is
learned beside θ, by its own gradient step: with r = A f − f*, dL/dA = 2 r fᵀ / (B d). 0 in the first task.

Departs: the authors take the norm and not its square, on new and remembered samples. A has its own learning rate,
whatever the term's weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.terms import Batch, Term, Terms
from everlearn.errors import number
from everlearn.terms.taught import Taught

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.data import Task
    from everlearn.learner import Learner


class Projected(Taught):
    """For a method with `features`; of its memory batches it is called with the last one."""

    def __init__(self, lr: float = 0.1):
        number("projector's lr", lr)
        self.lr = lr

    def begin_task(self, learner: Learner, task: Task) -> None:
        super().begin_task(learner, task)
        width = learner.features(task.train[0][:1]).shape[1]
        self.projector: Tensor = torch.eye(width).to(learner.net.theta)

    def select(self, step: Step) -> None:
        if self.teacher is not None:
            *others, last = step.replay
            last = last._replace(stored={**last.stored, "before": self.teacher.features(last.x)})
            step.replay = (*others, last)

    def away(self, batch: Batch) -> Tensor:
        """r = A f − f*, [B, d]."""
        assert self.teacher is not None
        before = batch.stored["before"] if "before" in batch.stored else self.teacher.features(batch.x)
        return batch.features @ self.projector.T - before

    def __call__(self, memory: Batch) -> Term:
        if self.teacher is None:
            return Term(torch.zeros_like(memory.z[:, 0]), memory, preserves=True)
        return Term(self.away(memory).square().mean(dim=1), memory, preserves=True)

    @torch.no_grad()
    def remember(self, step: Step, terms: Terms) -> None:
        if self.teacher is None:
            return
        batch = next(batch for batch in terms.batches if "before" in batch.stored)
        away = self.away(batch) if batch.there is None else torch.where(batch.there[:, None], self.away(batch), 0)
        self.projector.sub_(2 * away.T @ batch.features / batch.features.numel(), alpha=self.lr)  # in place
