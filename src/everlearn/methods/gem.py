"""GEM (Lopez-Paz and Ranzato, 2017): fine-tuning, its gradient g projected so that no past task's loss rises.

With row k of G the gradient of the loss on all of the memory of past task k: g̃ = g where G g ≥ 0, else g + Gᵀ v. There
v is the solution of the dual problem min ½ vᵀ G Gᵀ v + (G g)ᵀ v over v ≥ `margin`.

Departs: G Gᵀ gets a millionth of its mean diagonal, so that v is one, where the authors' code adds 0.001 whatever
the gradients' size. The memory's images are not augmented. Each past task has an equal share of the whole memory, which
shrinks as tasks are added, where the paper fixes it from the number of tasks to come.
"""

from __future__ import annotations

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
    from everlearn.data import Task
    from everlearn.learner import Learner


class GEM(Episodic):
    """One pass forward and back per past task, and a small quadratic programme on the CPU, every step."""

    captures = False

    def __init__(self, weighting: Weighting | None = None, margin: float = 0.5):
        super().__init__(weighting)
        number("margin", margin)
        self.margin = margin

    def begin_task(self, learner: Learner, task: Task) -> None:
        super().begin_task(learner, task)
        self.past = [Batch(learner.inputs(x), y) for x, y in self.episodes(learner) if len(x)]

    def direction(self, gradient: Tensor, step: Step) -> Tensor:
        if not self.past:
            return gradient
        theta = step.net.theta
        with ranks.no_sync():  # past tasks have as many rows as they have: every rank takes all of them
            losses = [cross_entropy(past).loss.mean() for past in seen_by(step.net.at(theta), *self.past)]
            references = torch.stack([step.net.gradient(loss, retain_graph=True) for loss in losses])
        return project(gradient, references, self.margin)


def project(gradient: Tensor, references: Tensor, margin: float) -> Tensor:
    """The direction the dual problem gives; `references` is G, [t, P]."""
    along = references @ gradient  # [t]
    if (along >= 0).all() or not torch.isfinite(along).all():  # waits for the GPU; the epoch's end tells what is wrong
        return gradient
    return gradient + dual(references @ references.T, along, margin).to(gradient) @ references


def dual(gram: Tensor, along: Tensor, margin: float) -> Tensor:
    """argmin ½ vᵀ gram v + alongᵀ v over v ≥ margin, in float64 on the CPU.

    With gram = L Lᵀ and v = u + margin it is least squares: min ‖Lᵀ u + L⁻¹ (along + gram margin)‖ over u ≥ 0.
    """
    from scipy.optimize import nnls  # a part of scikit-learn's own requirements

    size = gram.diagonal().mean().double().cpu()  # the solution does not depend on the gradients' size
    gram, along = gram.double().cpu() / size, along.double().cpu() / size
    gram = gram + 1e-6 * torch.eye(len(along), dtype=torch.float64)
    lower = torch.linalg.cholesky(gram)
    right = torch.linalg.solve_triangular(lower, -(along + margin * gram.sum(dim=1))[:, None], upper=False)
    return torch.from_numpy(nnls(lower.T.numpy(), right[:, 0].numpy())[0]) + margin
