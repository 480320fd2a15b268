"""One step of training, the same for every method."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from recollect.descent import SGD
from recollect.mainnet import MainNet
from recollect.memory import Memory
from recollect.methods.base import Method
from recollect.plan import Plan
from recollect.streams.pixels import Pixels
from recollect.terms import Batch


class Tape:
    """What is kept of every step of an epoch, read once at its end: nothing waits for a value inside it."""

    def __init__(self):
        self._kept: dict[str, list[Tensor]] = defaultdict(list)

    def keep(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self._kept[name].append(tensor.detach())

    def read(self) -> dict[str, Tensor]:
        return {name: torch.stack(tensors) for name, tensors in self._kept.items()}


@dataclass
class Step:
    """Everything one step may look at. `spare` are the memory batches its weighting asked for."""

    number: int  # within the epoch
    net: MainNet
    sgd: SGD
    memory: Memory
    x: Tensor  # the new samples as they came, for the memory
    y: Tensor
    slots: Tensor | None  # rows of the memory they go to
    new: Batch
    replay: tuple[Batch, ...]
    spare: tuple[Batch, ...]
    tape: Tape = field(default_factory=Tape)


def train_step(method: Method, step: Step) -> None:
    """The only update rule in the library."""
    theta = step.net.theta
    terms = method.terms(step.net.at(theta), step.new, step.replay)
    loss = method.weighting.loss(method, step, terms)
    (gradient,) = torch.autograd.grad(loss, theta)
    direction = step.sgd.direction(theta, method.direction(gradient, step))
    method.weighting.learn(method, step, terms, direction)  # the RRN, when it is its turn
    with torch.no_grad():
        theta.sub_(direction, alpha=step.sgd.lr)
    method.remember(step, terms)
    step.tape.keep(losses=terms.losses)


def batches(plan: Plan, k: int, x: Tensor, y: Tensor, memory: Memory, pixels: Pixels, draws: int):
    """Row k of the plan carried out: the new samples as they came, and all batches as the network sees them."""
    order, rows = plan.order[k], plan.draws[k]
    x, y = x[order], y[order]
    view = None if plan.views is None else plan.views[k]
    if not draws:
        return x, y, [Batch(pixels(x, view), y)]
    seen = pixels(torch.cat([x, memory.x[rows]]), view).split(len(x))
    labels = memory.y[rows].split(len(x))
    recorded = memory.recorded[rows].split(len(x)) if memory.recorded is not None else [None] * draws
    return x, y, [Batch(seen[0], y), *map(Batch, seen[1:], labels, recorded)]


def train_epoch(method: Method, net: MainNet, sgd: SGD, memory: Memory, pixels: Pixels, data: tuple[Tensor, Tensor], plan: Plan) -> Tape:
    """All steps of a plan."""
    tape = Tape()
    draws = len(method.weighting.pools(method.draws))
    for k in range(len(plan)):
        x, y, (new, *replay) = batches(plan, k, *data, memory, pixels, draws)
        slots = plan.slots[k] if plan.slots else None
        step = Step(k, net, sgd, memory, x, y, slots, new, tuple(replay[:method.draws]), tuple(replay[method.draws:]), tape)
        train_step(method, step)
    return tape
