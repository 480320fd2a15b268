"""Some rows of a batch, all that belongs to them included."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from everlearn.core.terms import Batch


def rows_of(batch: Batch, rows: Tensor) -> Batch:
    """Some rows of a batch."""

    def pick(tensor: Any) -> Any:
        return None if tensor is None else tensor[rows]

    stored = {name: tensor[rows] for name, tensor in batch.stored.items()}
    others = tuple(rows_of(other, rows) for other in batch.others)
    return Batch(batch.x[rows], batch.y[rows], pick(batch.z), pick(batch.features), stored, pick(batch.there), others)
