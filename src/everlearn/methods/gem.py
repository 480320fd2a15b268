"""GEM (Lopez-Paz and Ranzato, 2017): fine-tuning, its gradient g projected so that no past task's loss rises.

With row k of G the gradient of the loss on all of the memory of past task k: g̃ = g where G g ≥ 0, else g + Gᵀ v. There
v is the solution of the dual problem min ½ vᵀ G Gᵀ v + (G g)ᵀ v over v ≥ `margin`.

Departs: G Gᵀ gets a millionth of its mean diagonal for the solver's sake, where the authors' code adds 0.001 whatever
the gradients' size. The memory's images are not augmented. Each past task has an equal share of the whole memory, which
shrinks as tasks are added, where the paper fixes it from the number of tasks to come.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core import ranks
from everlearn.core.terms import Batch, cross_entropy, seen_by
from everlearn.errors import BadInput, number
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
        if importlib.util.find_spec("quadprog") is None:
            raise BadInput(
                "gem solves a quadratic programme with quadprog, which is not here: pip install 'everlearn[gem]'"
            )
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
    if (along >= 0).all():  # waits for the GPU
        return gradient
    return gradient + dual(references @ references.T, along, margin).to(gradient) @ references


def dual(gram: Tensor, along: Tensor, margin: float) -> Tensor:
    """argmin ½ vᵀ gram v + alongᵀ v over v ≥ margin, in float64 on the CPU."""
    from quadprog import solve_qp

    size = gram.diagonal().mean().double().cpu()  # the solution does not depend on the gradients' size; the solver does
    gram, along = gram.double().cpu() / size, along.double().cpu() / size
    eye = torch.eye(len(along), dtype=torch.float64)
    return torch.from_numpy(
        solve_qp((gram + 1e-6 * eye).numpy(), -along.numpy(), eye.numpy(), (margin * eye.diagonal()).numpy())[0]
    )
