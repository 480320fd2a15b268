"""How a task is learned: epoch by epoch, each by a plan, step by step."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn import checks
from everlearn.core import ranks
from everlearn.core.capture import Graphs, train_epoch
from everlearn.core.feeding import steps_of
from everlearn.core.ledger import Ledger, keys
from everlearn.core.memory import Memory
from everlearn.core.plan import Plan, chances, plan_epoch, reservoir, sharded
from everlearn.core.seeding import Randomness
from everlearn.data import Task
from everlearn.errors import EverlearnError, passed_on
from everlearn.methods.base import Method

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

Known = Callable[[], tuple[list[bytes], list[int]]]  # what each sample is known again by, and its label


def learn(
    learner: Learner, task: Task, report: Callable[[dict[str, Any]], None], drawing: Callable
) -> Generator[None, None, None]:
    """One task, from the epoch the learner is in; a pause after each step."""
    method, weighting, names, epochs = learner.method, learner.method.weighting, learner.method.names, learner.epochs
    memory = remembering(learner, task.train[0])
    x, y = (tensor.to(learner.device) for tensor in method.training_set(learner, task))
    known: Known = functools.cache(lambda: (keys(x, y), y.tolist()))
    begin_task(learner, task)
    learner._broken_off = True
    body = steps_of(method, learner.net, learner.sgd, memory, learner.inputs.training, (x, y))
    graphs = Graphs(body, method, weighting, learner.sgd) if learner.capture else None
    randomness = Randomness(learner.device)
    rows, after = plan(learner, (learner.tasks, learner.epoch), y, known, learner.batch)
    for epoch in range(learner.epoch, epochs):
        start, learner._torn = time.perf_counter(), True
        weighting.begin_epoch(learner.tasks, epoch, epochs)
        learner.net.train()
        # For dropout and the like in the network: each rank's rows have masks of their own.
        key = (learner.seed, learner.tasks, epoch, *([ranks.rank()] if ranks.distributed() else []))
        memory.whole = whole(learner)
        kind = lambda number: (weighting.variant(number), memory.whole)
        tape = yield from drawing(randomness.start(*key), train_epoch(body, rows, kind, graphs))
        memory.ledger = after
        if epoch + 1 < epochs:  # while a GPU is still at work on this one
            rows, after = plan(learner, (learner.tasks, epoch + 1), y, known, learner.batch)
        kept = tape.read()
        losses = kept["losses"].mean(dim=(0, 1)).tolist()
        if not (all(map(math.isfinite, losses)) and torch.isfinite(learner.net.theta).all()):
            raise EverlearnError(
                f"the loss is no longer a finite number in epoch {epoch + 1} of task {learner.tasks + 1}; "
                f"a smaller learning rate than {learner.sgd.lr} may help, such as lr={learner.sgd.lr / 10:g}"
            )
        learner.epoch, learner._torn = epoch + 1, False
        with passed_on("the report's function"):
            report(
                {
                    "event": "epoch",
                    "task": learner.tasks,
                    "epoch": epoch,
                    "loss": dict(zip(names, losses)),
                    "seconds": time.perf_counter() - start,
                    **weighting.report(names, kept),
                }
            )
        if learner._stopping:
            break
    learner._torn = True
    method.end_task(learner, task)
    learner.seen |= set(task.classes)
    learner.tasks, learner.epoch, learner._torn = learner.tasks + 1, 0, False


def begin_task(learner: Learner, task: Task) -> None:
    """Tell the method; in the middle of a task it is then as it was."""
    learner.method.begin_task(learner, task)
    if learner._resumed is not None:
        learner.method.restore(learner._resumed)
        checks.claimed(learner.method, learner._resumed)
        learner._resumed = None


def remembering(learner: Learner, x: Tensor) -> Memory:
    """The memory; for the first samples it is made."""
    if learner.memory is None:
        if "features" in learner.method.keeps:
            learner.width = learner.features(x[:1]).shape[1]
        like, fields = x[:0].to(learner.device), learner.method.fields(learner)
        learner.memory = Memory(learner.capacity, like, fields, learner.net.theta.dtype)
        learner.memory.ledger.rule = learner.rule
    return learner.memory


def whole(learner: Learner) -> bool:
    """Is every row of the memory that this epoch may draw surely written? A method may leave slots empty."""
    held = learner.memory.held()[1]
    sure = type(learner.method).remember is Method.remember or len(held) == learner.capacity
    return sure and len(held) > 1 and bool((held >= 0).all())  # of a single row a split memory has an empty half


def plan(learner: Learner, key: tuple[int, int], y: Tensor, known: Known, batch: int) -> tuple[Plan, Ledger]:
    """The plan of an epoch over samples with these labels, and the memory's ledger when it is done."""
    memory, method = learner.memory, learner.method
    ledger, rule, place = memory.ledger.copy(), method.slot_rule, None
    if rule in (reservoir, chances) and learner.capacity and not ledger.regular(len(y)):
        if ledger.where is None:
            ledger.look_up(*memory.held())
        offer = (lambda rng, order, names, labels: ledger.offer(rng, order, names)) if rule is chances else ledger.place
        place = lambda rng, order: offer(rng, order, *known())
    presented, balanced = ledger.presented, any(draw.pool == "balanced" for draw in learner.draws)
    rows = plan_epoch(
        learner.seed,
        *key,
        samples=len(y),
        batch=batch,
        draws=learner.draws,
        views=method.views,
        labels=(memory.y.cpu().numpy(), y.cpu().numpy()) if balanced else None,
        capacity=learner.capacity,
        presented=presented,
        slot_rule=rule,
        pad=learner.inputs.pad,
        flip=learner.inputs.flip,
        place=place,
        device=learner.device,
    )
    if rule and place is None:
        ledger.passed(len(rows) * batch)
    return sharded(rows, batch, learner.draws, method.views), ledger
