"""The classes a learner knows: its outputs' numbers, and what people call them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.data.streams import Task
from everlearn.data.tables import missing
from everlearn.errors import BadInput, Notice, number, shown


class Labels:
    """Label n is what output n of the network stands for.

    They are all known from the start, or they come as they come: up to `limit`, if there is one.
    """

    def __init__(self, given: int | Iterable[Hashable] | None):
        self.limit: int | None = None
        self.names: list[Any] = []
        if isinstance(given, Integral):
            number("classes", given, whole=True, positive=True)
            self.limit = int(given)
        elif given is not None:
            if isinstance(given, (str, set, frozenset)) or not isinstance(given, Iterable):
                raise BadInput(f"classes {shown(given)}: give how many there will be, or a list of their labels")
            names = list(map(plain, given))
            if not names or len(set(names)) < len(names):
                raise BadInput("classes is a list of at least one label, each of them once")
            self.names = names
        self.known = bool(self.names)  # they compete with each other from the start

    def __len__(self) -> int:
        return len(self.names)

    @property
    def numbered(self) -> bool:
        """Is label n the number n?"""
        return all(type(name) is int and name == n for n, name in enumerate(self.names))

    def called(self, task: Task, numbers: Any) -> Any:
        """A task's labels as they are called here: by the names of its stream where words are known, or as they are."""
        if not (task.names and self.names and all(isinstance(name, str) for name in self.names)):
            return numbers
        return [task.names[n] if 0 <= n < len(task.names) else n for n in map(int, numbers)]

    def new(self, names: Sequence[Hashable]) -> list[Any]:
        """Those that are not known yet, in the order they will have: sorted, if they can be."""
        known, spelled = set(self.names), {str(name): name for name in self.names}
        new = [name for name in names if name not in known]
        if (twin := next((name for name in new if str(name) in spelled), None)) is not None:
            like = spelled[str(twin)]
            warnings.warn(
                f"the label {twin!r} ({type(twin).__name__}) is another than {like!r} ({type(like).__name__}), so "
                "it is a class of its own; give labels of one kind",
                Notice,
                stacklevel=2,
            )
        if self.limit is not None and len(self) + len(new) > self.limit:
            raise BadInput(
                f"the labels {', '.join(map(repr, new[:5]))} would make {len(self) + len(new)} classes, "
                f"and the learner was told classes={self.limit}; leave that out, and there may be any number"
            )
        try:
            return sorted(new)  # pyright: ignore[reportArgumentType]  # those that cannot be compared stay as they came
        except TypeError:
            return new

    def add(self, names: Iterable[Any]) -> None:
        self.names += names

    def numbers(self, names: Sequence[Hashable]) -> list[int]:
        """The outputs of these labels; −1 of one that is not known."""
        number = {name: n for n, name in enumerate(self.names)}
        return [number.get(name, -1) for name in names]

    def of(self, numbers: Tensor, like: Any) -> Tensor | np.ndarray:
        """The labels of these outputs: a tensor if they are whole numbers and `like` is one, else an array."""
        if isinstance(like, Tensor) and all(type(name) is int for name in self.names):
            table = torch.tensor(self.names, dtype=torch.long, device=numbers.device)
            return numbers if self.numbered else table[numbers]
        return self.array()[numbers.cpu().numpy()]

    def array(self) -> np.ndarray:
        """All labels, by output: of one dtype if they are all words or all numbers."""
        kinds = {type(name) for name in self.names}
        if len(kinds) == 1 and kinds <= {int, float, str, bool}:
            return np.array(self.names)
        found = np.empty(len(self.names), dtype=object)
        found[:] = self.names
        return found

    def allows(self, other: Labels) -> bool:
        """Was another told the same: the same labels from the start, or as many as may come?"""
        if self.known or other.known:
            return self.known == other.known and self.names == other.names[: len(self.names)]  # others may have come
        return self.limit == other.limit

    def shown(self) -> str:
        """What was told of them, in words."""
        if not self.known:
            return "any that come" if self.limit is None else f"up to {self.limit}"
        return ", ".join(map(str, self.names[:5])) + (f" and {len(self) - 5} more" if len(self) > 5 else "")

    def document(self) -> dict[str, Any]:
        """As plain data, to be saved."""
        return {"names": list(map(_written, self.names)), "limit": self.limit, "known": self.known}

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Labels:
        made = cls(document["limit"])
        made.names, made.known = list(map(_read, document["names"])), bool(document["known"])
        return made


def coded(labels: Any) -> tuple[list[Any], Tensor]:
    """The different labels there are, and for each sample which of them it has, [N]."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        labels = (labels.double() if labels.is_floating_point() else labels).numpy()  # which knows no bfloat16
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iubU":
        names, codes = np.unique(labels, return_inverse=True)
        return list(map(plain, names)), torch.from_numpy(codes.astype(np.int64))
    position: dict[Any, int] = {}
    for n, label in enumerate(labels):
        if missing(label):
            raise BadInput(f"sample {n} has no label: it is {shown(label)}")
    codes = [position.setdefault(plain(label), len(position)) for label in labels]
    return list(position), torch.tensor(codes, dtype=torch.long)


def plain(label: Any) -> Any:
    """A label as Python has it: the number in a tensor or in numpy's scalar."""
    if isinstance(label, (Tensor, np.ndarray, np.generic)):
        if label.ndim:
            raise BadInput(f"a label of shape {list(label.shape)}; each sample has one label, a number or a word")
        label = label if isinstance(label, (np.datetime64, np.timedelta64)) else label.item()
    label = _part(label) if isinstance(label, tuple) else label
    if missing(label) or (isinstance(label, float) and math.isinf(label)):
        raise BadInput(f"{shown(label)} is not a label")
    if isinstance(label, float) and not label.is_integer():
        raise BadInput(f"Unknown label type: continuous, such as {shown(label)}; a label names a class")
    _written(label)
    return int(label) if isinstance(label, float) else label


def _part(label: Any) -> Any:
    """A part of a tuple, or a tuple in it."""
    if isinstance(label, tuple):
        return tuple(map(_part, label))
    label = label.item() if isinstance(label, np.generic) else label
    if missing(label):
        raise BadInput(f"a label with {shown(label)} in it is not a label")
    return label


def _written(name: Any) -> Any:
    if isinstance(name, tuple):
        return {"tuple": list(map(_written, name))}
    if not isinstance(name, (str, int, float, bool)):
        raise BadInput(
            f"a label that is {shown(name)} could not be saved; give a word, such as str(label), a number or a tuple"
        )
    if isinstance(name, int) and not -(2**63) <= name < 2**63:
        raise BadInput(f"the label {name} has more than 64 bits; give it as a word")
    return name


def _read(name: Any) -> Any:
    return tuple(map(_read, name["tuple"])) if isinstance(name, dict) else name
