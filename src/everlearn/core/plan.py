"""The randomness of an epoch as data: a pure function of (seed, task, epoch), of counters and, if balanced, of labels.

Order, crops, flips, memory draws and reservoir slots never depend on pixels or losses, so they are drawn for a whole
epoch at once, on the CPU whatever the device: the same seed is the same run everywhere.

Shapes: S steps per epoch, B rows per batch, M rows of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from everlearn.arguments import checked
from everlearn.core import ranks
from everlearn.errors import BadInput

Views = tuple[Callable[[Tensor], Tensor] | None, ...]  # a view is augmented as usual, then transformed if it says how
ONE_VIEW: Views = (None,)
MANY = 8192  # rows of a draw; a larger one is cut from an order of all numbers


@checked
class Draw(NamedTuple):
    """A memory batch: its pool, its size (None: as many rows as new samples) and its views.

    The pool is `all` rows, `balanced` over the classes in them, or one part of a memory split four to one: `inner` or
    `outer`. In each epoch another fifth is `held` out of the `others`.
    """

    pool: str = "all"
    size: int | None = None
    views: Views = ONE_VIEW

    def rows(self, batch: int) -> int:
        """Samples drawn beside a batch of new ones, here or on this rank."""
        return batch if self.size is None else self.size // ranks.world_size()


def draws_of(given: int | Sequence[Draw]) -> tuple[Draw, ...]:
    """Memory batches, or so many usual ones."""
    return (Draw(),) * given if isinstance(given, int) else tuple(given)


def paired(values: Tensor, rows: int) -> Tensor:
    """Values of a batch of another size as one value per row, with the same mean: averaged or repeated."""
    count = values.shape[0]
    if count == rows:
        return values
    if count % rows and rows % count:
        raise BadInput(f"a term of {count} rows and new batches of {rows}; one must be a multiple of the other")
    # Partners lie side by side, so that each rank has its own.
    return values.view(rows, -1).mean(dim=1) if count > rows else values.repeat_interleave(rows // count)


class Row(NamedTuple):
    """One step of a plan. `views` are (down, right, flip) of each sample: new ones first, then by draw and view."""

    order: Tensor  # [B] rows of the training set
    draws: Tensor | None  # [all draws' rows] rows of the memory
    slots: Tensor | None  # [B, …] what the method's slot rule drew: for a reservoir, the rows of the memory to write
    views: Tensor | None  # [all rows in all views, 3]


SlotRule = Callable[[np.random.Generator, int, int, int, int], np.ndarray]


Plan = list[Row]


def plan_epoch(
    seed: int,
    task: int,
    epoch: int,
    *,
    samples: int,
    batch: int,
    draws: Sequence[Draw] = (),
    views: Views = ONE_VIEW,
    capacity: int = 0,
    presented: int = 0,
    slot_rule: SlotRule | None = None,
    pad: int = 0,
    flip: bool = False,
    labels: tuple[np.ndarray, np.ndarray] | None = None,
    place: Callable[[np.random.Generator, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
    device: str | torch.device = "cpu",
) -> Plan:
    """The epoch's plan. Each kind of choice has its own random stream: methods with the same seed see the same order.

    `labels`, of the memory's rows as the epoch begins and of the training set, are needed for a balanced pool alone.
    `place`, of a ledger, finds the slots of the epoch's order instead of the slot rule.
    """
    streams = [np.random.default_rng([seed, task, epoch, kind]) for kind in range(4)]
    steps = math.ceil(samples / batch)
    rows = lambda array: (
        [None] * steps if array is None else torch.from_numpy(np.ascontiguousarray(array)).to(device).unbind(0)
    )
    # Static shapes: the last batch is topped up with the first samples of the epoch's own order.
    order = np.resize(streams[0].permutation(samples), (steps, batch))
    # Samples offered to the memory before each step; without a slot rule it stays as it is.
    offered = presented + batch * np.arange(steps) if slot_rule else np.full(steps, presented)
    before = np.minimum(offered, capacity)
    crops = None
    if pad or flip:
        shape, ends = (steps, sum(sized(draws, views, batch))), (2 * pad + 1, 2 * pad + 1, 1 + flip)
        crops = np.stack([streams[1].integers(0, end, shape) for end in ends], axis=-1)
    slots = None
    if place is not None:
        slots, before = place(streams[3], order)
    elif slot_rule and capacity:
        slots = slot_rule(streams[3], presented, capacity, steps, batch)
    held = labels and holding(labels[0], labels[1][order], slots)
    drawn = draw(streams[2], before, draws, batch, held, epoch) if draws else None
    return [Row._make(row) for row in zip(rows(order), rows(drawn), rows(slots), rows(crops))]


def sized(draws: Sequence[Draw], views: Views, batch: int) -> list[int]:
    """The rows of each view of each batch of a step."""
    return [batch] * len(views) + [draw.size or batch for draw in draws for _ in draw.views]


def sharded(plan: Plan, batch: int, draws: Sequence[Draw], views: Views = ONE_VIEW) -> Plan:
    """The plan of this rank: its rows of every batch. Slots stay those of all: every rank writes the whole memory."""
    if not ranks.distributed():
        return plan
    drawn, seen = [draw.size or batch for draw in draws], sized(draws, views, batch)
    own = lambda row: (
        ranks.shard(row.order, [batch]),
        ranks.shard(row.draws, drawn),
        row.slots,
        ranks.shard(row.views, seen),
    )
    return [Row._make(own(row)) for row in plan]


# A pool is a part of the memory's rows: how many of the first n rows belong to it, and which row its j-th is. The split
# is by row number, every fifth row an outer one; the reservoir fills rows at random, so any split by number is random.
# Both are given the number of the first outer row: 0, or the epoch's turn.
POOLS: dict[str, tuple[Callable, Callable]] = {
    "all": (lambda n, f: n, lambda j, f: j),
    "outer": (lambda n, f: (n + 4 - f) // 5, lambda j, f: 5 * j + f),
    "inner": (lambda n, f: n - (n + 4 - f) // 5, lambda j, f: 5 * (j // 4) + j % 4 + (j % 4 >= f)),
}
TURNS = {"held": "outer", "others": "inner"}


def draw(
    rng: np.random.Generator,
    filled: np.ndarray,
    draws: Sequence[Draw],
    batch: int,
    held: np.ndarray | None = None,
    epoch: int = 0,
) -> np.ndarray:
    """For each step and draw, rows of its pool among the first `filled`, without replacement, shuffled: [S, rows]."""
    turn = np.where(filled >= 5, epoch % 5, 0)  # a smaller memory has no row for each turn

    def of(pool: str, rows: int) -> np.ndarray:
        if pool == "balanced":
            return balanced(rng, filled, held, rows)  # pyright: ignore[reportArgumentType]  # it has labels then
        size, row = POOLS[TURNS.get(pool, pool)]
        first = turn if pool in TURNS else np.zeros_like(filled)
        return row(choose(rng, size(filled, first), rows), first[:, None])

    return np.concatenate([of(one.pool, one.size or batch) for one in draws], axis=1)


def balanced(rng: np.random.Generator, filled: np.ndarray, held: np.ndarray, batch: int) -> np.ndarray:
    """For each step, B of the first `filled` rows: a row of each class held, then another of each that has more, …"""
    drawn = []
    for count, labels in zip(filled, held):
        rows = rng.permutation(count)
        rows = rows[np.argsort(labels[rows], kind="stable")]
        turn = np.arange(count) - np.searchsorted(labels[rows], labels[rows])  # among the rows of its class
        drawn.append(np.resize(rows[np.argsort(turn + rng.random(count))], batch))
    return np.stack(drawn)


def holding(labels: np.ndarray, arriving: np.ndarray, slots: np.ndarray | None) -> np.ndarray:
    """The labels of the memory's rows before each step, [S, M + 1].

    They follow from those before the first step, from the arriving samples' labels and from their slots.
    """
    held = np.repeat(labels[None], len(arriving), axis=0)
    for step in range(1, len(held)) if slots is not None else ():
        held[step] = held[step - 1]
        held[step, slots[step - 1]] = arriving[step - 1]
    return held


def choose(rng: np.random.Generator, counts: np.ndarray, batch: int) -> np.ndarray:
    """B different numbers below each count, in random order: [S, B].

    Floyd's algorithm, over all steps at once, so that a large memory costs no more than a small one; of very large
    batches it costs more than to put all numbers in order. Where the count is below B, every number is drawn before any
    is drawn again.
    """
    counts = counts[:, None]
    if batch > MANY:
        order = (rng.permutation(max(count, 1)) for count in counts[:, 0])
        return np.stack([np.resize(row, batch) for row in order])
    chosen = np.full((len(counts), batch), -1)
    for position in range(batch):
        last = np.maximum(counts - batch + position, 0)  # [S, 1], the largest number this position may take
        candidate = rng.integers(0, last + 1)
        taken = (chosen[:, :position] == candidate).any(axis=1, keepdims=True)
        chosen[:, position] = np.where(taken, last, candidate)[:, 0]
    chosen = rng.permuted(chosen, axis=1)  # Floyd's choice is a uniform set, not a uniform order
    for row in np.flatnonzero(counts[:, 0] < batch):
        chosen[row] = np.resize(rng.permutation(max(counts[row, 0], 1)), batch)
    return chosen


def reservoir(rng: np.random.Generator, presented: int, capacity: int, steps: int, batch: int) -> np.ndarray:
    """Where each presented sample goes (Vitter's algorithm R): [S, B] rows, `capacity` for the rejected.

    The n-th sample takes row n while there is room, then a uniform row of 0…n, kept if it is one of the M.
    Two samples of a step that want one row: the last arrival has it, as if they had come one by one.
    """
    n = presented + np.arange(steps * batch)
    row = np.where(n < capacity, n, rng.integers(0, n + 1))
    row = np.minimum(row, capacity).reshape(steps, batch)
    # Equal numbers: one row is wanted twice in a step.
    wanted = (row + (capacity + 1) * np.arange(steps)[:, None]).ravel()
    _, last = np.unique(wanted[::-1], return_index=True)
    kept = np.zeros(steps * batch, dtype=bool)
    kept[steps * batch - 1 - last] = True
    return np.where(kept.reshape(steps, batch), row, capacity)


def chances(rng: np.random.Generator, presented: int, capacity: int, steps: int, batch: int) -> np.ndarray:
    """For a rule that looks at the samples, [S, B, 3]: the free row, or `capacity` if there is none, and two uniform
    numbers in [0, 1)."""
    free = np.minimum(presented + np.arange(steps * batch), capacity).reshape(steps, batch, 1)
    return np.concatenate([free, rng.random((steps, batch, 2))], axis=2)
