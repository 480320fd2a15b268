"""GEM (Lopez-Paz and Ranzato, 2017): fine-tuning, its gradient g projected so that no past task's loss rises.

With row k of G the gradient of the loss on all of the memory of past task k: g̃ = g where G g ≥ 0, else g + Gᵀ v. There
v is the solution of the dual problem min ½ vᵀ G Gᵀ v + (G g)ᵀ v over v ≥ `margin`.

Departs: a millionth of its mean diagonal is added to G Gᵀ, so that v is unique; the authors' code adds 0.001 whatever
the gradients' size. The memory's images are not augmented. Each past task has an equal share of the whole memory, which
shrinks as tasks are added; the paper fixes the share from the number of all tasks, known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core import ranks
from everlearn.core.terms import Batch, cross_entropy, seen_by
from everlearn.errors import number
from everlearn.methods.episodic import Episodic
from everlearn.weightings.base import Weighting

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.core.theta import MainNet
    from everlearn.data import Task
    from everlearn.learner import Learner


FEW = 9  # past tasks, of whose constraints all choices are tried
PIECE = 2**20  # parameters at a time


class GEM(Episodic):
    """One pass forward and back per past task, and a small quadratic programme, every step."""

    memory_factor = 3  # the first past task is one pass over all of the memory
    past: Sequence[Batch] = ()  # what the memory has of each past task, while there is a task
    derived = ("past",)

    def __init__(self, weighting: Weighting | None = None, margin: float = 0.5):
        super().__init__(weighting)
        number("margin", margin)
        self.margin = margin

    @property
    def captures(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  # it depends on the task
        return len(self.past) <= FEW

    def begin_task(self, learner: Learner, task: Task) -> None:
        super().begin_task(learner, task)
        self.past = [Batch(learner.inputs(x), y) for x, y in self.episodes(learner) if len(x)]

    def select(self, step: Step) -> None:
        if self.past:
            with ranks.no_sync():  # past tasks have as many rows as they have: every rank takes all of them
                step.against = torch.stack([reference(step.net, past) for past in self.past])

    def direction(self, gradient: Tensor, step: Step) -> Tensor:
        return gradient if step.against is None else project(gradient, step.against, self.margin)

    def end_task(self, learner: Learner, task: Task) -> None:
        super().end_task(learner, task)
        self.past = ()


def reference(net: MainNet, past: Batch) -> Tensor:
    """The gradient of the loss on all that is remembered of a past task."""
    (seen,) = seen_by(net.at(net.theta), past)
    return net.gradient(cross_entropy(seen).loss.mean())


def project(gradient: Tensor, references: Tensor, margin: float) -> Tensor:
    """The direction the dual problem gives; `references` is G, [t, P]."""
    gram, along = products(references, gradient)
    way = gradient + dual(gram, along, margin).to(gradient) @ references
    opposed = (along < 0).any() & torch.isfinite(along).all()  # the epoch's end tells what is no number
    return torch.where(opposed, way, gradient)


def products(references: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """G Gᵀ, [t, t], and G g, [t], in float64: of sums in float32 nearly parallel gradients make no definite matrix."""
    pieces = zip(references.split(PIECE, dim=1), gradient.split(PIECE))
    rows = (torch.cat([G, g[None]]).double() for G, g in pieces)
    both = torch.stack([of @ of.T for of in rows]).sum(dim=0)
    return both[:-1, :-1], both[:-1, -1]


def dual(gram: Tensor, along: Tensor, margin: float) -> Tensor:
    """argmin ½ vᵀ gram v + alongᵀ v over v ≥ margin."""
    size = gram.diagonal().mean()  # the solution does not depend on the gradients' size
    gram, along = gram / size + 1e-6 * identity(gram), along / size
    solve = tried if len(along) <= FEW else iterated
    return solve(gram, along + margin * gram.sum(dim=1)) + margin


def identity(like: Tensor) -> Tensor:
    return torch.eye(len(like), dtype=like.dtype, device=like.device)


def tried(gram: Tensor, slope: Tensor) -> Tensor:
    """argmin ½ uᵀ gram u + slopeᵀ u over u ≥ 0, by trial of all choices which u are 0; it waits for no value.

    Those not chosen to be 0 solve their own equations. It is the solution where these are ≥ 0 and the objective's
    gradient is, too: of all choices, the one that fails by least.
    """
    tasks = len(slope)
    numbers = torch.arange(2**tasks, device=slope.device)
    free = (numbers[:, None] >> torch.arange(tasks, device=slope.device)) % 2 == 1  # [2ᵗ, t]
    equations = torch.where(free[:, :, None] & free[:, None, :], gram, identity(gram))  # [2ᵗ, t, t]
    u = torch.linalg.solve_ex(equations, torch.where(free, -slope, 0))[0]  # [2ᵗ, t]
    failing = torch.where(free, -u, -(u @ gram + slope)).amax(dim=1)
    return u.index_select(0, failing.argmin(keepdim=True))[0].clamp(min=0)


def iterated(gram: Tensor, slope: Tensor) -> Tensor:
    """The same on the CPU: with gram = L Lᵀ it is least squares, min ‖Lᵀ u + L⁻¹ slope‖ over u ≥ 0."""
    from scipy.optimize import nnls  # a part of scikit-learn's own requirements

    if not torch.isfinite(slope).all():
        return torch.zeros_like(slope)
    lower = torch.linalg.cholesky(gram.cpu())
    right = torch.linalg.solve_triangular(lower, -slope.cpu()[:, None], upper=False)
    return torch.from_numpy(nnls(lower.T.numpy(), right[:, 0].numpy())[0]).to(slope)
