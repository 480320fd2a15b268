"""Distillation on the new images (Li and Hoiem, 2016): the old classes' logits are to stay what they were.

The cross-entropy between softmax(z*/T) and softmax(z/T) over the classes of earlier tasks, z* the logits of the network
as it was before this task on the same augmented and normalised images. 0 in the first task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.terms import Batch, Term
from everlearn.errors import number
from everlearn.terms.taught import Taught

if TYPE_CHECKING:
    from everlearn.core.step import Step


def distillation(batch: Batch, target: Tensor, classes: Tensor, temperature: float) -> Term:
    """The cross-entropy between softmax(z*/T) and softmax(z/T) over some classes (their numbers), of each row.

    `target` are another network's logits of these classes, z* [B, c].
    """
    wanted = (target / temperature).softmax(dim=1)
    own = (batch.z[:, classes] / temperature).log_softmax(dim=1)
    return Term(-(wanted * own).sum(dim=1), batch, preserves=True)


class Distilled(Taught):
    """The teacher is asked once per step, whatever else a weighting computes on the same images."""

    def __init__(self, temperature: float = 2.0, averaged: bool = False):
        number("temperature", temperature, positive=True)
        self.temperature, self.averaged = temperature, averaged

    def select(self, step: Step) -> None:
        if self.teacher is not None:
            step.new = step.new._replace(stored={**step.new.stored, "taught": self.taught(step.new.x)})

    def __call__(self, new: Batch) -> Term:
        if self.teacher is None:
            return Term(torch.zeros_like(new.z[:, 0]), new, preserves=True)
        target = new.stored["taught"] if "taught" in new.stored else self.taught(new.x)
        return distillation(new, target, self.old, self.temperature)
