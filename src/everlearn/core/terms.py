"""The words every method shares: a batch, a loss term, and how much each term of each row counts.

Shapes: B rows a batch, C classes, k terms, P parameters. Row i of all batches of a step is one pair (or triple).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from everlearn.errors import BadInput, number
from everlearn.core.state import Stateful


class Batch(NamedTuple):
    """B samples as the network sees them. A row of an empty memory has the label −100, which every loss here ignores."""

    x: Tensor  # [B, channels, height, width], augmented and normalised
    y: Tensor  # [B]
    recorded: Tensor | None = None  # [B, C] logits stored with a remembered sample
    z: Tensor | None = None  # [B, C] logits of the network, once it has been asked


def seen_by(net, *batches: Batch) -> list[Batch]:
    """The batches with the network's logits."""
    return [batch._replace(z=z) for batch, z in zip(batches, net(*(batch.x for batch in batches)))]


class Term(NamedTuple):
    """One term of a training loss: a loss a row, and the batch it was computed on."""

    loss: Tensor  # [B]
    batch: Batch


class Terms:
    """The terms of one step side by side."""

    def __init__(self, terms: Sequence[Term]):
        self.batches = [term.batch for term in terms]
        self.losses = torch.stack([term.loss for term in terms], dim=1)  # [B, k]

    @property
    def new(self) -> Batch:
        """The new samples: every method's first term is about them."""
        return self.batches[0]

    @functools.cached_property
    def norms(self) -> Tensor:
        """‖z‖₂ of each row of each term, [B, k], as plain numbers: no gradient runs through them."""
        return torch.stack([torch.linalg.vector_norm(batch.z.detach(), dim=1) for batch in self.batches], dim=1)

    @functools.cached_property
    def labels(self) -> Tensor:
        return torch.stack([batch.y for batch in self.batches], dim=1)  # [B, k]


def cross_entropy(batch: Batch, classes: Tensor | None = None) -> Term:
    """CE(z, y) of each row; with `classes` (a mask [C]) the softmax runs over those classes only."""
    z = batch.z if classes is None else batch.z.masked_fill(~classes, -torch.inf)
    return Term(F.cross_entropy(z, batch.y, reduction="none"), batch)


def distance(batch: Batch) -> Term:
    """KD: the mean over the classes of (z − recorded z)², of each row; a plain difference is slow in forward mode."""
    squares = F.mse_loss(batch.z, batch.recorded, reduction="none").mean(dim=1)
    return Term(torch.where(batch.y >= 0, squares, 0), batch)


def weighed(losses: Tensor, weights: Tensor) -> Tensor:
    """(1/B) Σᵢ Σⱼ wᵢⱼ ℓᵢⱼ (Eq. 1, 2 and 3)."""
    return (weights * losses).sum() / len(losses)


class Weighting(Stateful):
    """How much each term of each row counts. Subclasses say more than the fixed weights given here."""

    def pools(self, draws: int) -> tuple[str, ...]:
        """The memory batches of a step, the method's own `draws` first: each from `all` rows, `balanced` over the classes in
        them, or (with the memory split four to one) from its `inner` or `outer` rows."""
        return ("all",) * draws

    def check(self, method) -> None:
        """Refuse a method it cannot weigh."""

    def begin(self, method, net, seed: int) -> None:
        """Before the first task; `net` is the Main Net."""

    def begin_epoch(self, task: int, epoch: int, epochs: int) -> None:
        """`task` and `epoch` count from 0."""

    def variant(self, number: int) -> object:
        """The kind of step `number`, of those in its epoch. On a GPU each kind is recorded: what it changes is tensors, in place."""

    def loss(self, method, step, terms: Terms) -> Tensor:
        """What the real step descends."""
        return terms.losses.sum(dim=1).mean()

    def after(self, method, step, terms: Terms, direction: Tensor) -> None:
        """Called once the step's direction is known and before θ moves to θ − η · direction."""

    def report(self, names: Sequence[str], tape: dict[str, Tensor]) -> dict:
        """What to write down of an epoch, from what was kept on its tape."""
        return {}

    def review(self, learner, old: Sequence, new) -> dict:
        """What to write down at the end of a task, given the tasks before it."""
        return {}


class Fixed(Weighting):
    """The same weight for every row of a term: the λ and γ of Eq. 1 and 2; all 1 unless given."""

    derived = ("row",)

    def __init__(self, weights: Sequence[float] = ()):
        self.weights = weights

    def check(self, method) -> None:
        preset(self.weights, method)

    def begin(self, method, net, seed: int) -> None:
        self.row = preset(self.weights, method).to(net.theta)

    def loss(self, method, step, terms: Terms) -> Tensor:
        return weighed(terms.losses, self.row)


def preset(weights: Sequence[float], method) -> Tensor:
    """Fixed weights as a row [k], one for each of the method's terms."""
    names = method.names
    weights = tuple(weights if hasattr(weights, "__iter__") else [weights]) or (1.0,) * len(names)
    for weight in weights:
        number("weight", weight)
    if len(weights) != len(names):
        given = ", ".join(f"{weight:g}" for weight in weights)
        raise BadInput(f"weights {given}: {type(method).__name__} has {len(names)} loss terms, {', '.join(names)}")
    return torch.tensor(weights, dtype=torch.float64)
