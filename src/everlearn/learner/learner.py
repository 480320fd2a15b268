"""A continual learner: a method, a network and a memory, taught one task after another."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from everlearn import checks
from everlearn.core import ranks
from everlearn.core.capture import on_own_stream
from everlearn.core.memory import Memory
from everlearn.core.plan import Draw
from everlearn.core.seeding import Randomness
from everlearn.core.state import copied
from everlearn.core.step import SGD
from everlearn.core.theta import MainNet, small
from everlearn.core.turns import each
from everlearn.data import Inputs, Pixels, Task
from everlearn.data import inputs as inputs_of
from everlearn.errors import BadInput, number
from everlearn.learner import forgetting, growth, observing, saved, states, teaching, unkept, watching
from everlearn.learner.answering import Answering
from everlearn.learner.estimator import Estimator
from everlearn.learner.labels import Labels, coded
from everlearn.methods.base import Method
from everlearn.registry import find, weighed
from everlearn.training import Training
from everlearn.weightings.base import Weighting

Stepping = Generator[None, None, None]  # a pause after each step
Report = Callable[[dict[str, Any]], None]


class Learner(Answering, Estimator):
    """Teach it with `update(data)`, ask it with `predict(samples)`. Several threads may ask, while one teaches, too.

    `network` is any nn.Module from samples to logits; it is trained in place. `method` and `weighting` are names, as on
    the command line, or objects; `training` is a Training, or give its fields one by one: `epochs=5, lr=0.1`.
    `classes` may be left open: the network's last layer then has an output for each class met so far, and grows. A
    number says how many there will be at most, and a list of labels that those compete from the start. `memory` is a
    number of rows; `"balanced:500"` keeps equally many of each class, as far as there are. `inputs` says how stored
    samples become the network's input: a Pixels, an Inputs, or a function of a batch; by default bytes [N, C, H, W] are
    divided by 255 and anything else is as it is.
    What is frozen in the network stays so, and so do layers in evaluation mode if they are frozen or the network itself
    is not. On a GPU steps are recorded and replayed (`capture`), and BatchNorm has kernels in Triton, all batches
    sharing a pass (`compile`). In a process group of torch.distributed the learners of all ranks are one, which takes
    the whole `batch` per step, and are taught alike.
    """

    method: Method
    training: Training
    seed: int
    batch: int
    device: torch.device
    capacity: int  # of the memory; 0 where the method keeps none
    inputs: Any  # a Pixels or an Inputs; None until the first samples come, if nobody has said which
    width: int  # of the features, where the method keeps them
    changed_inputs: bool = False  # may a state have been made with other inputs?
    built: dict[str, Any] | None = None  # how to build its network, where that is known

    def __init__(
        self,
        network: nn.Module,
        method: str | Method = "er",
        weighting: str | Weighting | None = None,
        *,
        classes: int | Iterable[Hashable] | None = None,
        memory: int | str = 200,
        training: Training | None = None,
        inputs: Pixels | Inputs | Callable[[Tensor], Tensor] | None = None,
        capture: bool = True,
        compile: bool | None = None,
        seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> None:
        training = checks.training(training, settings, method)
        given = dict(method=method, weighting=weighting, classes=classes, memory=memory, training=training)
        given |= dict(inputs=inputs, capture=capture, compile=compile, seed=seed, device=device, dtype=dtype)
        checks.network(network)
        self._keep_first(network, given)
        method = named(method, weighting)
        checks.method(method)
        capacity, self.rule = checks.memory(method, memory)
        number("seed", seed, whole=True)
        if not dtype.is_floating_point or dtype.itemsize < 4:
            why = "cannot be trained" if not dtype.is_floating_point else "is too coarse for small steps"
            more = ", and precision='bfloat16' for fast passes on a GPU" if dtype.is_floating_point else ""
            raise BadInput(f"a network of {dtype} {why}; give dtype=torch.float32{more}")
        self.labels = Labels(classes)
        self.told: Labels | None = None if classes is None else Labels(self.labels.limit or self.labels.names)
        self.draws: tuple[Draw, ...] = sum(method.all_draws(), ())
        checks.draws(self.draws, capacity, training.batch, chosen=type(method).select is not Method.select)
        self.method, self.training, self.seed = method, training, int(seed)
        self.batch = training.batch
        self.device, self.capacity = checks.device(device), capacity
        self.net: MainNet = MainNet(network, self.device, dtype, training.forward, training.precision, compile)
        self.net.reads = method.features or "features" in method.keeps
        self.capture: bool = capture and self.device.type == "cuda" and not ranks.distributed()
        self.dtype, self.given_inputs, self.columns = dtype, inputs, None
        self.inputs = None if inputs is None else inputs_of.made(inputs).to(self.device, dtype)
        self.sgd: SGD = SGD(training.lr, training.momentum, training.weight_decay, training.decay(method.averages))
        self.memory: Memory | None = None  # made when the first samples show their shape
        self.head: str | None = None  # the layer that grows, by name; found when it has to
        self._uncut: list[Tensor] = []  # its weights before the first class came
        self.tasks: int = 0  # learned so far
        self.epoch: int = 0  # epochs of the task in hand
        self.step: int = 0  # steps taken of the epoch in hand
        self.steps: int = 0  # steps that epoch has
        self._place: teaching.Place | None = None  # what that epoch was planned from, its random numbers and records
        self._resumed: tuple[dict, dict] | None = None  # in a task to go on with: the method's and weighting's states
        self._begun = "[]"  # the plain values its method had when the task in hand began
        self.seen: set[int] = set()  # classes of the tasks learned so far
        self.prequential = observing.Prequential()
        self._steps: observing.Steps | None = None  # those of `observe`, made for mini-batches shaped like the last
        self._told_lost: set[str] = set()  # attributes a warning has named that are in no state
        self._learning = False  # is it going through the steps of a task?
        self._teacher: int | None = None  # the thread whose `update` is under way
        self._torn = False  # is it in the middle of a step, or of a task's end, from where nothing can go on?
        self._ended = False  # was the last task learned, but its `update` interrupted before it returned?
        self._stopping = False  # is this epoch to be the last of its task?
        # Checksums of the samples of the task in hand, and of those the method makes of them to train on.
        self._mark, self._trained = torch.zeros(2, 3, dtype=torch.long)
        self._left: tuple | None = None  # the loader given to the `update` under way, and the data read from it
        self._watched: watching.Watched | None = None  # callbacks and validation of the task in hand, in this process
        method.weighting.check(method)
        self.specs = saved.specs(method)
        for of in (method, method.weighting):  # they keep state of their own: masks, anchors, the RRN
            if vars(of).setdefault("learner", self) is not self:
                raise BadInput(f"this {type(of).__name__} object teaches another learner already; make a new one")
        method.weighting.begin(method, self.net, self.seed)
        self.made: unkept.Plain = unkept.plain(method, *method.parts, method.weighting)
        begun = method.weighting.state().items()
        self.begun: dict[str, torch.Size] = {name: tensor.shape for name, tensor in begun if tensor.numel()}

    def __repr__(self) -> str:
        method, weighting = type(self.method).__name__, type(self.method.weighting).__name__
        by = "" if weighting == "Fixed" else f" weighed by {weighting}"
        kept = f", samples kept {sum(self.kept().values())} of {self.capacity}" if self.capacity else ""
        return f"<Learner: {method}{by}; tasks {self.tasks}, classes {self.classes}{kept}>"

    @property
    def epochs(self) -> int:
        """Per task; it may be set anew between two tasks."""
        return self._made_with["training"].epochs

    @epochs.setter
    def epochs(self, epochs: int) -> None:
        number("epochs", epochs, whole=True, positive=True)
        if self.within_task:
            raise BadInput(f"{self.epoch} of {self.epochs} epochs into a task their number cannot change; end it first")
        self._made_with["training"] = replace(self._made_with["training"], epochs=int(epochs))

    @property
    def within_task(self) -> bool:
        """Has it taken a step of a task that is not learned yet?"""
        return bool(self.epoch or self.step)

    @property
    def classes(self) -> int:
        """The number of classes the network has outputs for. They are those met so far, or all that were named."""
        return len(self.labels)

    @property
    def classes_(self) -> np.ndarray:
        """Their labels, by output."""
        return self.labels.array()

    # Teaching -----------------------------------------------------------------------------------------------------
    def update(
        self,
        data: Any,
        labels: Any = None,
        *,
        validation: Any = None,
        patience: int | None = None,
        progress: bool | None = None,
        on_epoch: Callable[[Learner, dict[str, Any]], Any] | None = None,
        on_task: Callable[[Learner, dict[str, Any]], Any] | None = None,
        report: Report = lambda record: None,
    ) -> Learner:
        """Learn one more task, and keep what was learned before.

        `data` are a Dataset, a DataLoader, (samples, labels), a folder of class folders, an .npz file or a Task; each
        sample is read once. `validation`, more such data or a share of these, is tested on after each epoch; with
        `patience` the task ends when that has not got better for so many epochs, and the network is the best epoch's.
        `on_epoch` and `on_task` are called with the learner and a record; what they raise is said in a warning, and
        `learner.stop()` ends the task after the epoch. Ctrl-C waits for the end of the step, and the same `update` goes
        on with the task. `progress` is shown in a terminal, unless it is False.
        """
        with self._claimed(), growth.undone(self):
            with self.net.turn:
                half, left = self.within_task, self._left
                if (half or self._ended) and left is not None and left[0] is data:  # in another order now, perhaps
                    task, held_out = left[1]
                else:
                    task, held_out = watching.split(self, self._task(data, labels), validation)
                if not half:
                    self._left = (data, (task, held_out)) if isinstance(data, (DataLoader, Dataset)) else None
                watching.normalised_apart(self, task.train[1])
                watched = watching.Watched(self, held_out, patience, on_epoch, on_task, report)
            with on_own_stream(), self._threads(), torch.enable_grad():
                watched.teach(task, progress)
        self._left = None
        watched.task(task)
        return self

    def updating(self, task: Task, report: Report = lambda record: None) -> Stepping:
        """The same, one step at a time, so that several learners can share a GPU.

        What a network draws itself (dropout) is what it would draw undisturbed, and between two steps torch's
        generators are the caller's. On a GPU each learner's steps are gone through on a stream of its own, within
        `with torch.cuda.stream(torch.cuda.Stream())`.
        """
        return self._updating(self._task(task), report, Randomness.by_turns)

    def stop(self) -> None:
        """End the task in hand after this epoch, as if it had no more: it is learned, and the next one may come."""
        self._stopping = True

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[None]:
        """Inside, no other thread teaches it."""
        with self.net.turn:
            self._settled()
            self._teacher = threading.get_ident()
        try:
            yield
        finally:
            self._teacher = None

    def _settled(self) -> None:
        """Refuse while a task is being learned, here or in another thread, and after one was broken off in a step."""
        if self._learning or self._teacher not in (None, threading.get_ident()):
            raise BadInput(teaching.UNDER_WAY)
        if self._torn:
            raise BadInput(teaching.BROKEN_OFF)

    def _task(self, data: Any, labels: Any = None) -> Task:
        """Data as a task, its labels the numbers of outputs; unseen classes have got theirs, if the head can grow."""
        self._settled()
        whole = isinstance(data, Task)
        if whole:
            checks.half("train", data)
            if data.test is not None:
                checks.half("test", data)
            names, codes = self.labels.called(data, [*map(int, data.classes)]), None
            x = data.train[0]
        else:
            x, y = self._taught(data, labels)
            x = self._stored(x)
            names, codes = coded(y)
        self._receive(x)
        checks.samples(self, x)
        new = self.labels.new(names)
        growth.grow(self, new, x)
        if whole and self.labels.numbered:
            return data
        numbers = self.labels.numbers(names)
        if whole:
            table = dict(zip(map(int, data.classes), numbers))
            as_numbers = lambda half: half and (half[0], torch.tensor([table[int(c)] for c in half[1]]))
            return Task(as_numbers(data.train), as_numbers(data.test), tuple(numbers))
        return Task((x, torch.tensor(numbers)[codes]), classes=tuple(sorted(numbers)))

    def _receive(self, x: Tensor) -> None:
        """The first samples show what they need, if nobody has said it."""
        if self.inputs is None:
            self.inputs = inputs_of.made(self.given_inputs, x).to(self.device, self.dtype)

    def _stored(self, x: Tensor) -> Tensor:
        """Samples in the type they are kept in: floats in the network's, and whole numbers after floats as floats."""
        kind = self.dtype if self.memory is None else self.memory.x.dtype
        whole = x.dtype == torch.long and self.memory is not None and not isinstance(self.inputs, Pixels)
        return x.to(kind) if (x.is_floating_point() or whole) and kind.is_floating_point else x

    def _reached(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What the method and the weighting have come to, to go on from in the middle of a task."""
        return copied(self.method.state()), copied(self.method.weighting.state())

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

    def _updating(self, task: Task, report: Report, drawing: Callable, stopped: bool = False) -> Stepping:
        checks.ready(self, task, self.batch)
        mark = teaching.marked(*task.train)
        if self.within_task and not torch.equal(mark, self._mark):
            raise BadInput(
                f"this learner is {self.epoch} of {self.epochs} epochs into another task; give it that one first, "
                "exactly as it was (what is shuffled is another, unless it is the same object in the same process), or "
                "load what was saved before that task"
            )
        self._mark, self._learning, self._stopping, self._ended = mark, True, stopped, False
        try:
            with contextlib.closing(teaching.learn(self, task, report, drawing)) as steps:
                yield from each(self.net.turn, steps)
        finally:
            self._learning = False
            self.net.unbind()  # the network is its owner's again, whatever happened
            teaching.leave(self)

    def observe(self, data: Any, labels: Any = None) -> float:
        """Learn from a mini-batch as it comes, one step, with no task around it; the accuracy on it beforehand.

        `prequential` keeps that accuracy over all that was observed. Ctrl-C comes when the mini-batch is learned: go on
        with the next. Methods and weightings that live on the end of tasks or epochs are refused.
        """
        return observing.observe(self, data, labels)

    def forget(self, predicate: Callable[[Tensor, Any], bool]) -> dict[Any, int]:
        """Take every sample out of the memory for which predicate(sample, label) holds; how many, by label.

        The network is as it was. What comes takes the free rows, no faster than keeps the memory a fair sample. A task
        that is under way has to end first.
        """
        with self._claimed():
            return forgetting.forget(self, predicate)

    def kept(self) -> dict[Any, int]:
        """How many samples the memory holds, by label."""
        held = torch.zeros(0, dtype=torch.long) if self.memory is None else self.memory.held()[1]
        counts = torch.bincount(held[held >= 0], minlength=self.classes).tolist()
        return dict(zip(self.labels.names, counts))

    # Keeping ------------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        """All it has learned, between two tasks, epochs (in callbacks) or steps (of `updating`); `restore` goes on from
        it. Between two steps all ranks ask for it."""
        with self.net.turn:
            return states.state(self)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Be where a learner made with the same settings was. The next `update` takes the task it had begun."""
        with self.net.turn:
            states.restore(self, state)

    def save(self, folder: str | PathLike[str]) -> None:
        """Keep it in a folder: all it has learned, its memory, its settings; no code, and nothing is pickled."""
        saved.save(self, folder)

    @classmethod
    def load(
        cls, folder: str | PathLike[str], network: nn.Module | str | Mapping[str, Any] | None = None, **settings: Any
    ) -> Learner:
        """The learner that was saved there, exactly; `network` is one like it had, trained or not, or what builds it:
        a name, as on the command line, or a table of a name and options.

        A method, a weighting or inputs that only exist in your program are given again, as they were. `device` may be
        another. A run's folder does, too, and needs no `network` if that is one of ours.
        """
        return saved.load(cls, folder, network, **settings)

    def export(self, file: str | PathLike[str]) -> None:
        """The network for use elsewhere: `.safetensors` or `.pt` hold its plain weights; `.pt2` (torch.export) and
        `.onnx` take samples as they are stored and give a score per class."""
        from everlearn.learner import exported

        exported.export(self, file)


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
