"""Online EWC (Schwarz et al., 2018): L = CE(new) + λ Σₚ Fₚ (θₚ − θ*ₚ)², F ← γ F + Fisher of the task, θ* its last θ.

The Fisher is the mean over the task's samples of the squared gradient of log p(y | x), y the true label, one gradient
per sample, the network in evaluation mode and the images not augmented.

Departs: λ multiplies the whole sum; the paper has half of it, and γ in the sum. Each task's Fisher is added unscaled.
The settings of the published tables are for this form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.terms import Batch, cross_entropy
from everlearn.errors import BadInput, number
from everlearn.methods.base import Method
from everlearn.weightings.base import Weighting

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.data import Task
    from everlearn.learner import Learner

CHUNK = 16  # samples whose gradients are held at once


class OEWC(Method):
    """The pull is its gradient, 2λ F (θ − θ*), added to the new samples'."""

    def __init__(self, weighting: Weighting | None = None, strength: float = 10.0, decay: float = 1.0):
        super().__init__(weighting)
        number("strength", strength)
        number("decay", decay)
        if decay > 1:
            raise BadInput(f"decay {decay} must be a number between 0 and 1")
        self.strength, self.decay = strength, decay

    def begin_task(self, learner: Learner, task: Task) -> None:
        if learner.tasks == 0:
            self.anchor, self.fisher = torch.zeros_like(learner.net.theta), torch.zeros_like(learner.net.theta)

    def direction(self, gradient: Tensor, step: Step) -> Tensor:
        return gradient + 2 * self.strength * self.fisher * (step.net.theta.detach() - self.anchor)

    def end_task(self, learner: Learner, task: Task) -> None:
        self.fisher.mul_(self.decay).add_(fisher(learner, task))
        self.anchor.copy_(learner.net.theta.detach())


def fisher(learner: Learner, task: Task) -> Tensor:
    """E[(∇ log p(y | x; θ))²] over the task, [P]."""
    x, y = (tensor.to(learner.device) for tensor in task.train)
    loss = lambda net, image, label: cross_entropy(Batch(image, label, z=net(image)[0])).loss.sum()
    total = torch.zeros_like(learner.net.theta)
    with learner.net.evaluating():
        for images, labels in zip(x.split(CHUNK), y.split(CHUNK)):
            total += learner.net.per_sample(loss, learner.inputs(images), labels).square().sum(dim=0)
    return total / len(x)
