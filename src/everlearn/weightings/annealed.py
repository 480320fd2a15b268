"""Annealed: is a small step all there is to it?"""

from __future__ import annotations

from torch import Tensor

from everlearn.core.terms import Terms
from everlearn.weightings.base import Phased


class Annealed(Phased):
    """After the warm-up every weight is a tenth of its preset: a smaller step, and nothing else."""

    def past_warmup(self, terms: Terms) -> Tensor:
        return self.preset / 10
