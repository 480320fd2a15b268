"""Labelled: another outer loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from everlearn.core.terms import Batch, cross_entropy, seen_by
from everlearn.weightings.outer import outer_loss
from everlearn.weightings.relation import Relation

if TYPE_CHECKING:
    from everlearn.core.theta import MainNet
    from everlearn.methods.base import Method


class Labelled(Relation):
    """Relation whose outer loss is the cross-entropy on the memory's labels, whatever else the method rehearses.

    The aim is to know the classes; staying close to earlier logits is only a means to it.
    """

    KNOWN: ClassVar = Relation.KNOWN | {"outer_views": ("usual", "strong")}

    def outer(self, method: Method, net: MainNet, replay: tuple[Batch, ...]) -> Tensor:
        return outer_loss(map(cross_entropy, seen_by(net, *replay)))
