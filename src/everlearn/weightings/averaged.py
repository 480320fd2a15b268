"""Averaged: is it the relation, or the phase?"""

from __future__ import annotations

from torch import Tensor

from everlearn.core import ranks
from everlearn.weightings.relation import Relation


class Averaged(Relation):
    """Relation with the weights averaged over the rows of a step: only how they change over time is left."""

    def used(self, weights: Tensor) -> Tensor:
        (mean,) = ranks.all_reduce(weights.mean(dim=0))
        return mean.expand_as(weights)
