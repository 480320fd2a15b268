"""Balanced softmax (Ren et al., 2020) for a training mix of new and remembered samples: CE(z + log π, y)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.part import Part
from everlearn.core.terms import Batch, Term, cross_entropy

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner


class Adjusted(Part):
    """π are the frequencies of the classes in a batch of new and one of remembered samples: 1/k_new + 1/k_seen of a new
    class, 1/k_seen of an old one, 0 of the others, up to a factor."""

    def begin_task(self, learner: Learner, task: Task) -> None:
        self.prior = log_prior(learner, task)

    def __call__(self, batch: Batch) -> Term:
        return cross_entropy(batch, prior=self.prior)


def log_prior(learner: Learner, task: Task) -> Tensor:
    """log π, [C]."""
    seen, new = sorted(learner.seen | set(task.classes)), sorted(task.classes)
    mix = torch.zeros(learner.classes, dtype=torch.float64)
    mix[seen] += 1 / len(seen)
    mix[new] += 1 / len(new)
    return (mix / mix.sum()).log().to(learner.net.theta)
