"""What a run wrote down on its way, from its metrics.jsonl: a line per epoch and a line per task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from everlearn.errors import MALFORMED, parsed
from everlearn.experiments import seals
from everlearn.weightings.diagnostics import QUANTILES

ENDS = ('{"event": "task"', '{"event": "review"')  # the beginnings of lines that are written at the end of a task
PHASES = ("preset", "warm-up", "relation")


class Spread(NamedTuple):
    """A weight over the samples of an epoch: the mean, and the quantiles at 25 and 75 %; all three the mean where no
    more is on record."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Epoch:
    task: int  # from 0, as all numbers here
    number: int
    phase: str  # preset, warm-up or relation; empty where no weights are learned
    loss: dict[str, float]
    weights: dict[str, Spread]  # learned and in use; empty where the preset ones are
    proposed: dict[str, Spread]  # what the Relation Replay Net said on its update steps; empty where it had none
    seconds: float | None = None
    norms: dict[str, float] = field(default_factory=dict)  # mean logit norms, where the Relation Replay Net saw any


class Confusion(NamedTuple):
    """How many samples of class `true[i]` were taken for `predicted[i]`; pairs that never occurred are left out."""

    true: tuple[int, ...]
    predicted: tuple[int, ...]
    count: tuple[int, ...]


@dataclass(frozen=True)
class TaskEnd:
    """What was measured after a task, on the test samples of all tasks."""

    task: int
    class_il: tuple[float, ...]
    task_il: tuple[float, ...]
    classes: tuple[int, ...] | None  # those of the task itself; None in runs from before they were written down
    confusion: Confusion | None  # None in runs from before it was written down
    memory: tuple[int, ...] | None  # samples of each class; None where there is no memory, too


@dataclass(frozen=True)
class History:
    tasks: tuple[TaskEnd, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    validation: dict[str, float] = field(default_factory=dict)  # mean weights of validation samples at the end
    damage: str | None = None  # why the history ends early


def read(file: Path, epochs: bool = True) -> History:
    """The history in a metrics.jsonl; without `epochs` what is known at the ends of tasks alone, which is
    several times faster.

    What comes after a damaged line is left out, and the damage is named. A last line without its end is one that is
    just being written.
    """
    try:
        *lines, _ = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        return History(damage=f"{file.name} cannot be read: {error.strerror}")
    except ValueError:
        return History(damage=f"{file.name} is no text")
    ends, passed, validation = [], [], {}
    for number, line in enumerate(lines, 1):
        if not epochs and not line.startswith(ENDS):
            continue
        try:
            record = parsed(line)
            if record["event"] == "task":
                ends.append(task_end(record))
            elif record["event"] == "epoch":
                passed.append(epoch(record))
            elif record["event"] == "review":
                validation = numbers((record.get("validation") or {}).get("weights", {}))
        except MALFORMED:
            return History(tuple(ends), tuple(passed), validation, f"{file.name} is damaged in line {number}")
    return History(tuple(ends), tuple(passed), validation)


def epoch(record: dict) -> Epoch:
    """An epoch's line as data."""
    spreads = lambda key: {str(term): spread(of) for term, of in record.get(key, {}).items()}
    phase = record.get("phase", "")
    if phase not in ("", *PHASES):
        raise ValueError("no such phase")
    weights, proposed, seconds = spreads("weights"), spreads("proposed"), record.get("seconds")
    seconds = None if seconds is None else float(seconds)
    loss, norms = numbers(record["loss"]), numbers(record.get("norms", {}))
    return Epoch(int(record["task"]), int(record["epoch"]), phase, loss, weights, proposed, seconds, norms)


def numbers(record: dict) -> dict[str, float]:
    return {str(name): float(value) for name, value in record.items()}


def spread(record: dict) -> Spread:
    at = lambda quantile: record["quantiles"][QUANTILES.index(quantile)]
    return Spread(float(record["mean"]), float(at(0.25)), float(at(0.75)))


def task_end(record: dict) -> TaskEnd:
    """A task's line as data."""
    class_il, task_il = (tuple(map(float, record[setting])) for setting in ("class_il", "task_il"))
    taken, own, memory = (record.get(key) for key in ("confusion", "classes", "memory"))
    return TaskEnd(
        int(record["task"]),
        class_il,
        task_il,
        None if own is None else counts(own),
        None if taken is None else confusion(taken),
        None if memory is None else counts(memory),
    )


def confusion(record: dict) -> Confusion:
    lists = [counts(record[key]) for key in Confusion._fields]
    if len({*map(len, lists)}) > 1:
        raise ValueError("lists of different lengths")
    return Confusion(*lists)


def counts(values: Iterable) -> tuple[int, ...]:
    """The values as a tuple, if all are whole numbers from 0 up."""
    found = tuple(values)
    if not all(type(value) is int and value >= 0 for value in found):
        raise ValueError("not all of them are counts")
    return found


def curves(document: dict) -> tuple[Epoch, ...]:
    """The epochs of a record's curves: one number an epoch (results/cifar10-epochs)."""
    phases, weights = {phase[0]: phase for phase in PHASES}, document["weights"]
    at = lambda of, i: {str(term): float(values[i]) for term, values in of.items() if values[i] is not None}
    learned = lambda i: {term: Spread(mean, mean, mean) for term, mean in at(weights, i).items()}
    numbers = _within(document["task"])
    return tuple(
        Epoch(int(task), number, phases[phase], at(document["loss"], i), learned(i), {})
        for i, (task, number, phase) in enumerate(zip(document["task"], numbers, document["phase"], strict=True))
    )


def read_curves(file: Path) -> History:
    """The history of a record's curves: its epochs alone."""
    try:
        return History(epochs=curves(seals.opened(seals.read(file)).document))
    except (OSError, *MALFORMED):
        return History(damage=f"{file.name} is missing or damaged")


def _within(tasks: Sequence[int]) -> list[int]:
    """The number of each epoch within its task."""
    return [i - tasks.index(task) for i, task in enumerate(tasks)]
