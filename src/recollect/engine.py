"""One step of training, the same for every method, and an epoch of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from recollect.capture import Body, Graphs
from recollect.descent import SGD
from recollect.mainnet import MainNet
from recollect.memory import Memory
from recollect.methods.base import Method
from recollect.plan import Plan, Row
from recollect.streams.pixels import Pixels
from recollect.tape import Tape
from recollect.terms import Batch


@dataclass
class Step:
    """Everything one step may look at. `extra` are the memory batches its weighting asked for."""

    number: int  # within the epoch
    net: MainNet
    sgd: SGD
    memory: Memory
    x: Tensor  # the new samples as they came, for the memory
    y: Tensor
    slots: Tensor | None  # rows of the memory they go to
    new: Batch
    replay: tuple[Batch, ...]
    extra: tuple[Batch, ...]
    tape: Tape = field(default_factory=Tape)


def train_step(method: Method, step: Step) -> None:
    """The only update rule in the library."""
    theta = step.net.theta
    terms = method.terms(step.net.at(theta), step.new, step.replay)
    loss = method.weighting.loss(method, step, terms)
    (gradient,) = torch.autograd.grad(loss, theta)
    direction = step.sgd.direction(theta, method.direction(gradient, step))
    method.weighting.after(method, step, terms, direction)  # the RRN, when it is its turn
    with torch.no_grad():
        theta.sub_(direction, alpha=step.sgd.lr)
    method.remember(step, terms)
    step.tape.keep(losses=terms.losses)


def steps_of(
    method: Method, net: MainNet, sgd: SGD, memory: Memory, pixels: Pixels, data: tuple[Tensor, Tensor]
) -> Body:
    """A task's training step as a function of a row of the plan: gather, augment, train."""
    images, labels = data

    def body(number: int, row: Row, tape: Tape) -> None:
        x, y = images[row.order], labels[row.order]
        drawn = [] if row.draws is None else memory.draw(row.draws, len(x))
        seen = pixels(torch.cat([x, *(old.x for old in drawn)]), row.views).split(len(x))  # all batches at once
        new, *old = (batch._replace(x=part) for batch, part in zip([Batch(x, y), *drawn], seen))
        replay, extra = tuple(old[: method.draws]), tuple(old[method.draws :])
        train_step(method, Step(number, net, sgd, memory, x, y, row.slots, new, replay, extra, tape))

    return body


def train_epoch(
    body: Body, plan: Plan, variant: Callable[[int], object], graphs: Graphs | None = None
) -> Generator[None, None, Tape]:
    """All steps of a plan, replayed as CUDA graphs where there are any; `variant` tells steps that differ in kind apart.

    A generator that pauses after each step: runs that share a GPU take turns.
    """
    tape = Tape()
    for number, row in enumerate(plan):
        if graphs is None:
            body(number, row, tape)
        else:
            graphs.step(variant(number), number, row, tape)
        yield
    return tape
