"""Learning from a stream of mini-batches that knows no tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn import checks
from everlearn.core.capture import on_own_stream, train_epoch
from everlearn.core.feeding import steps_of
from everlearn.core.ledger import keys
from everlearn.core.seeding import Randomness
from everlearn.errors import BadInput, EverlearnError
from everlearn.learner import growth, teaching
from everlearn.methods.base import Method

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

NO_TASK = 2**31  # where plans are told tasks apart, the number of none


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
    with growth.undone(learner):
        return _observe(learner, data, labels)


def _observe(learner: Learner, data: Any, labels: Any) -> float:
    method, weighting, counts = learner.method, learner.method.weighting, learner.prequential
    known = learner.classes
    task = learner._task(data, labels)
    checks.ready(learner, task, len(task.train[0]))
    x, y = (tensor.to(learner.device) for tensor in task.train)
    right = 0
    if known:
        guesses = learner._scores(task.train[0]).argmax(dim=1)
        right = int((guesses == y).sum())
    with on_own_stream(), learner._threads(), torch.enable_grad():
        memory = teaching.remembering(learner, x)
        if not set(task.classes) <= learner.seen or not counts.batches:
            method.begin_task(learner, task)
            learner.seen |= set(task.classes)
        weighting.begin_stream()
        learner.net.train()
        memory.whole, learner._broken_off = teaching.whole(learner), True
        samples = lambda: (keys(x, y), y.tolist())
        rows, after = teaching.plan(learner, (NO_TASK, counts.batches), y, samples, len(y))
        body = steps_of(method, learner.net, learner.sgd, memory, learner.inputs.training, (x, y))
        try:
            randomness = Randomness(learner.device).start(learner.seed, NO_TASK, counts.batches)
            tape = yield_all(randomness.alone(train_epoch(body, rows, weighting.variant)))
        finally:
            learner.net.unbind()
        if not torch.isfinite(tape.read()["losses"]).all():
            raise EverlearnError(
                f"the loss is no longer a finite number after {counts.samples} samples; "
                f"a smaller learning rate than {learner.sgd.lr} may help"
            )
        memory.ledger, learner._broken_off = after, False
    counts.batches, counts.samples, counts.right = counts.batches + 1, counts.samples + len(y), counts.right + right
    return right / len(y)


def yield_all(steps: Any) -> Any:
    """Take all steps; what they give at the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def refuse(learner: Learner) -> None:
    """What lives on the end of tasks learns nothing of a stream without."""
    method, weighting = learner.method, learner.method.weighting
    if type(method).end_task is not Method.end_task or method.merges:
        raise BadInput(
            f"{type(method).__name__} keeps what it needs at the end of a task, and observe knows none; use update, "
            "or a method that rehearses, such as er or der++"
        )
    if not weighting.streams:
        raise BadInput(
            f"{type(weighting).__name__} has two phases per task, and observe knows no tasks; "
            "use update, or another weighting, such as fixed or relation"
        )
    if learner.epoch:
        raise BadInput(f"this learner is {learner.epoch} of {learner.epochs} epochs into a task; update ends it first")
