"""A continual learner: a method, a network and a memory, taught one task after another."""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from everlearn import checks
from everlearn.core import ranks
from everlearn.core.capture import Graphs, on_own_stream, train_epoch
from everlearn.core.feeding import steps_of
from everlearn.core.memory import Memory
from everlearn.core.plan import Draw, Plan, plan_epoch, sharded
from everlearn.core.seeding import Randomness
from everlearn.core.state import joined, part
from everlearn.core.step import SGD
from everlearn.core.theta import MainNet, small
from everlearn.data import Pixels, Stream, Task
from everlearn.errors import BadInput, EverlearnError
from everlearn.methods.base import Method
from everlearn.metrics import Accuracies, accuracy
from everlearn.registry import find, weighed
from everlearn.training import Training
from everlearn.weightings.base import Weighting

EVALUATION_BATCH = 500
Stepping = Generator[None, None, None]  # a pause after each step


class Learner:
    """Teach it with `update(task)`, ask it with `predict(images)`, from one thread at a time.

    `method` and `weighting` are names, as on the command line, or objects; `training` is a Training, or give its fields
    one by one: `epochs=5, lr=0.1`.
    `network` is any nn.Module from images to `classes` logits, as many as there will ever be; it is trained in place:
    `network.eval()(learner.pixels(images))` is what `logits(images)` is. What is frozen in it stays so, and so do
    layers in evaluation mode if they are frozen or the network itself is not. `pixels` says how stored images become
    its input (`stream.pixels`). On a GPU steps are recorded and replayed (`capture`), and BatchNorm's kernels are
    compiled, all batches sharing a pass (`compile`). In a process group of torch.distributed the learners of all ranks
    are one, which takes the whole `batch` per step, and are taught alike.
    """

    method: Method
    classes: int
    training: Training
    seed: int
    epochs: int
    batch: int
    device: torch.device
    capacity: int  # of the memory; 0 where the method keeps none
    pixels: Pixels
    given_pixels: bool
    width: int  # of the features, where the method keeps them

    def __init__(
        self,
        network: nn.Module,
        method: str | Method = "er",
        weighting: str | Weighting | None = None,
        *,
        classes: int,
        memory: int = 200,
        training: Training | None = None,
        pixels: Pixels | None = None,
        capture: bool = True,
        compile: bool | None = None,
        seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> None:
        method = named(method, weighting)
        checks.parts(method, network, pixels)
        training = checks.training(training, settings)
        checks.numbers(classes=classes, seed=seed, **({"memory": memory} if method.remembers else {}))
        self.draws: tuple[Draw, ...] = sum(method.all_draws(), ())
        checks.draws(self.draws, memory, training.batch)
        self.method, self.classes, self.training, self.seed = method, classes, training, int(seed)
        self.epochs, self.batch = training.epochs, training.batch
        self.device, self.capacity = checks.device(device), memory if method.remembers else 0
        self.net: MainNet = MainNet(network, self.device, dtype, training.forward, training.precision, compile)
        self.net.reads = method.features or "features" in method.keeps
        able = method.captures and self.device.type == "cuda" and not ranks.distributed()
        self.capture: bool = capture and able
        self.pixels, self.given_pixels = (pixels or Pixels()).to(self.device, dtype), pixels is not None
        self.sgd: SGD = SGD(training.lr, training.momentum, training.weight_decay)
        self.memory: Memory | None = None  # made when the first images show their shape
        self.tasks: int = 0  # learned so far
        self.epoch: int = 0  # epochs of the task in hand
        self._resumed: dict[str, Tensor] | None = None  # the method's state, of a task left in the middle
        self.seen: set[int] = set()  # classes of the tasks learned so far
        self._broken_off = False  # in the middle of a task
        self._torn = False  # in the middle of an epoch
        self._mark = torch.zeros(3, dtype=torch.long)  # of the task in hand
        method.weighting.check(method)
        for of in (method, method.weighting):  # they keep state of their own: masks, anchors, the RRN
            if vars(of).setdefault("learner", self) is not self:
                raise BadInput(f"this {type(of).__name__} object teaches another learner already; make a new one")
        method.weighting.begin(method, self.net, self.seed)
        begun = method.weighting.state().items()
        self.begun: dict[str, torch.Size] = {name: tensor.shape for name, tensor in begun if tensor.numel()}

    def update(self, task: Task, report: Callable[[dict[str, Any]], None] = lambda record: None) -> None:
        """Learn one more task. `report` gets a record of every epoch.

        A task of fewer images than `batch` is filled up with copies, which the memory takes for images: where tasks are
        that small, so should the batch be.
        """
        with on_own_stream(), self._threads(), torch.enable_grad():
            for _ in self._updating(task, report, Randomness.alone):
                pass

    def updating(self, task: Task, report: Callable[[dict[str, Any]], None] = lambda record: None) -> Stepping:
        """The same, one step at a time, so that several learners can share a GPU.

        What a network draws itself (dropout) is what it would draw undisturbed, and between two steps torch's
        generators are the caller's.
        """
        return self._updating(task, report, Randomness.by_turns)

    def _updating(self, task: Task, report: Callable[[dict[str, Any]], None], drawing: Callable) -> Stepping:
        if self._broken_off:
            raise BadInput(
                "the last task was broken off in the middle; restore a state from before it, or make a new learner"
            )
        checks.task(self, task)
        mark = marked(task)
        if self.epoch and not torch.equal(mark, self._mark):
            raise BadInput(
                f"this learner is {self.epoch} of {self.epochs} epochs into another task; give it that one first"
            )
        self._mark, self._broken_off = mark, True
        try:
            yield from self._learn(task, report, drawing)
        finally:
            self.net.unbind()  # the network is its owner's again, whatever happened
        self._broken_off = False

    def _learn(self, task: Task, report: Callable[[dict[str, Any]], None], drawing: Callable) -> Stepping:
        method, weighting, names = self.method, self.method.weighting, self.method.names
        if self.memory is None:
            like = task.train[0][:0].to(self.device)
            if "features" in method.keeps:
                self.width = self.features(task.train[0][:1]).shape[1]
            self.memory = Memory(self.capacity, like, method.fields(self), self.net.theta.dtype)
        x, y = (tensor.to(self.device) for tensor in method.training_set(self, task))
        method.begin_task(self, task)
        if self._resumed is not None:
            method.restore(self._resumed)
            checks.claimed(method, self._resumed)
            self._resumed = None
        body = steps_of(method, self.net, self.sgd, self.memory, self.pixels, (x, y))
        graphs = Graphs(body, method, weighting, self.sgd) if self.capture else None
        randomness = Randomness(self.device)
        plan = self._plan(self.epoch, y)
        for epoch in range(self.epoch, self.epochs):
            start, self._torn = time.perf_counter(), True
            weighting.begin_epoch(self.tasks, epoch, self.epochs)
            self.net.train()
            # For dropout and the like in the network: each rank's rows have masks of their own.
            key = (self.seed, self.tasks, epoch, *([ranks.rank()] if ranks.distributed() else []))
            self.memory.whole = self._whole()
            kind = lambda number: (weighting.variant(number), self.memory.whole)
            steps = train_epoch(body, plan, kind, graphs)
            tape = yield from drawing(randomness.start(*key), steps)
            if method.slot_rule:
                self.memory.presented += len(plan) * self.batch
            if epoch + 1 < self.epochs:
                plan = self._plan(epoch + 1, y)  # while a GPU is still at work on this one
            kept = tape.read()
            losses = kept["losses"].mean(dim=(0, 1)).tolist()
            if not (all(map(math.isfinite, losses)) and torch.isfinite(self.net.theta).all()):
                raise EverlearnError(
                    f"the loss is no longer a finite number in epoch {epoch + 1} of task {self.tasks + 1}; "
                    f"a smaller learning rate than {self.sgd.lr} may help (--set lr={self.sgd.lr / 10:g})"
                )
            self.epoch, self._torn = epoch + 1, False
            report(
                {
                    "event": "epoch",
                    "task": self.tasks,
                    "epoch": epoch,
                    "loss": dict(zip(names, losses)),
                    "seconds": time.perf_counter() - start,
                    **weighting.report(names, kept),
                }
            )
        self._torn = True
        method.end_task(self, task)
        self.seen |= set(task.classes)
        self.tasks, self.epoch, self._torn = self.tasks + 1, 0, False

    def _whole(self) -> bool:
        """Is every row of the memory that this epoch may draw surely written? A method may leave slots empty."""
        held = self.memory.held()[1]
        sure = type(self.method).remember is Method.remember or len(held) == self.capacity
        return sure and len(held) > 1 and bool((held >= 0).all())  # of a single row a split memory has an empty half

    def _plan(self, epoch: int, labels: Tensor) -> Plan:
        balanced = any(draw.pool == "balanced" for draw in self.draws)
        known = (self.memory.y.cpu().numpy(), labels.cpu().numpy()) if balanced else None
        plan = plan_epoch(
            self.seed,
            self.tasks,
            epoch,
            samples=len(labels),
            batch=self.batch,
            draws=self.draws,
            views=self.method.views,
            labels=known,
            capacity=self.capacity,
            presented=self.memory.presented,
            slot_rule=self.method.slot_rule,
            pad=self.pixels.pad,
            flip=self.pixels.flip,
            device=self.device,
        )
        return sharded(plan, self.batch, self.draws, self.method.views)

    def state(self) -> dict[str, Tensor]:
        """All it has learned, between two epochs (`report` is called there) or two tasks; `restore` goes on from it."""
        if self._torn:
            raise BadInput("an epoch was broken off in the middle; only a state from before it can be gone on from")
        method, memory = self.method, self.memory
        parts = {
            "network": self.net.state(),
            "method": method.state(),
            "weighting": method.weighting.state(),
            "sgd": self.sgd.state(),
            "memory": {} if memory is None else memory.state(),
            "learner": {
                "progress": torch.tensor([self.tasks, self.epoch, memory.presented if memory else 0]),
                "task": self._mark,
                "seen": torch.tensor(sorted(self.seen), dtype=torch.long),
                "method": torch.tensor([*type(method).__name__.encode()], dtype=torch.uint8),
                "weighting": torch.tensor([*type(method.weighting).__name__.encode()], dtype=torch.uint8),
            },
        }
        return {name: tensor.detach().clone() for name, tensor in joined(parts).items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Be where a learner made with the same settings was. The next `update` takes the task it had begun."""
        checks.state(self, state)
        state = {name: tensor.detach().to(self.device, copy=True) for name, tensor in state.items()}
        self.net.unbind().load_state_dict(part(state, "network"))
        self.tasks, self.epoch, presented = state["learner.progress"].tolist()
        self.seen, self._mark = set(state["learner.seen"].tolist()), state["learner.task"].cpu()
        self.memory, self._broken_off, self._torn = None, False, False
        if memory := part(state, "memory"):
            self.memory = Memory(self.capacity, memory["x"])
            self.memory.restore(memory)
            self.memory.presented = presented
        self.sgd.restore(part(state, "sgd"))
        self.method.restore(part(state, "method"))
        self.method.weighting.restore(part(state, "weighting"))
        self._resumed = part(state, "method") if self.epoch else None
        if not self.epoch:
            checks.claimed(self.method, part(state, "method"))

    @property
    def small(self) -> bool:
        """Is it taught on one thread?"""
        return self.device.type == "cpu" and small(self.net.theta.numel())

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(1 if self.small else before)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """The network's answer to images as stored, [N, classes]."""
        answer = self._asked(lambda part: self.net.at(self.net.theta)(part)[0], x)
        if answer.shape != (len(x), self.classes):
            raise BadInput(
                f"the network answers an image with a tensor of shape {tuple(answer.shape[1:])}; "
                f"it should be {self.classes} logits, one a class"
            )
        return answer

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What the network's head, or its last linear layer, reads of images as stored, [N, d]."""
        return self._asked(self.net.features, x)

    def _asked(self, question: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        checks.images(self, x)
        self.net.sync()
        try:
            with self.net.evaluating():
                return torch.cat([question(self.pixels(part.to(self.device))) for part in x.split(EVALUATION_BATCH)])
        finally:
            self.net.unbind()

    def predict(self, x: Tensor) -> Tensor:
        """The most likely class of each image."""
        return self.method.predict(self, x).argmax(dim=1)

    def evaluate(self, stream: Stream) -> Accuracies:
        """Accuracy on the test images of every task of a stream, learned or not."""
        tasks = checks.stream(self, stream)
        score = lambda task: self.method.predict(self, task.test[0])
        rows = [accuracy(score(task), task.test[1].to(self.device), task.classes) for task in tasks]
        return Accuracies(*torch.tensor(rows).T.tolist())


def named(method: str | Method, weighting: str | Weighting | None) -> Method:
    """The method, with its weighting; either may be given by name."""
    if isinstance(method, str):
        name, weighting = weighed(method, weighting)
        made: Method = find("method", name)()
    else:
        made = method
    if weighting is not None and hasattr(made, "weighting"):
        made.weighting = find("weighting", weighting)() if isinstance(weighting, str) else weighting
    return made


def marked(task: Task) -> Tensor:
    """What a task is known again by: its size, its labels, its first image."""
    x, y = task.train
    sums = (zlib.crc32(of.double().cpu().numpy().tobytes()) for of in (y, x[:1]))  # numpy knows no bfloat16
    return torch.tensor([len(y), *sums])
