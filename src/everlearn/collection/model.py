"""A collection of runs as plain data: rows by label, in each row a run per seed, and what is no complete run."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from everlearn import metrics, registry
from everlearn.collection import history
from everlearn.collection.history import History, TaskEnd
from everlearn.experiments.published import Figure
from everlearn.metrics import METRICS, Accuracies

SETTINGS = Accuracies._fields  # class_il and task_il
Figures = dict[str, dict[str, float | None]]  # by setting and metric; None where it is not known
# By setting: a row per task learned, a column per task; None where others did not measure it.
Matrices = dict[str, list[list[float | None]]]
HIGHER = {"acc": True, "bwt": True, "forgetting": False, "fwt": True, "seconds": False}  # is more of it better?


class Repeat(NamedTuple):
    """The same experiment run once more: where that is on record, and whether the accuracies are the same."""

    place: str
    same: bool


class Gain(NamedTuple):
    """A mean difference on the same seeds; half of its 95 % interval (None of one seed), on how many it is ahead."""

    mean: float
    half_width: float | None
    ahead: int
    seeds: int


@dataclass(frozen=True)
class Run:
    """One run. Strings are as they were found: whoever shows them makes them safe."""

    name: str
    place: Path  # the folder or file it was read from
    given: str  # the path that was asked for
    seed: int | None
    key: str  # the same for runs that differ in their seeds alone
    recipe: str | None  # like key, but without the precision; None where not all settings are known
    title: str  # what its method and weighting are called together
    settings: dict[str, Any]  # by the names they are set by, without the seed; those that are known
    figures: Figures
    matrices: Matrices  # may be empty
    seconds: float | None
    classes: tuple[str, ...]
    provenance: dict[str, Any]
    sealed: bool  # it has checksums, and is what was written
    label: str | None = None  # of its row, where it came with one
    study: str | None = None
    published: dict[str, dict[str, Figure | None]] | None = None  # published figures, where its document has them
    validation: dict[str, float] = field(default_factory=dict)  # `validated`, if its document has it
    repeats: tuple[Repeat, ...] = ()
    written: dict[str, str] = field(default_factory=dict)  # settings that are hashes of a file, and where that lies
    curves: Path | None = None  # a document with its losses and weights, beside a record without a folder

    @functools.cached_property
    def history(self) -> History:
        """The epochs and tasks that the run wrote down on its way, read when they are first asked for."""
        if self.place.is_dir():
            return history.read(self.place / "metrics.jsonl")
        return History() if self.curves is None else history.read_curves(self.curves)

    @functools.cached_property
    def _outline(self) -> History:
        """The ends of tasks alone, which are read several times faster than the whole history."""
        return history.read(self.place / "metrics.jsonl", epochs=False) if self.place.is_dir() else History()

    @property
    def ends(self) -> tuple[TaskEnd, ...]:
        """What was measured after each task."""
        return self._outline.tasks

    @property
    def validated(self) -> dict[str, float]:
        """The mean weights of validation samples at its end, by term; empty where none are on record."""
        return self.validation or self._outline.validation

    def value(self, metric: str, setting: str = "class_il") -> float | None:
        """The figure of this name, which may be `seconds`; None if it is not known."""
        return self.seconds if metric == "seconds" else self.figures[setting].get(metric)


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seeds alone."""

    label: str
    runs: tuple[Run, ...]  # by seed
    published: dict[str, dict[str, Figure | None]] | None = None
    published_in: str | None = None  # the table's name

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """Those of its runs; where a file of one's own lies as it was, its hash says so."""
        of = self.runs[0].settings
        return of | {key: f"{of[key]}, the file now" for key in self._now}

    @property
    def current(self) -> bool:
        """Was it made from files of one's own, all of which are now what they were?"""
        return bool(self._now) and self._now == self.runs[0].written.keys()

    @functools.cached_property
    def _now(self) -> set[str]:
        """Its settings that are hashes of a file, where the file still has that hash; each is read once."""
        run = self.runs[0]
        same = lambda key, at: (registry.source_now(at) or "")[:8] == run.settings.get(key)
        return {key for key, at in run.written.items() if same(key, at)}

    def spread(self, metric: str = "acc", setting: str = "class_il") -> dict[str, Any] | None:
        """Mean and standard deviation (n − 1; None of one run) over the runs that have it."""
        values = [value for run in self.runs if (value := run.value(metric, setting)) is not None]
        return metrics.spread(values) if values else None

    def gain(self, on: Row, metric: str = "acc", setting: str = "class_il") -> Gain | None:
        """What this row has more than another one on the same seeds; None if they share none."""
        of = lambda row: {run.seed: value for run in row.runs if (value := run.value(metric, setting)) is not None}
        ours, theirs = of(self), of(on)
        differences = [ours[seed] - theirs[seed] for seed in ours if seed is not None and seed in theirs]
        found = metrics.paired(differences)
        if found is None:
            return None
        ahead = found["ahead"] if HIGHER[metric] else sum(value < 0 for value in differences)
        return Gain(found["mean"], found["half_width"], ahead, found["seeds"])

    @property
    def repeated(self) -> tuple[int, int]:
        """How many of its runs were run again, and how many of those came out the same."""
        again = [run.repeats for run in self.runs if run.repeats]
        return len(again), sum(all(repeat.same for repeat in repeats) for repeats in again)


@dataclass(frozen=True)
class Unfinished:
    """A run that is under way or was left: `done` of `epochs` epochs over all its tasks."""

    name: str
    place: Path
    given: str
    title: str
    seed: int | None
    settings: dict[str, Any]
    tasks_done: int
    done: int
    epochs: int | None  # None where it is not known how many there will be
    touched: float  # when it last wrote a line, in seconds since 1970
    resumable: bool  # it has a checkpoint to go on from

    @functools.cached_property
    def history(self) -> History:
        """What the run has written down so far, read when first asked for; the run may be complete by then."""
        complete = self.place.with_name(self.place.name.removesuffix(".part"))
        for file in (self.place / "metrics.jsonl", complete / "metrics.jsonl"):
            if file.exists():
                return history.read(file)
        return History()


class Problem(NamedTuple):
    """What is no run, and why: `failed`, `damaged` or `foreign`."""

    kind: str
    place: Path
    why: str


@dataclass(frozen=True)
class Collection:
    rows: tuple[Row, ...]
    unfinished: tuple[Unfinished, ...] = ()
    problems: tuple[Problem, ...] = ()

    def row(self, label: str) -> Row | None:
        return next((row for row in self.rows if row.label == label), None)

    def differences(self) -> dict[str, dict[str, Any]]:
        """The settings that are not the same in all rows, by name: what each row has; a row may lack it."""
        return differing({row.label: row.settings for row in self.rows})


def differing(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings in which several tables of settings differ, or which only some of them have."""
    keys = dict.fromkeys(key for of in settings.values() for key in of)
    found = {key: {label: of[key] for label, of in settings.items() if key in of} for key in keys}
    told = lambda values: len(values) < len(settings) or len({repr(value) for value in values.values()}) > 1
    return {key: values for key, values in found.items() if told(values)}


def no_figures() -> Figures:
    return {setting: dict.fromkeys(METRICS) for setting in SETTINGS}
