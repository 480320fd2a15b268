"""What became of each class over the tasks: how much of it is known, what it was lost to, how much of it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from everlearn.collection.history import Confusion, TaskEnd

Shares = dict[tuple[int, int], float]  # by true and predicted class, in % of the true one's test samples


class Lost(NamedTuple):
    """Samples of class `old` taken for `new`, in % of its test samples: when it was learned, and at the end."""

    old: int
    new: int
    then: float
    now: float


@dataclass(frozen=True)
class Classes:
    learned: dict[int, int]  # the task each class was learned in
    accuracy: dict[int, tuple[float, ...]]  # of each class that was tested, after each task, in %
    lost: tuple[Lost, ...]  # confusions that grew since a class was learned, the largest first
    memory: tuple[tuple[int, ...], ...]  # samples of each class after each task; empty where there is no memory

    def loss(self, label: int) -> float:
        """How much less of a class is known at the end than when it was known best, in points."""
        since = self.accuracy[label][self.learned.get(label, 0) :]
        return max(since) - since[-1] if since else 0.0

    def kept_by_task(self) -> dict[int, list[int]]:
        """Samples in the memory, by the task their classes were learned in: after each task."""
        tasks = sorted({*self.learned.values()})
        of = lambda counts, task: sum(n for c, n in enumerate(counts) if self.learned.get(c) == task)
        return {task: [of(counts, task) for counts in self.memory] for task in tasks}


def name(names: Sequence[str], label: int) -> str:
    """What a class is called; its number where no name is on record."""
    return names[label] if label < len(names) else str(label)


def classes(ends: Sequence[TaskEnd]) -> Classes | None:
    """What became of each class, from what was measured after each task; None if the run did not write it down."""
    if not ends or any(end.confusion is None or end.classes is None for end in ends):
        return None
    tables = [shares([end.confusion]) for end in ends]
    learned: dict[int, int] = {}
    for number, end in enumerate(ends):
        for label in end.classes or ():
            learned.setdefault(label, number)
    tested = sorted({true for true, _ in tables[-1]})
    accuracy = {label: tuple(table.get((label, label), 0.0) for table in tables) for label in tested}
    memory = tuple(end.memory for end in ends if end.memory is not None)
    return Classes(learned, accuracy, _lost(tables, learned), memory if len(memory) == len(ends) else ())


def shares(confusions: Sequence[Confusion | None]) -> Shares:
    """Which share of each class is taken for which class, over all of these confusions together."""
    sums: Shares = {}
    totals: dict[int, float] = {}
    for confusion in filter(None, confusions):
        for true, predicted, count in zip(*confusion):
            sums[true, predicted] = sums.get((true, predicted), 0) + count
            totals[true] = totals.get(true, 0) + count
    return {pair: 100 * count / totals[pair[0]] for pair, count in sums.items() if totals[pair[0]]}


def _lost(tables: Sequence[Shares], learned: Mapping[int, int]) -> tuple[Lost, ...]:
    found = [
        Lost(old, new, then, now)
        for (old, new), now in tables[-1].items()
        if old in learned and new != old and now > (then := tables[learned[old]].get((old, new), 0.0))
    ]
    return tuple(sorted(found, key=lambda lost: (lost.then - lost.now, lost.old, lost.new)))
