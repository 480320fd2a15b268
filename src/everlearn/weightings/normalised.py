"""Normalised: is it the relation, or the size of the step?"""

from __future__ import annotations

from torch import Tensor

from everlearn.weightings.relation import Relation


class Normalised(Relation):
    """Relation without the step's size: each row's weights sum to what the preset ones do. New against old is left."""

    def used(self, weights: Tensor) -> Tensor:
        return weights * (self.preset.sum() / weights.sum(dim=1, keepdim=True))
