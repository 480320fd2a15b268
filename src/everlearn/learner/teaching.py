"""How a task is learned: epoch by epoch, each by a plan, step by step."""

from __future__ import annotations

import contextlib
import functools
import math
import time
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from everlearn import checks
from everlearn.core import offered, ranks
from everlearn.core.capture import Body, Graphs, train_epoch
from everlearn.core.feeding import steps_of
from everlearn.core.ledger import KEY, Ledger, keys
from everlearn.core.memory import Memory
from everlearn.core.plan import Plan, chances, plan_epoch, reservoir, sharded
from everlearn.core.seeding import Randomness, seeded
from everlearn.core.state import copied, joined, part
from everlearn.core.tape import Tape
from everlearn.data import Task
from everlearn.errors import BadInput, EverlearnError, Notice, passed_on
from everlearn.learner.unkept import as_begun, called_again, plain, said, tell_lost
from everlearn.methods.base import Method

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

Known = Callable[[], tuple[list[bytes], list[int]]]  # what each sample is known again by, and its label
BEGIN, END = 2**31, 2**31 + 1  # for an epoch's number in a key of random numbers: before the first, after the last
UNDER_WAY = "a task is under way; wait for its end (a callback may ask, save and stop)"
BROKEN_OFF = (
    "the last task was broken off in the middle of a step; restore a state from before it, load what was saved, such "
    "as by update(…, on_epoch=lambda learner, record: learner.save(folder)), or make a new learner"
)


def learn(
    learner: Learner, task: Task, report: Callable[[dict[str, Any]], None], drawing: Callable
) -> Generator[None, None, None]:
    """One task, from the epoch the learner is in; a pause after each step."""
    method, weighting, names, epochs = learner.method, learner.method.weighting, learner.method.names, learner.epochs
    memory = remembering(learner, task.train[0])
    between = lambda key: seeded(learner.seed, learner.tasks, key, device=learner.device)
    with between(BEGIN):
        x, y = training_set(learner, task)
    known: Known = functools.cache(lambda: (keys(x, y), y.tolist()))
    with between(BEGIN):
        resumed = begin_task(learner, task)
    unkept = plain(method, *method.parts)
    body = steps_of(method, learner.net, learner.sgd, memory, learner.inputs.training, (x, y))
    graphs = graphs_for(learner, body)
    planned = lambda epoch, stock: plan(learner, (learner.tasks, epoch), y, known, learner.batch, stock, epoch, epochs)
    stocked = lambda epoch: stock(learner, len(y), learner.batch, epoch, epochs)
    place = learner._place = learner._place or Place(stocked(learner.epoch), Randomness(learner.device))
    rows, after = planned(learner.epoch, place.stock)
    learner.sgd.average.begin_task(epochs * len(rows))
    for epoch in range(learner.epoch, learner.epoch if learner._stopping else epochs):
        checks.rate(learner)
        start, learner.steps = time.perf_counter() - place.seconds, len(rows)
        with called_again(learner, weighting):
            weighting.begin_epoch(learner.tasks, epoch, epochs)
        learner.net.train()
        unkept |= plain(weighting)  # from here: what it makes of the epoch's number, it makes of it again
        if learner.step:
            weighting.restore(resumed)
        else:
            # For dropout and the like in the network: each rank's rows have masks of their own.
            key = (learner.seed, learner.tasks, epoch, *([ranks.rank()] if ranks.distributed() else []))
            place.randomness.start(*key)
            place.whole = whole(learner)
        memory.whole = place.whole
        kind = lambda number: (weighting.variant(number), memory.whole)
        steps = drawing(place.randomness, train_epoch(body, rows, kind, place.tape, graphs, learner.step))
        learner._resumed, learner._torn = None, True
        with contextlib.closing(steps):
            for number in steps:
                place.seconds = time.perf_counter() - start
                learner.step, learner._torn = number + 1, False
                yield
                learner._torn = True
        memory.ledger = after
        tape = place.tape
        if epoch + 1 < epochs:  # while a GPU is still at work on this one
            place = Place(stocked(epoch + 1), place.randomness)
            rows, after = planned(epoch + 1, place.stock)
        kept = tape.read()
        losses = kept["losses"].mean(dim=(0, 1)).tolist()
        if not (all(map(math.isfinite, losses)) and torch.isfinite(learner.net.theta).all()):
            when = f"in epoch {epoch + 1} of task {learner.tasks + 1}"
            raise EverlearnError(not_finite(learner, when, kept["losses"], epoch * len(kept["losses"])))
        learner._place, learner.step, learner.epoch, learner._torn = place, 0, epoch + 1, False
        tell_lost(learner, unkept, plain(method, *method.parts, weighting))
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
    if learner.capacity and not len(memory) and bool((memory.y[:-1] >= 0).any()):
        warnings.warn(
            f"{type(method).__name__} writes rows of its memory that are never drawn: with slot_rule = None they are "
            "given at the end of a task, by learner.memory.fill(x, y); else leave slot_rule out",
            Notice,
            stacklevel=1,
        )
    if learner.capacity and method.slot_rule:
        memory.ledger.taught(offers(len(y), learner.batch), learner.epoch, epochs)
    learner._resumed, learner._torn = None, True
    with between(END), tested_apart(learner):
        method.tell("end_task", learner, task)
    tell_lost(learner, unkept, plain(method, *method.parts))
    learner.seen |= set(task.classes)
    learner.tasks, learner.epoch, learner._place, learner._torn = learner.tasks + 1, 0, None, False


def graphs_for(learner: Learner, body: Body) -> Graphs | None:
    """CUDA graphs of these steps, where they can be recorded."""
    method = learner.method
    able = learner.capture and method.captures
    return Graphs(body, method, method.weighting, learner.sgd) if able else None


class Place:
    """An unfinished epoch: what it was planned from, its random state and its tape.

    The memory goes on being written, so what the epoch was planned from is kept as it was when it began.
    """

    def __init__(self, stock: dict[str, Tensor], randomness: Randomness):
        self.stock, self.randomness, self.tape = stock, randomness, Tape()
        self.whole = False  # was every row of the memory that may be drawn surely written?
        self.seconds = 0.0  # spent on it

    def state(self, device: torch.device) -> dict[str, Tensor]:
        """Over several ranks all of them ask, and each has the state of all."""
        random = {name: ranks.all_gather(tensor.to(device)[None]) for name, tensor in self.randomness.state().items()}
        numbers = {"whole": torch.tensor(self.whole), "seconds": torch.tensor(self.seconds, dtype=torch.float64)}
        return numbers | joined({"stock": self.stock, "random": random, "tape": self.tape.read()})

    @classmethod
    def restored(cls, state: dict[str, Tensor], device: torch.device) -> Place:
        place = cls(part(state, "stock"), Randomness(device))
        place.tape.restore(part(state, "tape"))
        place.randomness.restore({name: of[ranks.rank() % len(of)] for name, of in part(state, "random").items()})
        place.whole, place.seconds = bool(state["whole"]), float(state["seconds"])
        return place


def begin_task(learner: Learner, task: Task) -> dict[str, Tensor]:
    """Tell the method; in the middle of a task it is then as it was. The state the weighting had there."""
    holders = learner.method, *learner.method.parts
    if learner._resumed is None:
        with called_again(learner, *holders):
            learner.method.tell("begin_task", learner, task)
        learner._begun = said(*holders)
        return {}
    with called_again(learner, *holders), untouched(learner), as_begun(learner._begun, *holders):
        learner.method.tell("begin_task", learner, task)
    method, weighting = learner._resumed
    learner.method.restore(method)
    checks.claimed(learner.method, method)
    return weighting


@contextlib.contextmanager
def untouched(learner: Learner) -> Iterator[None]:
    """What a call does to the network, the optimiser or the memory it did when the task began: here it does nothing."""
    memory, network, sgd = learner.memory, copied(learner.net.state()), copied(learner.sgd.state())
    rows, ledger = (memory.x.clone(), memory.y.clone(), copied(memory.stored)), memory.ledger.copy()
    lr = learner.sgd.lr
    yield
    learner.net.unbind().load_state_dict(network)
    learner.sgd.restore(sgd)
    learner.sgd.lr = lr
    memory.x, memory.y, memory.stored = rows
    memory.ledger = ledger


@contextlib.contextmanager
def tested_apart(learner: Learner) -> Iterator[None]:
    """Around the end of a task: what it does to the network alone is not tested where the network's average is."""
    theta, mean = learner.net.theta.detach(), learner.sgd.average.mean
    if mean is None:
        yield
        return
    network, average = theta.clone(), mean.clone()
    yield
    if torch.equal(network, theta) or learner.sgd.average.mean is not mean or not torch.equal(average, mean):
        return
    warnings.warn(
        f"{type(learner.method).__name__}.end_task changes the network, and what is tested is its moving average, "
        "which stays as it was; average=0 tests the network itself",
        Notice,
        stacklevel=1,
    )


def training_set(learner: Learner, task: Task) -> tuple[Tensor, Tensor]:
    """What the method makes of the task; in the middle of it this has to be what it was."""
    x, y = (tensor.to(learner.device) for tensor in learner.method.training_set(learner, task))
    if type(learner.method).training_set is not Method.training_set:
        mark = marked(x, y)
        if learner._resumed is not None and not torch.equal(mark, learner._trained):
            raise BadInput(
                f"this task cannot be gone on from: {type(learner.method).__name__}.training_set gives other samples "
                "now than when the task began, perhaps because the memory has changed; begin it anew"
            )
        learner._trained = mark
    return x, y


def not_finite(learner: Learner, when: str, losses: Tensor, before: int) -> str:
    """Which of these losses, [steps, rows, terms], was the first that is no number, and what may help. `before` them
    there were so many steps."""
    where = f"no longer a finite number {when}"
    zero = "a division by 0, or a root or logarithm of 0,"
    bad = (~losses.isfinite()).any(dim=1).nonzero().tolist()  # by step, then by term
    if not bad:  # it need not be the loss's: OEWC and SI add a pull to the gradient
        too = f", and so may a learning rate as large as {learner.sgd.lr}"
        return f"a parameter is {where}, though every loss is; {zero} makes a gradient that is none{too}"
    (step, term), *others = bad
    terms = [learner.method.names[of] for of in (term, *(of for at, of in others if at == step))]
    place = f"first in step {step + 1}: " if len(losses) > 1 else ""
    where = f"the loss is {where} ({place}{', '.join(terms)})"
    if (step := before + step) > 2:  # the memory has nothing in the first, and a gradient shows in the next
        lr = learner.sgd.lr
        return f"{where}; a smaller learning rate than {lr} may help, such as lr={lr / 10:g}"
    further = f", or a learning rate as large as {learner.sgd.lr}" if step else ""
    return f"{where}; so early it is usually {zero} in a loss or a network, or inputs that are not scaled{further}"


def leave(learner: Learner) -> None:
    """A task has ended or was broken off; between two steps or epochs, the same data go on with it."""
    if not learner.within_task:
        learner._place = None
    elif learner._resumed is None and not learner._torn:
        learner._resumed = learner._reached()


def marked(x: Tensor, y: Tensor) -> Tensor:
    """What samples are known again by: how many they are, and their labels' and their own checksums."""
    sums = (zlib.crc32(of.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data) for of in (y, x))
    return torch.tensor([len(y), *sums])


def remembering(learner: Learner, x: Tensor) -> Memory:
    """The memory; for the first samples it is made."""
    if learner.memory is None:
        if "features" in learner.method.keeps:
            learner.width = learner.features(x[:1]).shape[1]
        like, fields = x[:0].to(learner.device), offered.fields(learner.method, learner)
        learner.memory = Memory(learner.capacity, like, fields, learner.net.theta.dtype)
        learner.memory.ledger.rule = learner.rule
    return learner.memory


def whole(learner: Learner) -> bool:
    """Is every row of the memory that this epoch may draw surely written? A method may leave slots empty."""
    held = learner.memory.held()[1]
    sure = type(learner.method).remember is Method.remember or len(held) == learner.capacity
    return sure and len(held) > 1 and bool((held >= 0).all())  # of a single row a split memory has an empty half


def offers(samples: int, batch: int) -> int:
    """How many rows an epoch over so many samples has, those that top up the last batch included."""
    return math.ceil(samples / batch) * batch


def stock(learner: Learner, samples: int, batch: int, epoch: int = 0, epochs: int = 1) -> dict[str, Tensor]:
    """What the plan of an epoch over so many samples has to know of the memory: its labels, who is in which row, or
    nothing. Where patience may end the task in any epoch, samples are offered singly: that is fair whenever it ends."""
    memory, ledger, watched = learner.memory, learner.memory.ledger, learner._watched
    patient = watched is not None and watched.patience is not None and not epoch
    known: dict[str, Tensor] = {}
    drawn = learner.capacity and learner.method.slot_rule in (reservoir, chances)
    if drawn and (patient or not ledger.regular(samples, offers(samples, batch), epoch, epochs)):
        held = keys(*memory.held()) if ledger.where is None else [key for key, _ in ledger.of]
        known["keys"] = torch.from_numpy(np.frombuffer(b"".join(held), np.uint8).copy()).view(len(held), KEY)
    if known or any(draw.pool == "balanced" for draw in learner.draws):
        known["labels"] = memory.y.clone()
    return known


def plan(
    learner: Learner,
    key: tuple[int, int],
    y: Tensor,
    known: Known,
    batch: int,
    stock: dict[str, Tensor],
    epoch: int = 0,
    epochs: int = 1,
) -> tuple[Plan, Ledger]:
    """The plan of an epoch over samples with these labels, one of a task's epochs, and the memory's ledger when it is
    done. Its random numbers are the key's."""
    memory, method = learner.memory, learner.method
    ledger, rule, place = memory.ledger.copy(), method.slot_rule, None
    labels = stock["labels"].cpu().numpy() if stock else np.zeros(0)
    if "keys" in stock:
        if ledger.where is None:
            ledger.enter(map(bytes, stock["keys"].cpu().numpy()), labels[: ledger.held].tolist())
        offered = lambda rng, order, names, labels: ledger.offer(rng, order, names)
        offer = offered if rule is chances else partial(ledger.place, epoch=epoch)
        place = lambda rng, order: offer(rng, order, *known())
    usual, balanced = rule and place is None, any(draw.pool == "balanced" for draw in learner.draws)
    presented = ledger.passed(offers(len(y), batch), epoch, epochs) if usual else ledger.presented
    steps = plan_epoch(
        learner.seed,
        *key,
        samples=len(y),
        batch=batch,
        draws=learner.draws,
        views=method.views,
        labels=(labels, y.cpu().numpy()) if balanced else None,
        capacity=learner.capacity,
        presented=presented,
        slot_rule=rule,
        pad=learner.inputs.pad,
        flip=learner.inputs.flip,
        place=place,
        device=learner.device,
    )
    return sharded(steps, batch, learner.draws, method.views), ledger
