"""Balanced: another outer batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from everlearn.core.plan import reservoir
from everlearn.errors import BadInput
from everlearn.weightings.relation import Relation

if TYPE_CHECKING:
    from everlearn.methods.base import Method


class Balanced(Relation):
    """Relation whose outer loss is on draws balanced over the memory's classes; a reservoir holds few of the newest."""

    POOLS: ClassVar = {"all": (None, "balanced")}

    def check(self, method: Method) -> None:
        super().check(method)
        if method.slot_rule is not reservoir:
            raise BadInput(
                f"Balanced foresees what a reservoir holds, and {type(method).__name__} fills its memory otherwise"
            )
