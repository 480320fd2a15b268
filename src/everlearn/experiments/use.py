"""What a learner is used for: asked about files, taught with data, made to forget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from everlearn.data import arrays, photos
from everlearn.data.formats import Damaged
from everlearn.data.samples import stored, tensor
from everlearn.errors import BadInput, number, unknown
from everlearn.learner import Learner

TOGETHER = 256  # pictures that are read and asked about at a time


# --- asked about files ---


class Guess(NamedTuple):
    """What a learner takes a sample for: its classes from the most likely down, each with its probability."""

    file: Path
    row: int | None  # in a file of many samples
    ranked: list[tuple[Any, float]]

    @property
    def name(self) -> str:
        return str(self.file) if self.row is None else f"{self.file}[{self.row}]"


class Answers(NamedTuple):
    guesses: list[Guess]
    skipped: list[tuple[Path, str]]  # files that cannot be read, and why
    files: int


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files that are named, and the pictures in the folders that are."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise BadInput(f"there is no file or folder {path}")
        inside = sorted(photos.pictures_under(path)) if path.is_dir() else [path]
        if not inside:
            raise BadInput(f"{path} holds no pictures ({' '.join(photos.SUFFIXES)})")
        found += inside
    return found


def ask(learner: Learner, paths: Sequence[Path], top: int = 1, strict: bool = False) -> Answers:
    """The most likely classes of every sample in these files, `top` of them."""
    files, guesses, skipped = files_of(paths), [], []
    for part in _parts(files):
        if part[0].suffix.lower() in arrays.SUFFIXES:
            x = tensor(arrays.alone(part[0], tuple(learner.memory.x.shape[1:])))
            guesses += _guesses(learner, x, [(part[0], row) for row in range(len(x))], top)
            continue
        read, rows = [], []
        for file in part:
            try:
                rows.append(_picture(learner, file))
                read.append((file, None))
            except Damaged as error:
                if strict:
                    raise BadInput(f"{error}; without --strict it is skipped") from None
                skipped.append((file, str(error)))
        if read:
            guesses += _guesses(learner, stored(np.stack(rows), learner._like), read, top)
    return Answers(guesses, skipped, len(files))


def _parts(files: Sequence[Path]) -> Iterator[list[Path]]:
    """The files in their order: those of arrays one by one, pictures some at a time."""
    part: list[Path] = []
    for file in files:
        alone = file.suffix.lower() in arrays.SUFFIXES
        if part and (alone or len(part) == TOGETHER):
            yield part
            part = []
        if alone:
            yield [file]
        else:
            part.append(file)
    if part:
        yield part


def _picture(learner: Learner, file: Path) -> np.ndarray:
    channels, size = learner._like.pictured()
    return photos.photo(file, size, channels)


def _guesses(learner: Learner, x: Tensor, places: Sequence[tuple[Path, int | None]], top: int) -> list[Guess]:
    chances, classes = learner.predict_proba(x).cpu().sort(dim=1, descending=True)
    names = learner.labels.names
    best = zip(places, chances[:, :top].tolist(), classes[:, :top].tolist())
    return [Guess(*place, [(names[c], chance) for c, chance in zip(of, likely)]) for place, likely, of in best]


# --- taught with data ---


class Known(NamedTuple):
    """What a learner knows of a class: how many samples of the data it has, which share of them it gets right; how many
    the memory holds, and which share of those it gets right. A share of none is None."""

    name: Any
    new: bool
    samples: int
    right: float | None
    kept: int
    kept_right: float | None


class Others(NamedTuple):
    """What the memory held of classes that are not among the data: how many, and which share was and is right."""

    samples: int
    before: float
    after: float


class Lesson(NamedTuple):
    classes: list[Known]
    right: float  # of all samples of the data
    epochs: int
    held_out: int  # samples that were tested on and not learned from
    validation: float | None  # share of them that is right after the last epoch
    others: Others | None


def teach(
    learner: Learner, data: Path, epochs: int | None = None, validation: float | None = None, quiet: bool = False
) -> Lesson:
    """Teach a learner these data, and tell what it then knows of every class."""
    method = type(learner.method).__name__
    if learner.method.merges:
        raise BadInput(f"this learner's method, {method}, learns all tasks at once, and cannot go on; run er, say")
    usual = learner.epochs
    if epochs is not None:
        number("epochs", epochs, whole=True, positive=True)
        learner.epochs = epochs  # of this lesson
    x, y = learner._read(str(data))
    x, before, seen = learner._stored(x), set(learner.labels.names), []
    others = _others(learner, learner.labels.numbers(y))
    were = _share(learner, *others) if others else 0.0
    learner.update(x, y, validation=validation, progress=False if quiet else None, report=seen.append)
    learner.epochs = usual
    last = seen[-1] if seen else {}
    classes = _known(learner, x, learner.labels.numbers(y), before)
    right = sum(of.right * of.samples for of in classes if of.samples) / len(y)
    compared = Others(len(others[1]), were, _share(learner, *others)) if others else None
    return Lesson(classes, right, len(seen), last.get("held_out", 0), last.get("validation"), compared)


def _others(learner: Learner, taught: Sequence[int]) -> tuple[Tensor, Tensor] | None:
    """What the memory holds of classes that are not among these, if there is any."""
    if learner.memory is None:
        return None
    x, y = learner.memory.held()
    rows = ~torch.isin(y, torch.tensor(sorted(set(taught)), device=y.device))
    return (x[rows], y[rows]) if rows.any() else None


def _share(learner: Learner, x: Tensor, y: Tensor) -> float:
    return float((learner._scores(x).argmax(dim=1).to(y.device) == y).double().mean())


def _known(learner: Learner, x: Tensor, y: Sequence[int], before: set[Any]) -> list[Known]:
    taught, kept = _tally(learner, x, torch.tensor(y)), _tally(learner, *learner.memory.held())
    none = (0, None)
    names = enumerate(learner.labels.names)
    return [Known(name, name not in before, *taught.get(c, none), *kept.get(c, none)) for c, name in names]


def _tally(learner: Learner, x: Tensor, y: Tensor) -> dict[int, tuple[int, float]]:
    """By class: how many samples there are, and which share of them is classified rightly."""
    if not len(x):
        return {}
    right = learner._scores(x).argmax(dim=1).cpu() == y.cpu()
    of = {int(c): right[y.cpu() == c] for c in y.unique()}
    return {c: (len(rows), float(rows.double().mean())) for c, rows in of.items()}


# --- made to forget ---


def forget(learner: Learner, names: Sequence[str]) -> dict[Any, int]:
    """Take all samples of these classes out of the memory; returns how many there were, by class."""
    known = {str(name): name for name in learner.labels.names}
    for name in names:
        if name not in known:
            raise unknown("class", name, known)
    chosen = list(dict.fromkeys(known[name] for name in names))
    gone = learner.forget(lambda _, label: label in chosen)
    return {name: gone.get(name, 0) for name in chosen}
