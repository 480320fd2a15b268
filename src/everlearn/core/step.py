"""One step of training, the same for every method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.memory import Memory
from everlearn.core.plan import Row
from everlearn.core.sgd import SGD
from everlearn.core.tape import Tape
from everlearn.core.terms import Batch
from everlearn.core.theta import MainNet

if TYPE_CHECKING:
    from everlearn.methods.base import Method


@dataclass
class Step:
    """All that one step may look at. Memory batches are for the terms, the weighting (`extra`) and the method."""

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
    method.select(step)
    theta = step.net.theta
    terms = method.terms(step.net.at(theta), step.new, step.replay)
    loss = method.weighting.loss(method, step, terms)
    gradient = step.net.gradient(loss)
    way = method.direction(gradient, step)
    direction = step.sgd.direction(theta, way)
    method.weighting.after(method, step, terms, direction)  # the RRN, when it is its turn
    with torch.no_grad():
        theta.sub_(direction, alpha=step.sgd.lr)
    method.after_step(step, gradient, way)
    method.remember(step, terms)
    step.tape.keep(losses=terms.losses)


def steps_of(method: Method, net: MainNet, sgd: SGD, memory: Memory, inputs, data: tuple[Tensor, Tensor]) -> Callable:
    """A task's training step as a function of a row of the plan: gather, augment, train.

    `inputs` makes the network's input of stored samples.
    """
    images, labels = data
    own, extra, references = method.all_draws()
    draws, ends = [*own, *extra, *references], (len(own), len(own) + len(extra))

    def body(number: int, row: Row, tape: Tape) -> None:
        x, y = images[row.order], labels[row.order]
        sizes = [draw.rows(len(x)) for draw in draws]
        drawn = [] if row.draws is None else memory.draw(row.draws, sizes)
        views = [method.views, *(draw.views for draw in draws)]
        new, *old = viewed([Batch(x, y), *drawn], views, inputs, row.views)
        parts = tuple(old[: ends[0]]), tuple(old[slice(*ends)]), tuple(old[ends[1] :])
        train_step(method, Step(number, net, sgd, memory, x, y, row.slots, new, *parts, tape))

    return body


def viewed(batches: Sequence[Batch], views: Sequence[Sequence], inputs, crops: Tensor | None) -> Iterator[Batch]:
    """Each batch in each of its views: all of them are augmented at once, then transformed where a view says how."""
    rows = [batch.x for batch, ways in zip(batches, views) for _ in ways]
    parts = iter(inputs(torch.cat(rows), crops).split([len(x) for x in rows]))
    for batch, ways in zip(batches, views):
        first, *others = [batch._replace(x=next(parts) if way is None else way(next(parts))) for way in ways]
        yield first._replace(others=tuple(others))
