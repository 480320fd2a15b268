"""What a run learned and forgot: accuracy of each class over the tasks, what it was lost to, what the memory holds; of
a relational one also the weights over training, how the Relation Replay Net answers, and which classes disturb which.

`read` turns a run's folder into plain data. `terminal.show` prints them, `page.page` writes them as one HTML page.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from everlearn.collection import history
from everlearn.collection.history import Epoch, Spread
from everlearn.errors import BadInput, printable
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.results import read_lines, read_result
from everlearn.report.classes import Classes, classes, name
from everlearn.report.surface import FILE, WRONG, Surface, surface

OLDER = (
    "This run is from before it was written down which class is taken for which; "
    "run again with --fresh, it shows what was forgotten to what."
)


class Stretch(NamedTuple):
    """Epochs `start` to `stop`, counted over the run, in one phase of a task; `opens` the task or not."""

    phase: str
    start: int
    stop: int
    opens: bool


class Line(NamedTuple):
    """One term's weight over consecutive epochs from `start`; `kind` is preset, proposed or learned."""

    term: str
    kind: str
    start: int
    values: tuple[Spread, ...]


@dataclass(frozen=True)
class Similarity:
    """Mean inner products of gradients: a row per class in the memory, a column per new class. Below 0: harm."""

    classes: tuple[int, ...]
    new: tuple[int, ...]
    G: tuple[tuple[float, ...], ...]

    def harms(self) -> list[tuple[float, int, int]]:
        """(G, old class, new class) wherever learning the new one harms the old one, worst first."""
        rows = ((old, row) for old, row in zip(self.classes, self.G) if old not in self.new)
        return sorted((g, old, new) for old, row in rows for new, g in zip(self.new, row) if g < 0)

    @functools.cached_property
    def scale(self) -> float:
        """The strongest similarity between an old and a new class, to measure the others by."""
        of = lambda keep: [abs(g) for c, row in zip(self.classes, self.G) if keep(c) for g in row if math.isfinite(g)]
        return max(of(lambda c: c not in self.new) or of(lambda c: True), default=0.0) or 1.0


@dataclass(frozen=True)
class Task:
    """What is known at the end of a task."""

    number: int
    by_class: dict[int, dict[str, Spread]]  # weights of the last epoch, by label and term
    proposed: bool  # they were proposed, not in use
    validation: dict[str, float]  # average weights on validation samples; empty where the net had learned nothing yet
    old: str  # where the old ones of these samples came from: validation or memory
    similarity: Similarity | None


@dataclass(frozen=True)
class Explanation:
    run: str
    method: str
    stream: str
    settings: dict[str, int]  # memory, epochs and seed
    accuracy: float  # ACC of Class-IL, in %
    matrix: tuple[tuple[float, ...], ...]  # Class-IL accuracy: a row per task learned, a column per task
    classes: tuple[str, ...]  # names by label
    remembered: Classes | None  # None where the run is from before it was written down
    notes: tuple[str, ...] = ()  # what there is not to see, and why
    # Of a relational run:
    terms: tuple[str, ...] = ()  # new samples' first
    preset: tuple[float, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    tasks: tuple[Task, ...] = ()
    surface: Surface | None = None

    @property
    def relational(self) -> bool:
        return bool(self.tasks)

    def name(self, label: int) -> str:
        return name(self.classes, label)

    def colour(self, term: str) -> int:
        """0 for new samples, 1 for the memory, then the terms between them: the same in every figure."""
        at = self.terms.index(term)
        return 0 if at == 0 else 1 if at == len(self.terms) - 1 else 1 + at

    @functools.cached_property
    def stretches(self) -> list[Stretch]:
        found, start, task = [], 0, None
        for (of, phase), group in itertools.groupby(self.epochs, key=lambda epoch: (epoch.task, epoch.phase)):
            stop = start + len(list(group))
            found.append(Stretch(phase, start, stop, of != task))
            start, task = stop, of
        return found

    @functools.cached_property
    def ceiling(self) -> float:
        """The upper end of the axis of weights: at least 1, and no weight drawn is above it."""
        return max(1.0, *(max(value.mean, value.high) for line in self.lines for value in line.values))

    @functools.cached_property
    def lines(self) -> list[Line]:
        found = []
        for (phase, start, stop, _), (term, preset) in itertools.product(self.stretches, zip(self.terms, self.preset)):
            of = self.epochs[start:stop]
            if phase == "relation":
                found.append(Line(term, "learned", start, tuple(epoch.weights[term] for epoch in of)))
            else:
                found.append(Line(term, "preset", start, (Spread(preset, preset, preset),) * len(of)))
            if phase == "warm-up":
                found.append(Line(term, "proposed", start, tuple(epoch.proposed[term] for epoch in of)))
        return found


def read(folder: Path, edited: bool = False) -> Explanation:
    """A run's folder as plain data, or a sentence on what is wrong with it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a run's folder: no folder is there")
    result = read_result(folder, edited)
    with _blaming(folder / "result.json"):
        experiment, measured = Experiment.parse(result["experiment"]), result["class_il"]
        method, stream = printable(experiment.label), printable(experiment.stream.name)
        numbers = {"memory": experiment.memory, "epochs": experiment.training.epochs, "seed": experiment.seed}
        matrix = tuple(tuple(map(float, row)) for row in measured["matrix"])
        tasks, accuracy = len(matrix), float(measured["acc"])
        _finite((matrix, accuracy))
        names = tuple(map(printable, result.get("classes", ())))
        preset = tuple(map(float, experiment.weighting.get("weights", ())))
        learned = experiment.weighting.get("learned", ())
    with _blaming(folder / "metrics.jsonl"):
        records = read_lines(folder)
        _finite(records)
        epochs = [record for record in records if record["event"] == "epoch"]
        reviews = {record["task"]: record for record in records if record["event"] == "review"}
        if len(epochs) != tasks * numbers["epochs"]:
            raise ValueError("records are missing")
        remembered = classes([history.task_end(record) for record in records if record["event"] == "task"])
        found = Explanation(
            printable(folder.resolve().name), method, stream, numbers, accuracy, matrix, names, remembered
        )
        if any("phase" in epoch for epoch in epochs):
            found = _related(found, folder, epochs, reviews, preset, learned)
    older = () if remembered else (OLDER,)
    return replace(found, notes=(*found.notes, *older))


def _related(
    e: Explanation, folder: Path, epochs: list[dict], reviews: dict[int, dict], preset: tuple, learned: Sequence[str]
) -> Explanation:
    """An explanation with what there is to say of a relational run added."""
    terms, known, tasks = tuple(epochs[0]["loss"]), tuple(map(history.epoch, epochs)), len(e.matrix)
    of_task = lambda number: [epoch for epoch in epochs if epoch["task"] == number]
    ends = tuple(_task(number, of_task(number), reviews.get(number, {})) for number in range(tasks))
    with _blaming(folder / FILE):
        shape = surface(folder, known, learned)
    notes, preset = tuple(_notes(known, tasks, shape)), preset or (1.0,) * len(terms)
    found = replace(e, terms=terms, preset=preset, epochs=known, tasks=ends, surface=shape, notes=notes)
    _ = found.lines  # computed now, so that a missing weight is noticed here
    return found


@contextlib.contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Inside, an error of malformed data becomes a sentence that names this file as damaged."""
    try:
        yield
    except BadInput:
        raise
    except WRONG:
        raise BadInput(f"{file} is missing or damaged; run the experiment again with --fresh") from None


def _finite(document: Any) -> None:
    """Refuse a document with an infinite number or NaN in it: they cannot be drawn."""
    if isinstance(document, (dict, list, tuple)):
        for part in document.values() if isinstance(document, dict) else document:
            _finite(part)
    elif isinstance(document, float) and not math.isfinite(document):
        raise ValueError("not a number")


def _task(number: int, epochs: list[dict], review: dict) -> Task:
    last = epochs[-1]
    weights = last.get("weights") or last.get("proposed") or {}
    by_class: dict[int, dict[str, Spread]] = {}
    for term, of in weights.items():
        for label, record in of["classes"].items():
            by_class.setdefault(int(label), {})[term] = history.spread(record)
    validation, found = review.get("validation") or {}, review.get("similarity")
    similarity = found and Similarity(
        tuple(found["classes"]), tuple(found["new"]), tuple(tuple(map(float, row)) for row in found["G"])
    )
    return Task(
        number,
        {label: by_class[label] for label in sorted(by_class) if label >= 0},
        "weights" not in last,
        validation.get("weights", {}),
        validation.get("old", ""),
        similarity,
    )


def _notes(epochs: Sequence[Epoch], tasks: int, surface: Surface | None) -> Iterator[str]:
    phases = {epoch.phase for epoch in epochs}
    if phases == {"preset"}:
        alone = "the run has one task only, and so no old one to relate to"
        why = alone if tasks == 1 else "no task was late enough for it (relation_from_task)"
        yield (
            f"The relation was never active: {why}. The preset weights were in use throughout, "
            "and the Relation Replay Net learned nothing."
        )
    elif "relation" not in phases:
        yield (
            "The warm-up lasted for all epochs of every task: the preset weights were in use throughout, "
            "and the learned ones are proposals."
        )
    elif tasks == 1:
        yield "The run has one task only: there are no old classes to disturb."
    if surface is None and phases != {"preset"}:
        yield (
            "No logit norms were written down for this weighting, "
            "so there is nothing to hold on to for a response surface."
        )
