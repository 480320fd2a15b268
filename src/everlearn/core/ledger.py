"""Which sample is in which row of the memory, for rules that must know: no copies, balance, and what was forgotten.

It is kept on the CPU and needs labels and contents alone, never losses, so a whole epoch's rows are known beforehand.
"""

from __future__ import annotations

import bisect
import copy
import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.errors import BadInput

KEY = 16  # bytes a sample is known again by
RULES = ("reservoir", "balanced")


def policy(given: Any) -> tuple[str, Any]:
    """A memory's rule and its rows, None if they are left open: of 500, `balanced`, `balanced:500`."""
    if not isinstance(given, str):
        return "reservoir", given
    rule, _, rows = given.strip().rpartition(":")
    if rows in RULES and not rule:
        return rows, None
    try:
        if (rule or "reservoir") in RULES:
            return rule or "reservoir", int(rows)
    except ValueError:
        pass
    raise BadInput(f"memory '{given}' is neither a whole number of rows nor, say, balanced:500")


class Ledger:
    """How many samples were offered to a memory, and which of its rows are taken."""

    def __init__(self, capacity: int, rule: str = "reservoir"):
        self.capacity, self.rule = capacity, rule
        self.presented = 0  # samples that came so far, each once per task
        self.held = 0  # rows taken, the first ones
        self.owed = 0  # random pairing: how many samples to come are passed over, for forgotten ones that had no row
        self.singly = False  # is each sample of the task under way offered once, and none kept twice?
        self.offered: Counter[int] = Counter()  # of each class, where the rule asks
        self.where: Counter[bytes] | None = None  # in how many rows each sample is; None where it has to be looked up
        self.rows: dict[int, list[int]] = {}  # of each class, in order
        self.of: list[tuple[bytes, int]] = []  # the sample and the class in each row

    def copy(self) -> Ledger:
        other = copy.copy(self)
        other.offered, other.of = self.offered.copy(), self.of.copy()
        other.rows = {label: rows.copy() for label, rows in self.rows.items()}
        other.where = None if self.where is None else self.where.copy()
        return other

    def regular(self, samples: int, offered: int = 0, epoch: int = 0, epochs: int = 1) -> bool:
        """May the slot rule, which does not look at the samples, draw the slots of this epoch of a task of so many?

        `offered` counts what tops up the last batch, too: up to a quarter more than there are is taken for fair.
        """
        if epoch:
            return not self.singly
        gaps = self.owed or self.held < min(self.presented * epochs, self.capacity)
        return self.rule == "reservoir" and samples > self.capacity and not gaps and offered <= samples * 5 / 4

    def passed(self, samples: int, epoch: int = 0, epochs: int = 1) -> int:
        """The slot rule draws the slots of an epoch of so many samples; how many samples were offered before it.

        It offers each sample in every epoch. What came before the task counts as often, so that the memory stays a fair
        sample of all.
        """
        self.presented += 0 if epoch else samples
        before = (self.presented - samples) * epochs + epoch * samples
        self.held, self.where, self.singly = min(before + samples, self.capacity), None, False
        return before

    def taught(self, samples: int, epochs: int, of: int) -> None:
        """A task of so many samples has ended after `epochs` of the epochs it was to have. Where the slot rule offered
        each sample in every epoch, a sample has had that part of its chances, and counts as much."""
        if not self.singly:
            self.presented -= samples - round(samples * epochs / of)

    def look_up(self, x: Tensor, y: Tensor) -> None:
        """Take stock of what the memory holds, [held, …]."""
        self.enter(keys(x, y), y.tolist())

    def enter(self, keys: Iterable[bytes], labels: Iterable[int]) -> None:
        """These samples, of these classes, are in its rows, in this order."""
        self.of, self.where, self.rows = [], Counter(), {}
        for row, (key, label) in enumerate(zip(keys, labels)):
            self._enter(row, key, label)

    def place(
        self, rng: np.random.Generator, order: np.ndarray, keys: list[bytes], labels: list[int], epoch: int = 0
    ) -> Placed:
        """Where each sample of each step goes, and how many rows are taken before each step: [S, B] and [S].

        A sample is offered once, in the first epoch of its task; what only tops up the last batch is not. None is kept
        twice: one that is in the memory comes back to its row in epoch e, counted from 0, with the probability
        1 / (e + 1), so that what is kept beside it is of any of its presentations, as in a reservoir of them. Two
        samples of a step that want one row: the last has it, as if they had come one by one. Without the `where` of all
        rows it cannot be asked.
        """
        assert self.where is not None
        steps, batch = order.shape
        slots, filled = np.full(order.shape, self.capacity), np.zeros(steps, dtype=int)
        lots, count, self.singly = rng.random((steps, batch, 2)).tolist(), len(keys), True
        rows = {key: row for row, (key, _) in enumerate(self.of)}
        for step, samples in enumerate(order.tolist()):
            filled[step] = self.held
            taken: dict[int, int] = {}
            for n, sample in enumerate(samples[: max(0, count - step * batch)]):
                key, label, row = keys[sample], labels[sample], None
                self.presented += not epoch
                self.offered[label] += not epoch
                if key in self.where:
                    again = lots[step][n][0] * (epoch + 1) < 1 and self.of[rows[key]][0] == key  # of copies, one may go
                    row = rows[key] if again else None
                elif not epoch and (row := self._row(label, *lots[step][n])) is not None:
                    self._enter(row, key, label)
                    rows[key] = row
                if row is None:
                    continue
                if row in taken:
                    slots[step, taken[row]] = self.capacity
                taken[row] = n
                slots[step, n] = row
        return slots, filled

    def offer(self, rng: np.random.Generator, order: np.ndarray, keys: list[bytes]) -> Placed:
        """The same for a rule that looks at the samples, as `plan.chances` has it: [S, B, 3] and [S].

        A sample that is in the memory as the epoch begins, or was offered in it before, is offered no row.
        """
        assert self.where is not None
        steps, batch = order.shape
        slots, filled = np.empty((steps, batch, 3)), np.zeros(steps, dtype=int)
        slots[:, :, 0], slots[:, :, 1:] = self.capacity, rng.random((steps, batch, 2))
        known, self.singly = set(self.where), True
        for step, samples in enumerate(order.tolist()):
            filled[step] = self.held
            for n, sample in enumerate(samples):
                if keys[sample] in known:
                    slots[step, n, 2] = 1  # a lot that never wins
                    continue
                known.add(keys[sample])
                if self.held < self.capacity:
                    slots[step, n, 0], self.held = self.held, self.held + 1
        self.presented = self.held if self.held < self.capacity else self.presented + order.size
        self.where = None
        return slots, filled

    def _row(self, label: int, lot: float, other: float) -> int | None:
        """The row of a sample that comes now, or None; two uniform numbers decide."""
        free = self.capacity - self.held
        if self.owed and lot * (free + self.owed) >= free:  # random pairing (Gemulla et al., 2006)
            self.owed -= 1
            return None
        if free:
            self.held += 1
            return self.held - 1
        if self.rule == "reservoir":  # Vitter's algorithm R
            row = int(lot * self.presented)
            return row if row < self.capacity else None
        # Room for a class that has fewer rows than others, from one that has most; else a reservoir within the class.
        own, most = self.rows.get(label, []), max(map(len, self.rows.values()))
        if not own and most == 1:  # more classes than rows: which of them have one is a reservoir of classes
            row = int(lot * sum(count > 0 for count in self.offered.values())) if self.offered[label] == 1 else None
            return row if row is not None and row < self.capacity else None
        if len(own) < most - 1:
            largest = sorted(c for c, rows in self.rows.items() if len(rows) == most)
            return self.rows[largest[int(lot * len(largest))]][int(other * most)]
        return own[int(other * len(own))] if lot * self.offered[label] < len(own) else None

    def _enter(self, row: int, key: bytes, label: int) -> None:
        if row < len(self.of):
            before, of = self.of[row]
            self.where[before] -= 1
            if not self.where[before]:
                del self.where[before]
            self.rows[of].remove(row)
            if not self.rows[of]:
                del self.rows[of]
            self.of[row] = key, label
        else:
            self.of.append((key, label))
        self.where[key] += 1
        bisect.insort(self.rows.setdefault(label, []), row)

    def forget(self, dropped: list[int], own: bool = False) -> None:
        """Samples of these classes were taken out of the memory, a row each; the others have closed up.

        A reservoir stays a fair sample of the rest: the samples they stood for are no longer counted, and of those that
        come, as many as were forgotten take their place before it goes on. (How many they stood for is not on record,
        but in proportion to the rows.) With slots of a method's `own` the next samples take the rows.
        """
        if not dropped:
            return
        if own:
            self.presented = self.held = self.held - len(dropped)
            self.where = None
            return
        share = (self.presented / self.held) if self.held == self.capacity or self.owed else 1.0
        gone = max(len(dropped), round(len(dropped) * share))
        rows = Counter(label for _, label in self.of) if self.of else Counter()
        for label, count in Counter(dropped).items():
            if held := rows[label]:
                self.offered[label] = round(self.offered[label] * (held - count) / held)
        self.presented -= gone
        self.owed += gone - len(dropped) if self.rule == "reservoir" else 0
        self.held -= len(dropped)
        self.where = None

    def state(self) -> Tensor:
        """As whole numbers: rows taken, owed, whether samples are offered once, and what was offered of each class."""
        offered = [self.offered[c] for c in range(max(self.offered, default=-1) + 1)]
        return torch.tensor([self.held, self.owed, self.singly, *offered])

    def restore(self, presented: int, state: Tensor | None) -> None:
        """As a state says; one without it is from before there was any."""
        self.presented, self.where = presented, None
        held, owed, singly, *offered = [min(presented, self.capacity), 0, 0] if state is None else state.tolist()
        self.held, self.owed, self.singly, self.offered = held, owed, bool(singly), Counter(dict(enumerate(offered)))


Placed = tuple[np.ndarray, np.ndarray]


def keys(x: Tensor, y: Tensor) -> list[bytes]:
    """What each sample is known again by: its content and its label."""
    content = x.detach().cpu()[:, None].flatten(1).contiguous().view(torch.uint8).numpy()
    return [
        hashlib.blake2b(row.tobytes() + label.to_bytes(8), digest_size=KEY).digest()
        for row, label in zip(content, y.tolist())
    ]


def firsts(x: Tensor, y: Tensor, besides: Iterable[bytes] = ()) -> Tensor:
    """Which samples are copies neither of one before them nor of one of these, [N]."""
    known = set(besides)
    fresh = [not (key in known or known.add(key)) for key in keys(x, y)]
    return torch.tensor(fresh, dtype=torch.bool, device=x.device)
