"""The memory: a fixed number of rows, drawn from and written to by row number.

Which rows is the plan's business, so a draw and a write are plain indexing with static shapes. One spare row at
the end swallows what the reservoir rejects; rows not yet written have the label −100, which no loss counts.
"""

from __future__ import annotations

from itertools import repeat

import torch
from torch import Tensor

from everlearn.core import ranks
from everlearn.core.state import Stateful
from everlearn.core.terms import Batch

EMPTY = -100  # torch's ignore_index


class Memory(Stateful):
    """M un-augmented inputs, their labels and, where a method asks for them, the logits they had when they came."""

    def __init__(self, capacity: int, like: Tensor, classes: int = 0, dtype: torch.dtype = torch.float32):
        rows = capacity + 1  # the last one is the spare
        self.capacity = capacity
        self.x = torch.zeros(rows, *like.shape[1:], dtype=like.dtype, device=like.device)
        self.y = torch.full((rows,), EMPTY, dtype=torch.long, device=like.device)
        self.recorded = torch.zeros(rows, classes, dtype=dtype, device=like.device) if classes else None
        self.presented = 0  # samples offered so far; the plan counts them

    def __len__(self) -> int:
        return min(self.presented, self.capacity)

    def held(self) -> tuple[Tensor, Tensor]:
        """All samples it holds, in the order of its rows."""
        return self.x[: len(self)], self.y[: len(self)]

    def fill(self, x: Tensor, y: Tensor) -> None:
        """These samples instead of what it held."""
        self.presented = len(x)
        self.x[: len(x)], self.y[: len(x)], self.y[len(x) :] = x, y, EMPTY

    def draw(self, rows: Tensor, size: int) -> list[Batch]:
        """Batches of `size` samples as they are stored."""
        recorded = repeat(None) if self.recorded is None else self.recorded[rows].split(size)
        return [Batch(*sample) for sample in zip(self.x[rows].split(size), self.y[rows].split(size), recorded)]

    def write(self, rows: Tensor, x: Tensor, y: Tensor, logits: Tensor) -> None:
        """Rows must differ, except for the spare one (`plan.reservoir` sees to it). Each rank gives its samples, and gets all."""
        self.x[rows], self.y[rows] = ranks.all_gather(x), ranks.all_gather(y)
        if self.recorded is not None:
            self.recorded[rows] = ranks.all_gather(logits).to(self.recorded.dtype)
