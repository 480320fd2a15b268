"""The outer loss, and what its batch is made of: other rows, other views, mixed samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from everlearn.core.plan import Draw
from everlearn.core.terms import Batch, Term

VIEWS = ("usual", "strong", "mixed")


def outer_loss(terms: Iterable[Term]) -> Tensor:
    """L^bf: the terms' means, unweighted (Eq. 4, and Eq. 13 for DER++)."""
    return sum(term.masked().mean() for term in terms)  # pyright: ignore[reportReturnType]  # there is a term


def drawn(own: Sequence[Draw], times: int, pools: tuple[str | None, str | None], views: str) -> tuple[Draw, ...]:
    """A step's memory batches: `times` the method's own, then those of the outer loss, each from its pool of rows."""
    inner, last = ([draw if pool is None else draw._replace(pool=pool) for draw in own] for pool in pools)
    if views == "strong":
        last = [draw._replace(views=tuple(strong for _ in draw.views)) for draw in last]
    return (*inner * times, *last)


def strong(x: Tensor) -> Tensor:
    """Another contrast for each sample, noise, and a square of an image left out, of half its side."""
    around = (len(x),) + (1,) * (x.ndim - 1)
    x = x * (0.6 + 0.8 * torch.rand(around, dtype=x.dtype, device=x.device)) + 0.1 * torch.randn_like(x)
    if x.ndim < 4:
        return x
    down, right = (_half(len(x), side, x) for side in x.shape[-2:])
    return x.masked_fill(down[:, None, :, None] & right[:, None, None, :], 0)


def _half(samples: int, side: int, like: Tensor) -> Tensor:
    """A stretch of half a side, anywhere, for each sample: [N, side]."""
    first = (torch.rand(samples, 1, device=like.device) * (side - side // 2 + 1)).floor()
    places = torch.arange(side, device=like.device) - first
    return (places >= 0) & (places < side // 2)


def mixed(batch: Batch) -> Batch:
    """Each row's mean with the row before it (Zhang et al., 2018)."""
    return batch._replace(x=(batch.x + batch.x.roll(1, 0)) / 2)


def neighbour(batch: Batch) -> Batch:
    """The other half of a mixed batch: the same answers, the labels and records of the row before."""
    roll = lambda tensor: None if tensor is None else tensor.roll(1, 0)
    stored = {name: of.roll(1, 0) for name, of in batch.stored.items()}
    return batch._replace(y=batch.y.roll(1, 0), stored=stored, there=roll(batch.there))
