"""Tables: the names of their columns, and where in them a value is that nobody can learn from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from everlearn.errors import BadInput, shown


def columns(data: Any) -> list[str] | None:
    """The names of a table's columns, or of the table in a pair (samples, labels); None where they have none."""
    if isinstance(data, (tuple, list)) and len(data) == 2:
        data = data[0]
    names = getattr(data, "columns", None) if hasattr(data, "__array__") else None
    found = list(names) if isinstance(names, Iterable) else []
    return found if found and all(isinstance(name, str) for name in found) else None


def agree(known: Sequence[str] | None, data: Any) -> None:
    """Refuse a table whose columns are not those the learner was taught with, in that order."""
    given = columns(data)
    if known is None or given is None or given == list(known):
        return
    if lost := [name for name in known if name not in given]:
        raise BadInput(f"there is no column {shown(lost[0])}, which the learner was taught with; fill it in")
    new = [f"a column {shown(name)} that the learner was not taught with" for name in given if name not in known]
    wrong = f"there is {new[0]}" if new else "the columns come in another order than the learner was taught with"
    raise BadInput(f"{wrong}; data[learner.feature_names_in_] has the right ones in the right order")


def missing(value: Any) -> bool:
    """Is it a gap in a table: None, NaN, or what pandas has for it?"""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA has no truth value
        return True
    except (ValueError, RuntimeError):  # a comparison of arrays or tensors has no truth value either
        return False


def numeric(array: np.ndarray) -> np.ndarray:
    """Objects as floats, gaps as NaN, if all else among them is numbers; otherwise as they are."""
    for gaps in (False, True):
        try:
            return (np.where(_each(missing, array), np.nan, array) if gaps else array).astype(np.float64)
        except (ValueError, TypeError, OverflowError):
            pass
    return array


def _each(ask: Any, array: np.ndarray) -> np.ndarray:
    return np.array([ask(value) for value in array.flat], dtype=bool).reshape(array.shape)


def first_word(array: np.ndarray, before: tuple[int, ...] = (), names: Sequence[str] | None = None) -> str:
    """The first value that is no number, and where, in words; "" where there is none.

    `before` is the place of the array itself, of a sample that came by itself.
    """
    for at, value in np.ndenumerate(array):
        if not _number(value):
            return f", and {shown(value)} is none (in {place((*before, *at), names)})"
    return ""


def _number(value: Any) -> bool:
    try:
        return isinstance(float(value), float)
    except (ValueError, TypeError, OverflowError):
        return missing(value)


def place(at: Sequence[int], names: Sequence[str] | None = None) -> str:
    """Where among samples, in words: the sample's number from 0, and its column or what else leads there."""
    sample, *inside = at
    if len(inside) == 1:
        column = names[inside[0]] if names and inside[0] < len(names) else inside[0]
        return f"sample {sample}, column {shown(column)}"
    return f"sample {sample}" + (f" at {inside}" if inside else "")
