"""Numbers as short as the page needs them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def rounded(value: Any, places: int) -> Any:
    """Every float in lists and mappings with so many decimals, and without a point where it is whole.

    What is no finite number is None: JSON has none.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = round(value, places)
        return int(short) if short == int(short) else short
    if isinstance(value, Mapping):
        return {key: rounded(of, places) for key, of in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(of, places) for of in value]
    return value
