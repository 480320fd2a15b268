"""End to end (the paper's Vanilla): is the bi-level step needed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from everlearn.core.plan import Draw
from everlearn.core.terms import Terms, weighed
from everlearn.weightings.diagnostics import labels
from everlearn.weightings.net import norms
from everlearn.weightings.relation import Relational

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.methods.base import Method


class EndToEnd(Relational):
    """The paper's Vanilla: one backward pass of inner plus outer loss trains both nets, without a bi-level step.

    φ is only in the inner loss, whose derivative by a weight is that row's loss: it can only learn small weights.

    Departs: the paper gives no schedule for it. Here it begins in the same task as RER, with the same warm-up, and
    learns at every step.
    """

    def draws(self, own: tuple[Draw, ...]) -> tuple[Draw, ...]:
        return own * 2

    def loss(self, method: Method, step: Step, terms: Terms) -> Tensor:
        if self.phase == "preset":
            return weighed(terms.losses, self.preset)
        weights, in_use = self.weigh(terms), self.phase == "relation"
        self.improve(weights, terms.losses.detach() / len(weights))
        names = ("weights", "weight_labels") if in_use else ("proposed", "labels")
        step.tape.keep(**dict(zip(names, (weights, labels(terms)))), norms=norms(terms))
        outer = method.outer(step.net.at(step.net.theta), step.extra)
        return weighed(terms.losses, weights.detach() if in_use else self.preset) + outer
