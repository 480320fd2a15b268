"""Some rows of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from everlearn.core.answered import index

if TYPE_CHECKING:
    from everlearn.core.terms import Batch


def rows_of(batch: Batch, which: Tensor) -> Batch:
    """Some of its rows, with all that belongs to them."""
    which = index(which, len(batch.y))
    pick: Any = lambda of: None if of is None else of[which]
    return batch._replace(
        x=batch.x[which],
        y=batch.y[which],
        z=pick(batch.z),
        features=pick(batch.features),
        stored={name: tensor[which] for name, tensor in batch.stored.items()},
        there=pick(batch.there),
        others=tuple(rows_of(other, which) for other in batch.others),
    )
