"""What a run that is resumed would go on without: numbers, words and lists that a method or a weighting changes."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import math
import pickle
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from everlearn.core.capture import alike, fixed
from everlearn.core.state import Stateful
from everlearn.errors import PLAIN, BadInput, Notice

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
    """Their plain values, in words from which `as_begun` reads them; arrays and objects are left out."""
    held = {(place, name): value for place, of in enumerate(holders) for name, value in of._held().items()}
    return repr({key: value for key, value in held.items() if _sayable(value)})


def _sayable(value: object) -> bool:
    if type(value) in (list, tuple, set):
        return all(map(_sayable, value))  # pyright: ignore[reportArgumentType]
    if type(value) is dict:
        return all(map(_sayable, [*value, *value.values()]))
    return type(value) in PLAIN and (not isinstance(value, float) or math.isfinite(value))


def begun(words: str) -> dict[tuple[int, str], object]:
    """What `said` gave; a state may be from anywhere."""
    try:
        return {(int(place), str(name)): value for (place, name), value in ast.literal_eval(words).items()}
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        raise BadInput("this state's words on how its task began cannot be read") from error


@contextlib.contextmanager
def as_begun(words: str, *holders: Stateful) -> Iterator[None]:
    """Around a call that is repeated in the middle of a task: of the plain values that it assigns, those are kept that
    it had assigned when the task began. The network and the memory that they may be made of have changed since."""
    with contextlib.ExitStack() as traces:
        traced = [traces.enter_context(_traced(of)) for of in holders]
        yield
    values = begun(words)
    for place, (of, (_, bound)) in enumerate(zip(holders, traced)):
        names = {known.rpartition(".")[2] for known in bound}
        vars(of).update({name: value for (at, name), value in values.items() if at == place and name in names})


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
