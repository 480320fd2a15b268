"""Labelled: another outer loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from everlearn.core.terms import Batch, cross_entropy, seen_by
from everlearn.weightings.relation import Relation

if TYPE_CHECKING:
    from everlearn.core.theta import MainNet
    from everlearn.methods.base import Method


class Labelled(Relation):
    """Relation whose outer loss is the cross-entropy on the memory's labels, whatever else the method rehearses: to know the
    classes is what the weights are for, and to be as the network was is a means to it."""

    def outer(self, method: Method, net: MainNet, replay: tuple[Batch, ...]) -> Tensor:
        return sum(cross_entropy(batch).masked().mean() for batch in seen_by(net, *replay))
