"""What can go wrong, in words for the person at the keyboard: one sentence that names the value and the way out."""

import difflib
import math
import re
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


class EverlearnError(Exception):
    """A run that failed on the way: the command line prints the sentence and exits with 1."""

    exit_code = 1
    traceback: str | None = None  # of what led to it, where it came from another process


class Stopped(EverlearnError):
    """A run ended from outside: its checkpoint is still good."""


class BadInput(EverlearnError, ValueError):
    """Something asked for that cannot be: found before any work starts; the command line exits with 2."""

    exit_code = 2


class Notice(UserWarning):
    """Something left out that one may not expect to be: the command line prints the sentence and goes on."""


def printable(text: object, keep: str = "") -> str:
    """Foreign words as they can be shown: what is no visible character (a line's end, a terminal's escape, a mark that
    turns the reading direction) is �, but for those in `keep`."""
    return "".join(c if c.isprintable() or c in keep else "\ufffd" for c in str(text))


def short_of_memory(error: Exception) -> bool:
    """The machine's or a GPU's; torch has no error of its own for the machine's."""
    return isinstance(error, MemoryError) or re.search("out of memory|allocate memory", str(error)) is not None


def number(name: str, value: Any, *, whole: bool = False, positive: bool = False, below: float = math.inf) -> None:
    """Refuse what is not a number from 0 up (`positive`: above it), small enough for arithmetic in float32 or int64."""
    kind: Any = Integral if whole else Real  # of which type checkers know no order
    if not isinstance(value, kind):
        raise BadInput(f"{name} {value!r} must be a {'whole ' if whole else ''}number")
    if not (value > 0 if positive else value >= 0):
        raise BadInput(f"{name} {value} must be a number {'greater than 0' if positive else 'from 0 up'}")
    limit, shown = (2**63, "2⁶³") if whole else (1e38, "1e38")
    if not value < min(below, limit):
        raise BadInput(f"{name} {value} must be a number below {below if below < limit else shown}")


def unknown(kind: str, given: object, known: Iterable[str]) -> BadInput:
    """The error for a name that is not there, with the nearest right one."""
    known = list(known)
    near = difflib.get_close_matches(str(given).lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"
    return BadInput(f"unknown {kind} '{given}'; {hint}")
