"""Numbers as people read them: how many digits they need, and where an axis has its marks."""

from __future__ import annotations

import math


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
