"""What is seen of a task while it is learned, and when it has been enough."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from everlearn.core.seeding import Randomness
from everlearn.core.state import copied
from everlearn.data import Task
from everlearn.data.samples import Like
from everlearn.errors import BadInput, Notice, number, plural
from everlearn.learner import endings
from everlearn.learner.labels import coded
from everlearn.learner.teaching import marked

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

Held = tuple[Tensor, Tensor]  # samples to be tested on, and their classes; −1 of one never met


def split(learner: Learner, task: Task, validation: Any) -> tuple[Task, Held | None]:
    """The task to learn and what is held out of it, or given besides, to be tested on."""
    if validation is None:
        return task, None
    if isinstance(validation, Real) and not isinstance(validation, bool):
        x, y = task.train
        share = float(validation)
        count = round(share * len(x)) if 0 < share < 1 else 0
        if not 0 < count < len(x):
            raise BadInput(f"validation {validation} of {len(x)} samples leaves none to learn from or none to test on")
        order = torch.from_numpy(np.random.default_rng([learner.seed, learner.tasks]).permutation(len(x))).to(x.device)
        held, rest = order[:count], order[count:]
        # Of a class that would be held out as a whole, one sample is learned.
        alone = {int(y[n]): n for n in held[~torch.isin(y[held], y[rest])].tolist()}
        learned = torch.tensor(sorted(alone.values()), dtype=torch.long, device=x.device)
        held, rest = held[~torch.isin(held, learned)], torch.cat([rest, learned]).sort().values
        if not len(held):
            raise BadInput(f"validation {validation} of {len(x)} samples is the only one of its class; hold out more")
        return Task((x[rest], y[rest]), task.test, task.classes), (x[held], y[held])
    x, y = learner._read(validation, like=Like.of(task.train[0], learner.inputs))
    names, codes = coded(y)
    if not len(codes):
        raise BadInput("there is no sample among the validation data")
    return task, (learner._stored(x), torch.tensor(learner.labels.numbers(names))[codes])


class Watched:
    """The callbacks of a task and its validation; `display` shows it."""

    def __init__(
        self,
        learner: Learner,
        held_out: Held | None,
        patience: int | None,
        on_epoch: Callable | None,
        on_task: Callable | None,
        report: Callable,
    ):
        if patience is not None:
            number("patience", patience, whole=True, positive=True)
            if held_out is None:
                raise BadInput("patience needs data to test on: validation=0.1, or other data")
        if held_out is not None and not bool((held_out[1] >= 0).any()):
            warnings.warn(
                "this learner has met none of the classes of the validation data, so the accuracy on them is 0; "
                "give samples of its own classes: validation=(x, y)",
                Notice,
                stacklevel=4,
            )
        elif patience is not None and held_out is not None and lacking(learner, held_out):
            warnings.warn(
                "the validation data lack some classes of the memory, and patience may end the task before these "
                "are rehearsed; give samples of all classes: validation=(x, y)",
                Notice,
                stacklevel=4,
            )
        self.learner, self.held_out, self.patience = learner, held_out, patience
        self.on_epoch, self.on_task, self.report = on_epoch, on_task, report
        self.best, self.best_epoch, self.epochs = -math.inf, -1, 0
        self.kept: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None  # of the best epoch
        self.stopped = False  # there are to be no more epochs
        self.display: Display = Display()
        self.hears: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def __getstate__(self) -> dict[str, Any]:
        """What was seen. Callbacks are the program's, which gives them anew."""
        theirs = dict.fromkeys(("on_epoch", "on_task", "report"))
        return vars(self) | theirs | {"display": Display(), "hears": contextlib.nullcontext}

    def teach(self, task: Task, progress: bool | None) -> None:
        """The task, step by step. After Ctrl-C the same again goes on with it."""
        learner, before, tasks = self.learner, self.learner._watched, self.learner.tasks
        half = learner.within_task
        same = (half or learner._ended) and torch.equal(learner._mark, marked(*task.train))
        if before is not None and same:
            self.go_on(before)
        if same and learner._ended:
            learner._ended = False
            return
        if same or before is None or not half:  # else it is refused
            learner._watched = self
        stopped = before is not None and same and before.stopped
        steps = learner._updating(task, self.epoch, Randomness.alone, stopped)
        try:
            with shown(learner, task, progress) as self.display, endings.between_steps() as free:
                self.hears = endings.at_once if free else contextlib.nullcontext
                with contextlib.closing(steps):
                    for _ in steps:
                        self.display.step()
                        if free:
                            endings.let_through()
        except KeyboardInterrupt:
            learner._ended = learner.tasks > tasks
            raise

    def go_on(self, before: Watched) -> None:
        """With what was seen of the task before it was left."""
        self.epochs = before.epochs
        if self.held_out is not None and before.held_out is not None:
            self.best, self.best_epoch, self.kept = before.best, before.best_epoch, before.kept

    def epoch(self, record: dict[str, Any]) -> None:
        """It is in a state to go on from, so Ctrl-C need not wait here."""
        with self.hears():
            try:
                self._epoch(record)
            finally:
                self.stopped = self.learner._stopping
                if self.kept and (self.stopped or record["epoch"] + 1 == self.learner.epochs):
                    network, sgd = self.kept
                    self.learner.net.unbind().load_state_dict(network)
                    self.learner.sgd.restore(sgd)

    def _epoch(self, record: dict[str, Any]) -> None:
        self.epochs += 1
        if self.held_out is not None:
            x, y = self.held_out
            right = float((self.learner._scores(x).argmax(dim=1) == y.to(self.learner.device)).double().mean())
            record |= {"validation": right, "held_out": len(y)}
            if right > self.best:
                self.best, self.best_epoch, self.kept = right, record["epoch"], self._network()
            elif self.patience is not None and record["epoch"] - self.best_epoch >= self.patience:
                self.learner.stop()
        self.display.epoch(record)
        self.report(record)
        self._call(self.on_epoch, record)

    def _network(self) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
        """The network and what moves it, where the best one is to be gone back to."""
        if self.patience is None:
            return None
        return copied(self.learner.net.state()), copied(self.learner.sgd.state())

    def task(self, task: Task) -> None:
        self.learner._watched = None
        names = [self.learner.labels.names[c] for c in task.classes]
        record = {"event": "task", "task": self.learner.tasks - 1, "classes": names, "epochs": self.epochs}
        self._call(self.on_task, record | ({"validation": self.best} if self.held_out is not None else {}))

    def _call(self, callback: Callable | None, record: dict[str, Any]) -> None:
        if callback is None:
            return
        self.learner.net.unbind()  # the network is its owner's there
        try:
            callback(self.learner, record)
        except Exception as error:
            warnings.warn(f"a callback failed, and the learner continues: {error!r}", stacklevel=2)


def lacking(learner: Learner, held_out: Held) -> bool:
    """Has the memory classes that these samples have not?"""
    return learner.memory is not None and not set(learner.memory.held()[1].tolist()) <= set(held_out[1].tolist())


def normalised_apart(learner: Learner, y: Tensor) -> None:
    """A lesson whose own statistics say little of the classes met before, in a network that is to normalise it by them
    alone."""
    alone = "one class" if bool((y == y[0]).all()) else plural(len(y), "sample") if len(y) < learner.batch else ""
    kinds = nn.modules.batchnorm._BatchNorm
    if not (alone and learner.tasks and learner.draws and learner.training.forward == "separate"):
        return
    if any(isinstance(module, kinds) and module.training for module in learner.net.module.modules()):
        warnings.warn(
            f"a lesson of {alone} and a network with BatchNorm, which normalises new samples and memory apart: old "
            "classes may be lost; forward='joint', in Learner(…) or with `run --set`, normalises them together",
            Notice,
            stacklevel=1,
        )


class Display:
    """Nothing is shown."""

    def step(self) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...


class Bar(Display):
    """A line in the terminal: epochs, steps, time left and the last loss."""

    def __init__(self, bar: Any, label: str, steps: int):
        self.bar, self.label, self.line = bar, label, bar.add_task(label, total=steps, seen="")

    def step(self) -> None:
        self.bar.advance(self.line)

    def epoch(self, record: dict[str, Any]) -> None:
        self.bar.update(self.line, seen=words(record))


class Lines(Display):
    """Where there is no terminal, a line per epoch."""

    def epoch(self, record: dict[str, Any]) -> None:
        print(f"task {record['task'] + 1}, {words(record)}", file=sys.stderr, flush=True)


def words(record: dict[str, Any]) -> str:
    """What an epoch came to."""
    tested = f", validation {record['validation']:.3f}" if "validation" in record else ""
    return f"epoch {record['epoch'] + 1}, loss {sum(record['loss'].values()):.3f}{tested}"


@contextlib.contextmanager
def shown(learner: Learner, task: Task, progress: bool | None) -> Iterator[Display]:
    """A display of the task's steps, if it is wanted or there is a terminal."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield Display()
        return
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    steps = math.ceil(len(task.train[0]) / learner.batch) * (learner.epochs - learner.epoch) - learner.step
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        *([BarColumn(20)] if console.width >= 80 else []),  # words and numbers need the room first
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[seen]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield Bar(bar, f"task {learner.tasks + 1}", steps)
