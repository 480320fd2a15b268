"""One step of training, the same for every method."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from everlearn.core.capture import Body
from everlearn.core.sgd import SGD
from everlearn.core.theta import MainNet
from everlearn.core.memory import Memory
from everlearn.methods.base import Method
from everlearn.core.plan import Row
from everlearn.data.pixels import Pixels
from everlearn.core.tape import Tape
from everlearn.core.terms import Batch


@dataclass
class Step:
    """Everything one step may look at: memory batches for the terms, the weighting (`extra`), and the method's other needs."""

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


def train_step(method: Method, step: Step) -> None:
    """The only update rule in the library."""
    theta = step.net.theta
    terms = method.terms(step.net.at(theta), step.new, step.replay)
    loss = method.weighting.loss(method, step, terms)
    gradient = step.net.gradient(loss)
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
        draws, end = method.draws, len(old) - method.references
        parts = tuple(old[:draws]), tuple(old[draws:end]), tuple(old[end:])
        train_step(method, Step(number, net, sgd, memory, x, y, row.slots, new, *parts, tape))

    return body
