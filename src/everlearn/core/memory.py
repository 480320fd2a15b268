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
        self.presented: int = 0  # samples offered so far; the plan counts them

    def __len__(self) -> int:
        return min(self.presented, self.capacity)

    def held(self) -> tuple[Tensor, Tensor]:
        """All samples it holds, in the order of its rows."""
        return self.x[: len(self)], self.y[: len(self)]

    def fill(self, x: Tensor, y: Tensor) -> None:
        """These samples instead of what it held."""
        self.presented = len(x)
        self.x[: len(x)], self.y[: len(x)], self.y[len(x) :] = x, y, EMPTY

    def draw(self, rows: Tensor, sizes: Sequence[int]) -> list[Batch]:
        """Batches of these sizes, samples as they are stored. Where an epoch began with any, no row drawn is empty."""
        y, there = self.y[rows], None
        if len(self) < 2:
            y, there = y.clamp(min=0), y >= 0  # any loss can read these labels
        parts = zip(self.x[rows].split(sizes), y.split(sizes), repeat(None) if there is None else there.split(sizes))
        stored = {name: tensor[rows].split(sizes) for name, tensor in self.stored.items()}
        named = lambda number: {name: tensors[number] for name, tensors in stored.items()}
        return [Batch(x, y, stored=named(number), there=there) for number, (x, y, there) in enumerate(parts)]

    def write(self, rows: Tensor, x: Tensor, y: Tensor, **stored: Tensor) -> None:
        """Rows must differ, except for the spare one; `plan.reservoir` ensures it. All ranks write all samples."""
        self.x[rows], self.y[rows] = ranks.all_gather(x), ranks.all_gather(y)
        for name, own in self.stored.items():
            own[rows] = ranks.all_gather(stored[name].detach()).to(own.dtype)

    def state(self) -> dict[str, Tensor]:
        return super().state() | joined({"stored": self.stored})

    def restore(self, state: dict[str, Tensor]) -> None:
        self.x, self.y, self.stored = state["x"], state["y"], part(state, "stored")
