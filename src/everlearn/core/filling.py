"""Batches in which not every row is a sample: those of a memory that is not full yet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from everlearn.core import ranks

Rows = Sequence[Tensor | None]  # of each batch, which rows are samples; None: all


def any_there(batches: Sequence[Tensor], there: Rows) -> list[Tensor | None]:
    """Whether a batch has any sample, on any rank, and so moves running statistics; None: it surely has."""
    if not there:
        return [None] * len(batches)
    some = lambda rows: ranks.all_reduce(rows.any().float())[0] > 0  # no control flow: a recorded step does it too
    return [None if rows is None else some(rows) for rows in there]


def filled(batches: Sequence[Tensor], there: Rows) -> list[Tensor]:
    """The batches with samples of the first one in rows without any."""
    if not there:
        return list(batches)
    first, column = batches[0], lambda rows, x: rows.view(-1, *[1] * (x.ndim - 1))
    partner = lambda x: first[torch.arange(len(x), device=x.device) % len(first)]
    whole = lambda x, rows: x if rows is None else torch.where(column(rows, x), x, partner(x))
    return [whole(x, rows) for x, rows in zip(batches, there, strict=True)]
