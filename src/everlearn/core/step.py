"""One step of training, the same for every method: a direction d, and θ moves to θ − η d."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.arguments import checked
from everlearn.core.answered import parameters
from everlearn.core.memory import Memory
from everlearn.core.snapshot import Average
from everlearn.core.state import Stateful
from everlearn.core.tape import Tape
from everlearn.core.terms import Batch, seen_by
from everlearn.core.theta import MainNet

if TYPE_CHECKING:
    from everlearn.methods.base import Method


class SGD(Stateful):
    """d = g + λθ and, with momentum μ, d ← d + μ d_before. `average` is the decay of an average of θ; 0: none."""

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0, average: float | str = 0.0):
        self.lr: float = lr
        self.momentum: float = momentum
        self.weight_decay: float = weight_decay
        self.velocity: Tensor | None = None
        self.average: Average = Average(average)

    def direction(self, theta: Tensor, gradient: Tensor, virtual: bool = False) -> Tensor:
        """A virtual step leaves the velocity as it is."""
        if self.weight_decay:
            gradient = gradient + self.weight_decay * theta.detach()
        if self.momentum:
            if self.velocity is None:
                self.velocity = torch.zeros_like(gradient)
            gradient = gradient + self.momentum * self.velocity
            if not virtual:
                self.velocity.copy_(gradient)  # in place: a captured step holds this address
        return gradient


@dataclass
class Step:
    """All that one step may look at. `new` and `replay`, a batch per draw, are what `learn` and `rehearse` will get."""

    number: int  # within the epoch
    net: MainNet
    sgd: SGD
    memory: Memory
    x: Tensor  # the new samples as they came, for the memory
    y: Tensor
    slots: Tensor | None  # where they go in it
    new: Batch
    replay: tuple[Batch, ...]
    extra: tuple[Batch, ...]
    references: tuple[Batch, ...] = ()
    tape: Tape = field(default_factory=Tape)
    against: Tensor | None = None  # [t, P] past gradients, which a direction is not to oppose

    @checked
    @torch.no_grad()
    def ask(self, batch: Batch, theta: Tensor | None = None) -> Batch:
        """The batch with the network's answers now, or at another `theta`: no gradient, and nothing in it moves."""
        at = self.net.theta if theta is None else parameters(theta, self.net.theta)
        return seen_by(self.net.at(at, virtual=True), batch)[0]


def train_step(method: Method, step: Step) -> None:
    """The only update rule in the library."""
    method.tell("select", step)
    theta = step.net.theta
    terms = method.terms(step.net.at(theta), step.new, step.replay)
    loss = method.weighting.loss(method, step, terms)
    gradient = step.net.gradient(loss)
    way = method.direction(gradient, step)
    direction = step.sgd.direction(theta, way)
    method.weighting.after(method, step, terms, direction)  # the RRN, when it is its turn
    with torch.no_grad():
        theta.sub_(direction, alpha=step.sgd.lr)
    step.sgd.average.update(step.net)
    method.after_step(step, gradient, way)
    method.tell("remember", step, terms)
    step.tape.keep(losses=terms.losses)
