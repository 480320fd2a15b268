"""How a step gets its batches: gathered from the data and the memory, augmented, in each of their views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.memory import Memory
from everlearn.core.plan import Row, Views
from everlearn.core.step import SGD, Step, train_step
from everlearn.core.tape import Tape
from everlearn.core.terms import Batch
from everlearn.core.theta import MainNet

if TYPE_CHECKING:
    from everlearn.methods.base import Method

Inputs = Callable[[Tensor, Tensor | None], Tensor]  # from stored samples and their crops to the network's input


def steps_of(
    method: Method, net: MainNet, sgd: SGD, memory: Memory, inputs: Inputs, data: tuple[Tensor, Tensor]
) -> Callable[[int, Row, Tape], None]:
    """A task's training step as a function of a row of the plan: gather, augment, train."""
    images, labels = data
    kinds = method.all_draws()  # those for the terms, for the weighting, and the references
    draws = sum(kinds, ())
    views = [method.views, *(draw.views for draw in draws)]

    def body(number: int, row: Row, tape: Tape) -> None:
        x, y = images[row.order], labels[row.order]
        sizes = [draw.rows(x.shape[0]) for draw in draws]
        drawn = [] if row.draws is None else memory.draw(row.draws, sizes)
        batches = viewed([Batch(x, y), *drawn], views, inputs, row.views)
        new = next(batches)
        replay, extra, references = (tuple(islice(batches, len(kind))) for kind in kinds)
        train_step(method, Step(number, net, sgd, memory, x, y, row.slots, new, replay, extra, references, tape))

    return body


def viewed(batches: Sequence[Batch], views: Sequence[Views], inputs: Inputs, crops: Tensor | None) -> Iterator[Batch]:
    """Each batch in each of its views: all of them are augmented at once, then transformed where a view says how."""
    rows = [batch.x for batch, ways in zip(batches, views) for _ in ways]
    parts = iter(inputs(torch.cat(rows), crops).split([x.shape[0] for x in rows]))
    for batch, ways in zip(batches, views):
        first, *others = [next(parts) if way is None else way(next(parts)) for way in ways]
        yield batch._replace(x=first, others=tuple(batch._replace(x=x) for x in others) if others else ())
