"""What the public calls takes what its type hints say: they are read here, and anything else is refused in a sentence.

Values are the business of whoever takes them; a type never is. Numbers of numpy are numbers, a list is as good as a
tuple, and a tensor has to hold its numbers: one that is sparse, nested, or without data (on `meta`) is refused.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import os
import sys
import threading
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from everlearn.errors import BadInput, plural, shown

Thing = TypeVar("Thing")
ELEMENTS = 10_000  # of a list are looked at; one of more has been made by a program
Accepts = Callable[[Any], bool]


class Trust(threading.local):
    """Are arguments taken as they are, in this thread? The steps of an epoch after its first are given the same kinds
    of things as that was; and whoever tests a part alone puts stand-ins where an object of ours is due."""

    now = False


trust = Trust()


@contextlib.contextmanager
def trusted(now: bool = True) -> Iterator[None]:
    """Inside, arguments are taken as they are, if `now` says so."""
    before, trust.now = trust.now, now or trust.now
    try:
        yield
    finally:
        trust.now = before


class Kind(NamedTuple):
    """A type in words, and whether a value is of it."""

    words: str
    accepts: Accepts


def checked(thing: Thing) -> Thing:
    """A function, or a class with its public methods, whose arguments are checked."""
    if inspect.isfunction(thing):
        return typing.cast(Thing, _checking(thing, thing.__module__))
    for name, own in list(vars(thing).items()):
        if name.startswith("_") and name not in ("__init__", "__call__", "__new__"):
            continue
        if inspect.isfunction(own):
            setattr(thing, name, _checking(own, own.__module__))
        elif isinstance(own, classmethod):
            setattr(thing, name, classmethod(_checking(own.__func__, own.__module__)))
        elif name == "__new__":  # a named tuple's
            setattr(thing, name, staticmethod(_checking(own.__func__, thing.__module__)))
    return thing


class Checked:
    """Its subclasses', and their subclasses', arguments are checked."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        checked(cls)


def _checking(function: Callable, module: str) -> Callable:
    if hasattr(function, "__checked__"):
        return function
    parameters = inspect.signature(function).parameters.values()
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    others = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    defaults = {p.name: p.default for p in parameters}
    kinds: dict[str, Kind] | None = None

    @functools.wraps(function)
    def checking(*args: Any, **kwargs: Any) -> Any:
        nonlocal kinds
        if kinds is None:
            kinds = kinds_of(function, module)
        if kinds and not trust.now:
            for n, value in enumerate(args):
                check(positional[n] if n < len(positional) else rest, value)
            for name, value in kwargs.items():
                check(name if name in defaults else others, value, name)
        return function(*args, **kwargs)

    def check(name: str | None, value: Any, given: str | None = None) -> None:
        kind = kinds.get(name) if name else None
        if kind is not None and value is not defaults.get(name or "") and not kind.accepts(value):
            raise BadInput(f"{given or name} must be {kind.words}, not {shown(value)}")

    vars(checking)["__checked__"] = True
    return checking


def kinds_of(function: Callable, module: str) -> dict[str, Kind]:
    """The types of a function's parameters, those left out that say nothing or that nobody can tell."""
    names = vars(sys.modules[module]) | _unseen(module) if module in sys.modules else {}
    kinds = {}
    for name, hint in function.__annotations__.items():
        one = types.SimpleNamespace(__annotations__={name: hint})
        try:
            hint = typing.get_type_hints(one, names, include_extras=True)[name]
        except Exception:  # of somebody else's names, some are there for a type checker alone
            continue
        if name != "return" and (kind := kind_of(hint)) is not None:
            kinds[name] = kind
    return kinds


@functools.cache
def _unseen(module: str) -> dict[str, Any]:
    """What a module of ours imports for type checkers alone, as they see it."""
    found: dict[str, Any] = {}
    if not module.startswith("everlearn."):
        return found
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for imports in (one for one in node.body if isinstance(one, ast.ImportFrom)):
                home = importlib.import_module(imports.module or "")
                found |= {alias.asname or alias.name: getattr(home, alias.name) for alias in imports.names}
    return found


def kind_of(hint: Any) -> Kind | None:
    """What a type hint accepts; None: anything."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object) or isinstance(hint, TypeVar):
        return None
    if hint in (None, types.NoneType):
        return Kind("None", lambda value: value is None)
    if origin is typing.Annotated:
        return next((more for more in inner[1:] if isinstance(more, Kind)), kind_of(inner[0]))
    if origin is Callable and isinstance(inner[0], list):
        return Kind(
            f"a function of {plural(len(inner[0]), 'argument')}",
            lambda value: callable(value) and takes(value, *inner[0]),
        )
    if origin in (typing.Union, types.UnionType):
        kinds = [kind_of(one) for one in inner]
        if None in kinds:
            return None
        words = list(dict.fromkeys(kind.words for kind in kinds))
        return Kind(" or ".join(words), lambda value: any(kind.accepts(value) for kind in kinds))
    if origin is typing.Literal:
        return Kind(" or ".join(map(repr, inner)), lambda value: isinstance(value, str) and value in inner)
    if origin is tuple and len(inner) > 1 and ... not in inner:
        return _tuple([kind_of(one) for one in inner])
    return _of_class(origin or hint, [kind_of(one) for one in inner if one is not ...])


def _of_class(kind: Any, inner: list[Kind | None]) -> Kind | None:
    if kind is Callable:
        return Kind("a function", callable)
    if not isinstance(kind, type):
        return None
    if kind in SIMPLE:
        return SIMPLE[kind]
    if (kind.__module__, kind.__name__) == ("torch", "Tensor"):
        return Kind("a dense tensor", lambda value: isinstance(value, kind) and is_dense(value))
    if issubclass(kind, Mapping):
        return Kind("a mapping", lambda value: isinstance(value, Mapping) and _each(value.items(), inner))
    if issubclass(kind, Sequence) and not hasattr(kind, "_fields"):
        words = f"a list (each {inner[0].words})" if len(inner) == 1 and inner[0] else "a list"
        return Kind(
            words, lambda value: _listed(value) and (not inner or _each(((one,) for one in _plain(value)), inner))
        )
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    return Kind(f"{article} {kind.__name__}", lambda value: isinstance(value, kind))


def _tuple(inner: list[Kind | None]) -> Kind:
    """A tuple of a fixed length."""
    accepts = lambda value: _listed(value) and len(value) == len(inner) and _each([value], inner)
    return Kind(f"a tuple ({', '.join(kind.words if kind else 'anything' for kind in inner)})", accepts)


def takes(function: Callable, *args: Any, **named: Any) -> bool:
    """Can it be called with these arguments? Of some of C's nobody can tell."""
    try:
        inspect.signature(function).bind(*args, **named)
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def is_device(value: Any) -> bool:
    """Does torch know it, if it is not `auto`?"""
    import torch

    try:
        return isinstance(value, (str, torch.device)) and (value == "auto" or bool(torch.device(value)))
    except (RuntimeError, ValueError):
        return False


def is_dense(tensor: Any) -> bool:
    """Does a tensor hold its numbers one by one?"""
    return not (tensor.is_nested or tensor.is_meta or tensor.is_quantized) and str(tensor.layout) == "torch.strided"


def _several(value: Any) -> bool:
    """Something to go through; not a word, and no tensor that cannot be gone through."""
    whole = not hasattr(value, "is_nested") or is_dense(value)
    flat = isinstance(value, (str, bytes)) or getattr(value, "ndim", 1) == 0
    return isinstance(value, Iterable) and whole and not flat


def _listed(value: Any) -> bool:
    """A list, a tuple, a range, an array: something with a length and an order."""
    return _several(value) and (isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0)


def _plain(value: Any) -> Any:
    """An array as the numbers it holds."""
    return value.tolist() if hasattr(value, "tolist") else value


def _each(rows: Iterable[Iterable[Any]], kinds: list[Kind | None]) -> bool:
    firsts = (row for row, _ in zip(rows, range(ELEMENTS)))
    return all(kind is None or kind.accepts(value) for row in firsts for value, kind in zip(row, kinds))


def _written(value: str | os.PathLike) -> bool:
    """Can a file have this name?"""
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _path(value: Any) -> bool:
    return isinstance(value, os.PathLike) and _written(value)


DEVICE = Kind("a device, such as cpu", is_device)  # for typing.Annotated
SIMPLE: dict[Any, Kind] = {
    bool: Kind("true or false", lambda value: type(value).__name__ in ("bool", "bool_")),
    int: Kind("a whole number", lambda value: isinstance(value, Integral)),
    float: Kind("a number", lambda value: isinstance(value, Real)),
    str: Kind("a word", lambda value: isinstance(value, str) and _written(value)),
    Hashable: Kind("a number or a word", lambda value: isinstance(value, Hashable)),
    Iterable: Kind("a list", _several),
    os.PathLike: Kind("a path", _path),
    Path: Kind("a path", _path),
}
