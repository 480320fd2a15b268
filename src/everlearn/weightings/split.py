"""Split (the paper's Split RDER): should the outer loss have memory of its own?"""

from __future__ import annotations

from typing import ClassVar

from everlearn.weightings.relation import Relation


class Split(Relation):
    """Relation with the memory split: a fifth of its rows for the outer loss, the others for the step."""

    POOLS: ClassVar = {"all": ("inner", "outer")}
