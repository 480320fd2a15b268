"""Split (the paper's Split RDER): should the outer loss have memory of its own?"""

from __future__ import annotations

from typing import ClassVar

from everlearn.core.plan import Draw
from everlearn.weightings.relation import Relation


class Split(Relation):
    """Relation with the memory split: a fifth of its rows for the outer loss, the others for the step."""

    KNOWN: ClassVar = Relation.KNOWN | {"outer_rows": ("all",)}  # it says itself which rows

    def draws(self, own: tuple[Draw, ...]) -> tuple[Draw, ...]:
        pools = ["inner"] * len(own) * (1 if self.order == "printed" else 2) + ["outer"] * len(own)
        return tuple(draw._replace(pool=pool) for draw, pool in zip(super().draws(own), pools))
