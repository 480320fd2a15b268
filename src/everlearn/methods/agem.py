"""A-GEM (Chaudhry et al., 2019): fine-tuning, its gradient g projected so that the memory's loss does not rise.

With r the gradient of the loss on a batch of the past tasks' memory: g̃ = g where g·r ≥ 0, else g − (g·r / r·r) r.

Departs: the batch r is computed on has the size of a new batch. Each past task has an equal share of the whole memory,
which shrinks as tasks are added; the paper fixes the share from the number of all tasks, known beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.terms import cross_entropy, seen_by
from everlearn.methods.episodic import Episodic

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.data import Task
    from everlearn.learner import Learner


class AGEM(Episodic):
    references = 1

    def begin_task(self, learner: Learner, task: Task) -> None:
        super().begin_task(learner, task)
        self.constrained = learner.tasks > 0

    def select(self, step: Step) -> None:
        if self.constrained:
            (past,) = seen_by(step.net.at(step.net.theta), *step.references)
            step.against = step.net.gradient(cross_entropy(past).masked().mean())[None]

    def direction(self, gradient: Tensor, step: Step) -> Tensor:
        return gradient if step.against is None else project(gradient, step.against[0])


def project(gradient: Tensor, reference: Tensor) -> Tensor:
    """The nearest direction to `gradient` that does not oppose `reference`."""
    along = gradient @ reference
    return gradient - torch.where(along < 0, along / (reference @ reference), 0) * reference
