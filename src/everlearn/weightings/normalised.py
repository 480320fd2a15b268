"""Normalised: is it the relation, or the size of the step?"""

from __future__ import annotations

from torch import Tensor

from everlearn.weightings.relation import Relation


class Normalised(Relation):
    """Relation with each row's weights scaled to the sum of the preset ones: only the share of new and old is left."""

    def used(self, weights: Tensor) -> Tensor:
        return weights * (self.preset.sum() / weights.sum(dim=1, keepdim=True))
