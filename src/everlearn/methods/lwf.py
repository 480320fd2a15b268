"""Learning without Forgetting (Li and Hoiem, 2016): L = CE(new) + α KD(new), old classes only, no memory.

KD is the cross-entropy between softmax(z*/T) and softmax(z/T) over the classes of earlier tasks, z* the logits of the
network as it was before this task, on the same augmented and normalised images.

Departs: the new head is not trained alone first.
"""

from __future__ import annotations

import torch

from everlearn.core.terms import Batch, Term, cross_entropy
from everlearn.errors import number
from everlearn.methods.teacher import Taught
from everlearn.terms.distilled import distillation
from everlearn.weightings.base import Weighting


class LwF(Taught):
    names = ("new", "old heads")

    def __init__(self, weighting: Weighting | None = None, temperature: float = 2.0):
        super().__init__(weighting)
        number("temperature", temperature, positive=True)
        self.temperature = temperature

    def learn(self, new: Batch) -> list[Term]:
        return [cross_entropy(new), self.distil(new)]

    def distil(self, new: Batch) -> Term:
        if self.teacher is None:
            return Term(torch.zeros_like(new.z[:, 0]), new, preserves=True)
        return distillation(new, self.taught(new.x), self.old, self.temperature)
