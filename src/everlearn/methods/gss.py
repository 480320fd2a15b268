"""GSS, greedy (Aljundi et al., 2019, Algorithm 2): ER with a memory chosen for the diversity of its gradients.

A new sample's score is c = 1 + the largest cosine between its gradient and those of some stored samples. While there
is room it is stored. Later it is considered if c < 1: row i is chosen with probability Cᵢ / Σ C, C the scores of the
stored samples, and the new sample replaces it with probability Cᵢ / (Cᵢ + c).

Departs: a batch is scored against one draw from the memory, of as many samples as the batch, and rows are chosen by the
scores before the batch. If a task has no more samples than the memory has rows, a sample that is stored when an epoch
begins is not considered again in that epoch, so there are no copies. Gradients are taken after the step, in evaluation
mode, because a batch of one has no BatchNorm statistics of its own. With an empty memory the cosine is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from everlearn.core import offered, ranks
from everlearn.core.plan import chances
from everlearn.core.terms import Batch, Terms, cross_entropy
from everlearn.methods.er import ER

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.core.theta import MainNet
    from everlearn.data import Task
    from everlearn.learner import Learner


class GSS(ER):
    references = 1
    apart = ("scores",)
    memory_factor = 3  # it holds a gradient per sample
    slot_rule = staticmethod(chances)

    def begin_task(self, learner: Learner, task: Task) -> None:
        if getattr(self, "scores", None) is None:
            rows = learner.capacity + 1  # the last is a spare one
            self.scores = torch.zeros(rows, dtype=torch.float64, device=learner.device)

    def forget(self, learner: Learner, kept: Tensor) -> None:
        left = self.scores[kept]
        self.scores.zero_()[: len(left)] = left

    def remember(self, step: Step, terms: Terms) -> None:
        new, old = gradients(step.net, step.new, *step.references)
        score = ranks.all_gather(similarity(new, ranks.all_gather(old))).double() + 1
        row = rows_taken(self.scores, score, *step.slots.unbind(1))
        step.memory.write(row, step.x, step.y, **offered.kept(self, step, terms))
        self.scores[row] = score


def gradients(net: MainNet, *batches: Batch) -> list[Tensor]:
    """∇ℓ of each sample of each batch, [B, P], all in one pass; 0 for a row of an empty memory."""
    x, y = torch.cat([batch.x for batch in batches]), torch.cat([batch.y for batch in batches])
    loss = lambda net, x, y: cross_entropy(Batch(x, y, z=net(x)[0])).loss.sum()
    with net.evaluating():
        parts = net.per_sample(loss, x, y).split([len(batch.y) for batch in batches])
    return [g if batch.there is None else g * batch.there[:, None] for g, batch in zip(parts, batches)]


def similarity(new: Tensor, old: Tensor) -> Tensor:
    """The largest cosine of each new gradient with the old ones, [B]; an old gradient of 0 is nobody's neighbour."""
    # Well-learned samples have very small gradients.
    unit = lambda g: F.normalize(g, dim=1, eps=torch.finfo(g.dtype).tiny)
    cosines = unit(new) @ unit(old).T
    there = old.any(dim=1)
    return torch.where(there.any(), cosines.masked_fill(~there, -1).amax(dim=1), 0)


def rows_taken(scores: Tensor, score: Tensor, free: Tensor, meets: Tensor, lot: Tensor) -> Tensor:
    """The row each new sample takes, [B]: `free` while there is room, or the one it meets and beats, or the spare."""
    spare = len(scores) - 1
    bounds = scores[:spare].cumsum(0)
    met = torch.searchsorted(bounds, meets * bounds[-1], right=True).clamp(max=spare - 1)
    beaten = (score < 1) & (lot * (scores[met] + score) < scores[met])
    row = torch.where(free < spare, free.long(), torch.where(beaten, met, spare))
    later = (row[:, None] == row[None, :]).triu(1).any(dim=1)  # two for one row: the last arrival has it
    return row.masked_fill(later, spare)
