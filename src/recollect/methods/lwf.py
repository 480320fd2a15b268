"""Learning without Forgetting (Li and Hoiem, 2016): L = CE(new) + α KD(new), old classes only, no memory.

KD is the cross-entropy between softmax(z*/T) and softmax(z/T) over the classes of earlier tasks, z* the logits of the network as it
was before this task, on the same augmented and normalised images.

Departs: the new head is not trained alone first.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from recollect.errors import BadInput
from recollect.methods.base import Method
from recollect.terms import Batch, Term, Weighting, cross_entropy


class LwF(Method):
    """The teacher is a copy of the network in evaluation mode."""

    names = ("new", "old heads")

    def __init__(self, weighting: Weighting | None = None, temperature: float = 2.0):
        super().__init__(weighting)
        if not temperature > 0:
            raise BadInput(f"temperature {temperature} must be greater than 0")
        self.temperature = temperature

    def begin_task(self, learner, task) -> None:
        self.old = torch.tensor(sorted(learner.met), device=learner.device)
        self.teacher = copy.deepcopy(learner.net.rest()).eval() if learner.met else None

    def learn(self, new: Batch) -> list[Term]:
        return [cross_entropy(new), Term(self.distil(new), new)]

    def distil(self, new: Batch) -> Tensor:
        if self.teacher is None:
            return torch.zeros_like(new.z[:, 0])
        with torch.no_grad():
            target = (self.teacher(new.x).to(new.z.dtype)[:, self.old] / self.temperature).softmax(dim=1)
        return -(target * (new.z[:, self.old] / self.temperature).log_softmax(dim=1)).sum(dim=1)
