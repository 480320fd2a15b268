"""What a run that is resumed would go on without: numbers, words and lists that a method or a weighting changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import pickle
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from everlearn.core.capture import alike, fixed
from everlearn.core.state import Stateful
from everlearn.errors import MALFORMED, PLAIN, BadInput, Notice, parsed

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

Plain = dict[str, object]  # values by class and name


def plain(*holders: Stateful) -> Plain:
    """What they hold that is in no state."""
    held = ((type(of).__name__, name, value) for of in holders for name, value in of._held().items())
    lost = ((kind, name, value) for kind, name, value in held if not isinstance(value, (Tensor, Stateful)))
    return {f"{kind}.{name}": content(value) for kind, name, value in lost if name != "learner"}


def content(value: object) -> object:
    """A value as it is now: plain ones and lists of them themselves, of all else, such as a module, a hash, or its type
    if it has none."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(of, PLAIN) for of in inside):
        return fixed(value)
    try:
        return hashlib.blake2b(pickle.dumps(value)).digest()
    except Exception:  # a function made inside another, an open file
        return type(value)


def tell_lost(learner: Learner, before: Plain, now: Plain) -> None:
    """A run that is resumed would go on with other values than it had: say so, once for each."""
    _tell(learner, (name for name in before.keys() & now if not alike(before[name], now[name])))


@contextlib.contextmanager
def called_again(learner: Learner, *holders: Stateful) -> Iterator[None]:
    """Around a call that a resumed run repeats, on holders as they were made.

    What the call assigns is there again. What it reads first, such as a count, or does not assign, is lost.
    """
    made = learner.made
    carried = {name for name, value in plain(*holders).items() if not alike(made.get(name), value)}
    if not carried:
        yield
        return
    with contextlib.ExitStack() as traces:
        traced = [traces.enter_context(_traced(of)) for of in holders]
        yield
    read = set().union(*(names for names, _ in traced))
    bound = set().union(*(names for _, names in traced))
    _tell(learner, carried & (read | (made.keys() - bound)))


def said(*holders: Stateful) -> str:
    """The plain values each of them has, in words from which `begun` reads them; arrays and objects are left out."""
    plain = lambda of: [[name, _worded(value)] for name, value in of._held().items() if _sayable(value)]
    return json.dumps(list(map(plain, holders)))


def begun(words: str) -> list[dict[str, object]]:
    """What `said` gave; a state may be from anywhere."""
    try:
        return [{str(name): _meant(value) for name, value in of} for of in parsed(words)]
    except MALFORMED as error:
        raise BadInput("this state's words on how its task began cannot be read") from error


def _sayable(value: object) -> bool:
    if type(value) in (list, tuple, set):
        return all(map(_sayable, value))  # pyright: ignore[reportArgumentType]
    if type(value) is dict:
        return all(map(_sayable, [*value, *value.values()]))
    return type(value) in PLAIN and (not isinstance(value, float) or math.isfinite(value))


def _worded(value: Any) -> Any:
    """A plain value for JSON, which has lists alone: any other collection says what it is."""
    if isinstance(value, dict):
        return {"dict": [[_worded(key), _worded(of)] for key, of in value.items()]}
    if isinstance(value, (list, tuple, set)):
        return {type(value).__name__: [_worded(of) for of in value]}
    return value


def _meant(words: Any) -> Any:
    if not isinstance(words, dict):
        return words
    ((kind, inside),) = words.items()
    if kind == "dict":
        return {_meant(key): _meant(of) for key, of in inside}
    return {"list": list, "tuple": tuple, "set": set}[kind](map(_meant, inside))


@contextlib.contextmanager
def as_begun(words: str, *holders: Stateful) -> Iterator[None]:
    """Around a call that is repeated in the middle of a task: of the plain values that it assigns, those are kept that
    it had assigned when the task began. The network and the memory that they may be made of have changed since."""
    with contextlib.ExitStack() as traces:
        traced = [traces.enter_context(_traced(of)) for of in holders]
        yield
    for before, of, (_, bound) in zip(begun(words), holders, traced):
        names = {known.rpartition(".")[2] for known in bound}
        vars(of).update({name: value for name, value in before.items() if name in names})


@contextlib.contextmanager
def _traced(of: Any) -> Iterator[tuple[set[str], set[str]]]:
    """The names of the attributes that are read before they are bound, and of those that are bound."""
    kind: Any = type(of)
    read: set[str] = set()
    bound: set[str] = set()

    def get(self: Any, name: str) -> Any:
        if (known := f"{kind.__name__}.{name}") not in bound:
            read.add(known)
        return kind.__getattribute__(self, name)

    def bind(self: Any, name: str, value: Any) -> None:
        bound.add(f"{kind.__name__}.{name}")
        kind.__setattr__(self, name, value)

    traced: Any = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    traced.__getattribute__, traced.__setattr__ = get, bind
    of.__class__ = traced
    try:
        yield read, bound
    finally:
        of.__class__ = kind


def _tell(learner: Learner, lost: Iterable[str]) -> None:
    for name in sorted({*lost} - learner._told_lost):
        learner._told_lost.add(name)
        warnings.warn(
            f"{name} changes in training and is not a tensor: an interrupted run continues without it. Make it "
            f"a tensor and change it in place (add_, copy_), or name it in the class's `derived` if that is right",
            Notice,
            stacklevel=1,  # one place, so that Python says it once
        )
