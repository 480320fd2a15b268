"""What runs wrote down of each class: what it was taken for, what it lost to which, its place in the memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everlearn.collection import Run, TaskEnd
from everlearn.report.classes import Shares, name, shares
from everlearn.report.rounding import rounded

SETS = ("confusion", "classes", "memory")
CELLS = 24_000  # of confusion matrices on one page
COUNTS = 40_000  # of classes in memories
TAKERS = 3  # classes named that took the most from one


def tables(runs: Sequence[Run], rows: int) -> dict[str, list[dict[str, Any]]]:
    """The records of a row's charts of classes; none where no run wrote any down. `rows` share a page."""
    ends = [run.ends for run in runs]
    names = next((run.classes for run in runs if run.classes), ())
    told = [of for of in ends if of and all(end.confusion is not None for end in of)]
    kept = [of for of in ends if of and all(end.memory is not None for end in of)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SETS}
    if told := [of for of in told if len(of) == len(told[0])]:
        steps = [shares([of[i].confusion for of in told]) for i in range(len(told[0]))]
        after = [end.task + 1 for end in told[0]]
        found["confusion"] = [_cells(steps[-1], names, CELLS // rows, len(told))]
        found["classes"] = [_losses(steps, after, names)]
    if kept := [of for of in kept if _shape(of) == _shape(kept[0])]:
        found["memory"] = _memory(kept, names, COUNTS // rows)
    return found


def _shape(ends: Sequence[TaskEnd]) -> tuple[int, int]:
    return len(ends), len(ends[-1].memory or ())


def _cells(taken: Shares, names: Sequence[str], most: int, runs: int) -> dict[str, Any]:
    """A confusion matrix as lists; where there are too many cells the fullest."""
    kept = sorted(sorted(taken, key=lambda pair: -taken[pair])[: max(most, 1)])
    count = 1 + max((max(pair) for pair in taken), default=0)
    return {
        "names": [name(names, label) for label in range(count)],
        "true": [true for true, _ in kept],
        "predicted": [predicted for _, predicted in kept],
        "share": [rounded(taken[pair], 2) for pair in kept],
        "runs": runs,
    }


def _losses(steps: Sequence[Shares], after: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """Each class's accuracy when it was best and at the end, and which classes took what it lost."""
    labels = sorted({true for true, _ in steps[-1]})
    right = lambda step, label: step.get((label, label), 0.0)
    best = [max(range(len(steps)), key=lambda i, c=label: right(steps[i], c)) for label in labels]
    takers = [_takers(steps[at], steps[-1], label, names) for at, label in zip(best, labels)]
    return {
        "name": [name(names, label) for label in labels],
        "best": rounded([right(steps[at], label) for at, label in zip(best, labels)], 2),
        "when": [after[at] for at in best],
        "last": rounded([right(steps[-1], label) for label in labels], 2),
        "to": takers,
    }


def _takers(then: Shares, now: Shares, label: int, names: Sequence[str]) -> list[list[Any]]:
    """The classes that more samples of a class are taken for than when it was best, the greediest first."""
    rises = {other: share - then.get((label, other), 0.0) for (true, other), share in now.items() if true == label}
    most = sorted((other for other, rise in rises.items() if other != label and rise > 0), key=lambda c: -rises[c])
    return [[name(names, other), rounded(rises[other], 2)] for other in most[:TAKERS]]


def _memory(kept: Sequence[Sequence[TaskEnd]], names: Sequence[str], most: int) -> list[dict[str, Any]]:
    """How many samples of each class the memory held after each task, the mean over runs.

    Where that is too much for the page it is the last task alone.
    """
    ends = list(zip(*kept))
    if sum(len(end[0].memory) for end in ends) > most:
        ends = ends[-1:]
    found = []
    for runs in ends:
        mean = [sum(of) / len(runs) for of in zip(*(end.memory for end in runs))]
        held = [label for label, count in enumerate(mean) if count]
        found.append(
            {
                "after": runs[0].task + 1,
                "place": held,
                "name": [name(names, label) for label in held],
                "count": rounded([mean[label] for label in held], 2),
            }
        )
    return found
