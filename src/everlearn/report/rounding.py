"""Numbers as short as they may be: how many digits they need, and where an axis has its marks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def decimals(size: float, least: int = 0, most: int = 6) -> int:
    """How many decimals show three digits of a number of this size."""
    return most if size <= 0 else min(max(2 - math.floor(math.log10(size)), least), most)


def signed(value: float, places: int) -> str:
    return f"{value:+.{places}f}".replace("-", "−")


def ticks(top: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to `top`, about so many steps."""
    power = 10 ** math.floor(math.log10(top / about))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if top / step <= about + 0.5)
    return [i * step for i in range(math.floor(top / step + 1e-9) + 1)]


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
