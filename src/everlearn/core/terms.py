"""The words every method shares: a batch, a loss term, and the terms of a step side by side.

Shapes: B rows per batch, C classes, k terms, P parameters. Row i of all batches of a step is one pair (or triple).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from everlearn.arguments import checked
from everlearn.core.answered import log_prior, logits, mask, recorded, some, without_empty
from everlearn.core.plan import paired
from everlearn.core.rows import rows_of

EMPTY = -100  # the label of a row of the memory that is not written yet


@checked
class Batch(NamedTuple):
    """Samples `x` as the network sees them, their labels `y`, and its answers once it has been asked: logits `z`, and
    `features`. `stored`, such as `stored["logits"]`, is what the memory has beside them; `others` are further views."""

    x: Tensor  # [B, …] augmented and normalised
    y: Tensor  # [B]
    # None until the network has seen the batch; no loss has to ask, so they are not declared so.
    z: Tensor = None  # pyright: ignore[reportAssignmentType]  # [B, C] logits
    features: Tensor = None  # pyright: ignore[reportAssignmentType]  # [B, d] the head's input, if a method has `features`
    stored: Mapping[str, Tensor] = {}  # what the memory keeps beside a sample, [B, …] each
    there: Tensor | None = None  # [B] False where the memory's row is still empty; None: all are there
    others: tuple[Batch, ...] = ()  # the same samples in further views

    rows = rows_of


def seen_by(net: Callable[..., Sequence[Tensor]], *batches: Batch) -> list[Batch]:
    """The batches with the network's answers, in one call: it decides how they share a pass."""
    views = [view for batch in batches for view in (batch, *batch.others)]
    answers = zip(net(*[v.x for v in views], there=[v.there for v in views]), getattr(net, "read", ()) or repeat(None))

    def answered(batch: Batch) -> Batch:
        z, features = (without_empty(of, batch.there) for of in next(answers))
        others = tuple(map(answered, batch.others)) if batch.others else ()
        return batch._replace(z=z, features=features, others=others)

    return [answered(batch) for batch in batches]


@checked
class Term(NamedTuple):
    """One term of a training loss: a loss per row, and the batch it was computed on."""

    loss: Tensor  # [B]
    batch: Batch
    preserves: bool = False  # it keeps what was learned before; terms on the memory always do

    def masked(self) -> Tensor:
        """Its loss, 0 on rows of an empty memory."""
        return self.loss if self.batch.there is None else torch.where(self.batch.there, self.loss, 0)


@checked
class Terms:
    """The terms of one step side by side."""

    def __init__(self, terms: Sequence[Term]):
        self.batches: list[Batch] = [term.batch for term in some(terms)]
        self.preserves: list[bool] = [term.preserves for term in terms]
        self.size: int = len(self.new.y)
        self.losses: Tensor = torch.stack([paired(term.masked(), self.size) for term in terms], dim=1)  # [B, k]

    @property
    def new(self) -> Batch:
        """The new samples: every method's first term is about them."""
        return self.batches[0]


@checked
def cross_entropy(batch: Batch, classes: Tensor | None = None, prior: Tensor | None = None) -> Term:
    """CE(z, y) of each row; with `classes` (a mask [C]) the softmax runs over those classes only.

    With `prior`, log π [C], it is CE(z + log π, y): classes that come often need not be pushed up (Ren et al., 2020).
    """
    z = logits(batch)
    z = z if prior is None else z + log_prior(prior, z)
    z = z if classes is None else z.masked_fill(~mask(classes, z), -torch.inf)
    return Term(F.cross_entropy(z, batch.y, reduction="none"), batch)


@checked
def distance(batch: Batch) -> Term:
    """KD: the mean over the classes of (z − recorded z)², of each row; a plain difference is slow in forward mode."""
    return Term(F.mse_loss(logits(batch), recorded(batch), reduction="none").mean(dim=1), batch)


def weighed(losses: Tensor, weights: Tensor) -> Tensor:
    """(1/B) Σᵢ Σⱼ wᵢⱼ ℓᵢⱼ (Eq. 1, 2 and 3)."""
    return (weights * losses).sum() / len(losses)
