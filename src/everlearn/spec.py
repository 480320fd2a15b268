"""A spec: which method, weighting, stream or network an experiment has, and with which options."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch

from everlearn import registry
from everlearn.arguments import checked
from everlearn.errors import PLAIN, BadInput, parsed, shown, unknown

# Parameters that are given by whoever builds the thing, and are no options of it.
GIVEN = {"method": ("weighting",), "weighting": (), "stream": ("name", "data"), "network": ("shape", "classes")}
KINDS = tuple(GIVEN)  # of things that are named

COPY = "a run's folder has a copy of it, source.zip"
DEEPEST = 20  # lists within lists of an option


@checked
@dataclass(frozen=True)
class Spec:
    """A registered name, `module:attr` or `file.py:attr`, with every option resolved.

    `source` is a hash: of what somebody else wrote, or of the content of one's own data. `at` is where to find it, and
    no part of what it is.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    source: str | None = None
    at: str | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """What a person calls it: of `folder/mine.py:Brier` the last word."""
        return self.name if not registry.refers("", self.name) else self.name.rpartition(":")[2]

    def __getitem__(self, option: str) -> Any:
        return dict(self.options)[option]

    def get(self, option: str, otherwise: Any = None) -> Any:
        return dict(self.options).get(option, otherwise)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "options": dict(self.options)}
        found |= {"source": self.source} if self.source else {}
        return json.loads(json.dumps(found | ({"at": self.at} if self.at else {})))

    @functools.cached_property
    def words(self) -> str:
        """The document as text, without where it lies; the same for the same thing."""
        return json.dumps({key: value for key, value in self.document().items() if key != "at"}, sort_keys=True)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Spec:
        """As it was written down, without a look at whether it is still there."""
        options = tuple(sorted((key, frozen(value)) for key, value in document["options"].items()))
        return cls(document["name"], options, document.get("source"), document.get("at"))


def frozen(value: Any, depth: int = 0) -> Any:
    """Plain data that can be compared and hashed: lists become tuples; what is not plain data is refused."""
    if isinstance(value, (list, tuple)) and depth < DEEPEST:
        return tuple(frozen(one, depth + 1) for one in value)
    if isinstance(value, PLAIN) and not (isinstance(value, float) and math.isnan(value)):
        return value
    raise BadInput(f"{shown(value)} is not a plain value: an option is a number, a word, or a list of these")


class Changed(BadInput):
    """What somebody wrote is no longer what a record was made from."""


class Found(typing.NamedTuple):
    """A name and what it stands for."""

    name: str
    thing: Callable
    source: str | None
    at: str | None
    given: dict[str, Any]  # options that came with it


def look_up(kind: str, given: Any) -> Found:
    """From a name, a class or function, an object made of one, or a table with a name and options."""
    if isinstance(given, Spec):
        at = _place(given)
        thing = registry.find(kind, at or given.name)
        if given.source is not None and registry.source(thing) != given.source:
            raise Changed(
                f"{given.at or given.name}, which this record was made from, has changed since; "
                f"put it back as it was, when the hash of its source was {given.source}; {COPY}"
            )
        return Found(given.name, thing, given.source, at or given.at, unsaid(kind, thing) | dict(given.options))
    if isinstance(given, Mapping):
        if not isinstance(given.get("name"), str):
            raise BadInput(f"this {kind} has no name; write {{ name = …, option = … }}")
        return look_up(kind, given["name"])._replace(given={key: v for key, v in given.items() if key != "name"})
    if isinstance(given, str):
        thing, name, at = registry.find(kind, given), given, given
        home, _, attribute = given.rpartition(":")
        if not registry.refers(kind, given):
            at = None if registry.built_in(thing) else registry.place(kind, thing)[1]
        elif registry.built_in(thing):
            return look_up(kind, thing)  # another name for what is built in
        elif home.endswith(".py"):
            path = Path(home).expanduser().resolve()
            name, at = f"{path.name}:{attribute}", f"{path}:{attribute}"
        return Found(name, thing, registry.source(thing), at, {})
    if not isinstance(given, (type, types.FunctionType)):  # an object: its options are its attributes of the same names
        if kind not in ("method", "weighting"):
            raise BadInput(f"{shown(given)} is not a {kind}; give a name, or a class or function that makes one")
        found = look_up(kind, type(given))
        try:
            read = {name: getattr(given, name) for name in options_of(kind, found.thing)}
        except AttributeError as error:
            own = type(given).__name__
            raise BadInput(
                f"{own} does not keep its option '{error.name}' as an attribute, so its run has no name"
            ) from None
        if other := _changed(kind, given, found.thing(**read)):
            raise BadInput(
                f"this {type(given).__name__} has {other}, which its options do not say; "
                "make it an option, a parameter kept under its name, or give a new object"
            )
        return found._replace(given=read)
    name, at = registry.place(kind, registry.check(kind, given))
    own = registry.built_in(given)
    return Found(name, given, registry.source(given), None if own else at, {})


def _place(spec: Spec) -> str | None:
    """Where what somebody wrote is now: where it was or, if its file is not there, a file like it here."""
    if spec.at is None or spec.source is None:
        return None
    home, _, attribute = spec.at.rpartition(":")
    file = Path(home)
    if file.suffix != ".py" or file.is_file():
        return spec.at
    if registry.source_now(here := f"{Path(file.name).resolve()}:{attribute}") == spec.source:
        return here
    raise BadInput(
        f"there is no file {file}, which this record was made from; "
        f"put it back, or into the working folder, as it was; {COPY}"
    )


def _changed(kind: str, given: object, made: object) -> str | None:
    """What an object holds that one made anew of its options does not: it would be lost where that one is run."""
    held = lambda of: {name: value for name, value in vars(of).items() if name not in GIVEN[kind]}
    one, other = held(given), held(made)
    return next((name for name in one if plainly(one[name]) != plainly(other.get(name))), None)


@functools.lru_cache(maxsize=256)
def options_of(kind: str, thing: Callable) -> dict[str, inspect.Parameter]:
    """What can be set of it: the parameters it is made with, and their types."""
    hints: dict[str, Any] = {}
    for of in (thing, thing.__init__) if isinstance(thing, type) else (thing,):  # a dataclass's are its class's
        with contextlib.suppress(Exception):  # a name that only a type checker can see
            hints |= typing.get_type_hints(of)
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(thing).parameters.items()
        if parameter.kind not in skipped and name not in GIVEN[kind]
    }


def unsaid(kind: str, thing: Callable) -> dict[str, Any]:
    """The options that came after some records (a class's `later`), and what those that lack them were made with."""
    later = getattr(thing, "later", {})
    return {name: later[name] for name in options_of(kind, thing) if name in later} if later else {}


WANTED = {int: "a whole number", float: "a number", bool: "true or false"}


def read_as(key: str, value: Any, kind: Any) -> Any:
    """A setting as its type; a string is what came from the command line."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        first, *others = (one for one in arguments if one is not types.NoneType)
        try:
            return read_as(key, value, first)
        except BadInput as error:
            for other in others:
                with contextlib.suppress(BadInput):
                    return read_as(key, value, other)
            words = [
                word for one in others if typing.get_origin(one) is typing.Literal for word in typing.get_args(one)
            ]
            raise BadInput(" or ".join([str(error), *map(repr, words)])) from None
    if origin is typing.Literal:
        if value not in arguments:
            raise unknown(key, value, map(str, arguments))
        return value
    several = origin is not None and issubclass(origin, Sequence)
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) and several else value
    try:
        if several:
            return tuple(read_as(key, word, arguments[0] if arguments else Any) for word in words)
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[str(value).lower()]
        if isinstance(value, bool) and kind in (int, float, str):
            raise ValueError
        if kind is int:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError
            return int(value)
        if kind is float:
            return float(value)
        if kind is str:
            return str(value)
        return frozen(_literal(value))
    except (ValueError, TypeError, KeyError):
        wanted = (
            "numbers with commas between" if several and arguments[:1] == (float,) else "a list with commas between"
        )
        raise BadInput(f"{key} '{value}' is not {WANTED.get(kind, wanted)}") from None


def _literal(value: Any) -> Any:
    """Without a type to go by: what JSON makes of a word, or the word."""
    try:
        return parsed(value) if isinstance(value, str) else value
    except ValueError:
        return value


def plainly(value: object) -> str:
    """A value in words; what is no plain value by its type alone."""
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(plainly, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{plainly(key)}: {plainly(of)}' for key, of in value.items())}}}"
    if isinstance(value, (torch.Tensor, numpy.ndarray, numpy.generic)):
        return plainly(value.tolist())
    return repr(value) if isinstance(value, PLAIN) else type(value).__name__
