"""The same weight for every row of a term: the λ and γ of Eq. 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from everlearn.core.terms import Terms, weighed
from everlearn.weightings.base import Weighting, row_of, weights_of

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.core.theta import MainNet
    from everlearn.methods.base import Method


class Fixed(Weighting):
    """Fixed weights, one number per term: the method's own unless given."""

    derived: ClassVar[tuple[str, ...]] = ("row",)

    def __init__(self, weights: Sequence[float] | float = ()):
        self.weights = weights

    def check(self, method: Method) -> None:
        weights_of(self, method)

    def begin(self, method: Method, net: MainNet, seed: int) -> None:
        self.row: Tensor = row_of(self, method, net.theta)

    def loss(self, method: Method, step: Step, terms: Terms) -> Tensor:
        return weighed(terms.losses, self.row)
