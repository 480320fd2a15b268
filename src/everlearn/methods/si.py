"""Synaptic Intelligence (Zenke et al., 2017): L = CE(new) + c Σₚ Ωₚ (θₚ − θ*ₚ)².

Along a task ωₚ sums −gₚ Δθₚ, g the gradient of the new samples' loss alone; at its end
Ωₚ ← Ωₚ + max(ωₚ, 0) / ((θₚ − θ*ₚ)² + ξ) and θ* moves to θ.

Departs: a negative ωₚ, a parameter that made things worse, counts as 0. With momentum or weight
decay, Δθ is taken without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.errors import number
from everlearn.methods.base import Method
from everlearn.weightings.base import Weighting

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.data import Task
    from everlearn.learner import Learner


class SI(Method):
    """The pull is its gradient, 2c Ω (θ − θ*); the step it leads to is what ω is gathered along."""

    def __init__(self, weighting: Weighting | None = None, strength: float = 0.5, damping: float = 1.0):
        super().__init__(weighting)
        number("strength", strength)
        number("damping", damping, positive=True)
        self.strength, self.damping = strength, damping

    def begin_task(self, learner: Learner, task: Task) -> None:
        theta = learner.net.theta.detach()
        if learner.tasks == 0:
            self.anchor, self.importance, self.path = theta.clone(), torch.zeros_like(theta), torch.zeros_like(theta)

    def direction(self, gradient: Tensor, step: Step) -> Tensor:
        return gradient + 2 * self.strength * self.importance * (step.net.theta.detach() - self.anchor)

    def after_step(self, step: Step, gradient: Tensor, direction: Tensor) -> None:
        self.path += gradient * direction * step.sgd.lr  # −g Δθ

    def end_task(self, learner: Learner, task: Task) -> None:
        moved = learner.net.theta.detach() - self.anchor
        self.importance += self.path.clamp(min=0) / (moved.square() + self.damping)
        self.anchor.copy_(learner.net.theta.detach())
        self.path.zero_()
