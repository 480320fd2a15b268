"""Learning from a stream of mini-batches that knows no tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn import checks
from everlearn.core.capture import on_own_stream, train_epoch
from everlearn.core.feeding import steps_of
from everlearn.core.ledger import Ledger, keys
from everlearn.core.memory import Memory
from everlearn.core.part import Part
from everlearn.core.seeding import Randomness
from everlearn.core.tape import Tape
from everlearn.data import Task
from everlearn.errors import BadInput, EverlearnError
from everlearn.learner import endings, growth, teaching, unkept

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

NO_TASK = 2**31  # stands for a task's number in the plans and random numbers of mini-batches without tasks


class Prequential:
    """Test, then train: how well each sample was classified before it was learned from."""

    def __init__(self) -> None:
        self.batches, self.samples, self.right = 0, 0, 0

    @property
    def accuracy(self) -> float | None:
        """Over all samples observed; None before the first."""
        return self.right / self.samples if self.samples else None

    def __repr__(self) -> str:
        known = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        return f"<Prequential: {self.samples} samples in {self.batches} batches{known}>"

    def state(self) -> Tensor:
        return torch.tensor([self.batches, self.samples, self.right])

    def restore(self, state: Tensor | None) -> None:
        self.batches, self.samples, self.right = [0, 0, 0] if state is None else state.tolist()


def observe(learner: Learner, data: Any, labels: Any = None) -> float:
    """One step on a mini-batch; the accuracy on it beforehand."""
    refuse(learner)
    checks.rate(learner)
    with endings.between_steps(), learner.net.turn:
        learner._settled()
        with growth.undone(learner):
            return _observe(learner, data, labels)


def _observe(learner: Learner, data: Any, labels: Any) -> float:
    counts, known, method, learner._ended = learner.prequential, learner.classes, learner.method, False
    task = learner._task(data, labels)
    x, y = (tensor.to(learner.device) for tensor in task.train)
    # Beforehand the classes that come with it had no outputs.
    right = int((learner._scores(task.train[0])[:, :known].argmax(dim=1) == y).sum()) if known else 0
    with on_own_stream(), learner._threads(), torch.enable_grad():
        steps = ready(learner, task, x, y)
        before = unkept.plain(method, *method.parts)  # one that goes on later has no begin_task before its first step
        if not set(task.classes) <= learner.seen or not counts.batches:
            method.tell("begin_task", learner, task)
            learner.seen |= set(task.classes)
        learner._torn = True
        method.weighting.begin_stream(len(steps.memory) == learner.capacity)
        learner.sgd.average.begin_task(None)
        before |= unkept.plain(method.weighting)  # from here: what begin_stream says, it says before every mini-batch
        losses, after = steps.take(learner, counts.batches, x, y)
        if not (torch.isfinite(losses).all() and torch.isfinite(learner.net.theta).all()):
            when = f"after {counts.samples} samples"
            raise EverlearnError(teaching.not_finite(learner, when, losses, counts.batches))
        unkept.tell_lost(learner, before, unkept.plain(method, *method.parts, method.weighting))
        learner.memory.ledger, learner._torn = after, False
    counts.batches, counts.samples, counts.right = counts.batches + 1, counts.samples + len(y), counts.right + right
    return right / len(y)


class Steps:
    """The steps on mini-batches of one shape; on a GPU they are recorded, as those of a task are."""

    def __init__(self, learner: Learner, memory: Memory, x: Tensor, y: Tensor):
        method = learner.method
        self.memory, self.written = memory, written(learner)  # kept, so that no others can have their place
        self.x, self.y = x.clone(), y.clone()  # where a recorded step reads
        self.body = steps_of(method, learner.net, learner.sgd, memory, learner.inputs.training, (self.x, self.y))
        self.graphs = teaching.graphs_for(learner, self.body)
        self.randomness = Randomness(learner.device)
        self.fit = fit(learner, x)

    def take(self, learner: Learner, number: int, x: Tensor, y: Tensor) -> tuple[Tensor, Ledger]:
        """The step on mini-batch `number`: its losses, and the memory's ledger when it is done."""
        weighting, memory = learner.method.weighting, self.memory
        learner.net.train()
        memory.whole = teaching.whole(learner)
        known, batch = lambda: (keys(x, y), y.tolist()), len(y)
        stock = teaching.stock(learner, batch, batch)
        rows, after = teaching.plan(learner, (NO_TASK, number), y, known, batch, stock)
        self.x.copy_(x)
        self.y.copy_(y)
        kind = lambda step: (weighting.variant(step), memory.whole)
        tape, randomness = Tape(), self.randomness.start(learner.seed, NO_TASK, number)
        try:
            for _ in randomness.alone(train_epoch(self.body, rows, kind, tape, self.graphs)):
                pass
            return tape.read()["losses"], after
        finally:
            learner.net.unbind()


def fit(learner: Learner, x: Tensor) -> tuple:
    """What steps were made for: samples, outputs, and the tensors that are written to."""
    return x.shape, x.dtype, learner.classes, *map(id, written(learner))


def written(learner: Learner) -> list[Tensor]:
    """The tensors a step writes to, but for those of the method, the weighting and the descent."""
    memory = learner.memory
    return [learner.net.theta, *([] if memory is None else [memory.x, memory.y, *memory.stored.values()])]


def ready(learner: Learner, task: Task, x: Tensor, y: Tensor) -> Steps:
    """Steps for such a mini-batch: those of the last one, if they fit."""
    if learner._steps is None or learner._steps.fit != fit(learner, x) or learner.net.refrozen:
        checks.ready(learner, task, len(y))
        learner._steps = Steps(learner, teaching.remembering(learner, x), x, y)
    return learner._steps


def refuse(learner: Learner) -> None:
    """What lives on the end of tasks learns nothing of a stream without."""
    method, weighting = learner.method, learner.method.weighting
    if any(type(of).end_task is not Part.end_task for of in (method, *method.parts)) or method.merges:
        raise BadInput(
            f"{type(method).__name__} keeps what it needs at the end of a task, and observe knows none; use update, "
            "or a method that rehearses, such as er or der++"
        )
    if not weighting.streams:
        raise BadInput(
            f"{type(weighting).__name__} has two phases per task, and observe knows no tasks; "
            "use update, or another weighting, such as fixed or relation"
        )
    if not learner._torn:
        checks.between_tasks(learner)
