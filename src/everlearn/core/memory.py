"""The memory: a fixed number of rows, drawn from and written to by row number.

Which rows is the plan's business, so a draw and a write are plain indexing with static shapes. One spare row at
the end swallows what the reservoir rejects; rows not yet written have the label EMPTY, and their losses are masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import torch
from torch import Tensor

from everlearn.core import ranks
from everlearn.core.ledger import Ledger
from everlearn.core.state import Stateful, joined, part
from everlearn.core.terms import EMPTY, Batch


class Memory(Stateful):
    """M un-augmented inputs, their labels and, by name, what else a method keeps beside each: its logits, say."""

    def __init__(
        self, capacity: int, like: Tensor, fields: Mapping[str, Sequence[int]] = {}, dtype: torch.dtype = torch.float32
    ):
        rows = capacity + 1  # the last one is the spare
        self.capacity = capacity
        self.x: Tensor = torch.zeros(rows, *like.shape[1:], dtype=like.dtype, device=like.device)
        self.y: Tensor = torch.full((rows,), EMPTY, dtype=torch.long, device=like.device)
        empty = lambda shape: torch.zeros(rows, *shape, dtype=dtype, device=like.device)
        self.stored: dict[str, Tensor] = {name: empty(shape) for name, shape in fields.items()}
        self.ledger: Ledger = Ledger(capacity)  # who is in which row
        self.whole = False  # is every row that may be drawn surely written?

    def __len__(self) -> int:
        return self.ledger.held

    def __repr__(self) -> str:
        return f"<Memory: {len(self)} of {self.capacity} samples, {len(set(self.held()[1].tolist()))} classes>"

    def held(self) -> tuple[Tensor, Tensor]:
        """All samples it holds, in the order of its rows."""
        return self.x[: len(self)], self.y[: len(self)]

    def fill(self, x: Tensor, y: Tensor, **stored: Tensor) -> None:
        """These samples instead of what it held."""
        self.ledger.presented = self.ledger.held = len(x)
        self.x[: len(x)], self.y[: len(x)], self.y[len(x) :] = x, y, EMPTY
        for name, own in self.stored.items():
            own[: len(x)] = stored[name]

    def draw(self, rows: Tensor, sizes: Sequence[int]) -> list[Batch]:
        """Batches of these sizes, samples as they are stored."""
        y, there = self.y[rows], None
        if not self.whole:
            y, there = y.clamp(min=0), y >= 0  # any loss can read these labels
        parts = zip(self.x[rows].split(sizes), y.split(sizes), repeat(None) if there is None else there.split(sizes))
        stored = {name: tensor[rows].split(sizes) for name, tensor in self.stored.items()}
        named = ({name: of[n] for name, of in stored.items()} for n in range(len(sizes)))
        return [Batch(x, y, stored=kept, there=there) for (x, y, there), kept in zip(parts, named)]

    def write(self, rows: Tensor, x: Tensor, y: Tensor, **stored: Tensor | None) -> None:
        """Rows must differ, except for the spare one; `plan.reservoir` ensures it. All ranks write all samples."""
        self.x[rows], self.y[rows] = ranks.all_gather(x), ranks.all_gather(y)
        for name, own in self.stored.items():
            own[rows] = ranks.all_gather(stored[name].detach()).to(own.dtype)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"ledger": self.ledger.state()} | joined({"stored": self.stored})

    def restore(self, state: dict[str, Tensor]) -> None:
        self.x, self.y, self.stored = state["x"], state["y"], part(state, "stored")
