"""A run: a stream learned task by task, evaluated after each, written down."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import torch
from torch import nn

from everlearn import checks, metrics, networks
from everlearn.experiments import provenance
from everlearn.core import ranks
from everlearn.data import streams
from everlearn.core.capture import on_own_stream
from everlearn.errors import BadInput, EverlearnError
from everlearn.experiments.experiment import RECIPES, Experiment
from everlearn.learner import Learner
from everlearn.methods import METHODS, Method
from everlearn.core.state import joined, part
from everlearn.experiments.store import Done, Store
from everlearn.data.streams import Stream

Report = Callable[[dict], None]
Steps = Generator[None, None, dict]
FLAGS = (
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
)
_inside, _before = 0, None  # runs under way in this process, and what torch was set to before them
_turn = threading.RLock()  # torch's generators, its threads and forward mode are one for all threads of a process


def _own_turn() -> None:
    """In a forked process: a thread that had the turn is not there to give it back."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own_turn)


def run(
    method: str | Method | Experiment = "er",
    stream: str = "digits",
    *,
    out: Path | str | None = None,
    device: str = "auto",
    fresh: bool = False,
    network: nn.Module | str | None = None,
    data: Path | None = None,
    report: Report | None = None,
    **settings,
) -> dict:
    """Run one experiment and return its result document.

    With `out`, the run is kept in a folder there, and an experiment that is there already is not run again unless
    `fresh`. A `network` of one's own (any nn.Module; a copy is trained), or a method of one's own (any Method, with the
    weights it was made with), makes the run one that has no name to be kept under. An Experiment, such as
    `Experiment.read(result["experiment"])`, is run as it is. Threads wait for each other; for runs side by side use processes.
    """
    if isinstance(network, str):
        settings["network"], network = network, None
    own = method if isinstance(method, Method) else None
    if isinstance(method, Experiment):
        if settings or stream not in ("digits", method.stream):
            raise BadInput("an Experiment has all its settings; dataclasses.replace makes another of it")
        experiment = method
    else:
        experiment = Experiment.of(method, stream, **settings) if own is None else _own(own, stream, settings)
    if (network is not None or own is not None) and out is not None:
        raise BadInput(
            "a network or method object has no name in a run's settings, so its run cannot be kept in a folder; leave `out` away"
        )
    with _turn:
        if out is not None:
            return perform(experiment, Store(out), device=device, data=data, report=report, fresh=fresh)
        run = Run(experiment, load(experiment, data), choose(device), copy.deepcopy(network), own)
        return finish(run.steps(report or (lambda record: None)))


def _own(method: Method, stream: str, settings: dict) -> Experiment:
    """The experiment of a method of one's own: the settings are those of the nearest method with a name."""
    names = {known: name for name, known in METHODS.items()}
    alike = (kind for kind in type(method).__mro__ if kind in names and kind.remembers == method.remembers)
    nearest = names.get(next(alike, None), "er" if method.remembers else "finetune")
    for key in settings.keys() & RECIPES[nearest].options().keys():
        raise BadInput(f"{key} is the method object's own affair; give it where {type(method).__name__} is made")
    experiment = Experiment.of(nearest, stream, **settings)
    described = provenance.described
    options = ("object", described(method)), ("weighting", described(getattr(method, "weighting", None)))
    return dataclasses.replace(experiment, method=type(method).__name__, options=options)


def perform(
    experiment: Experiment,
    store: Store,
    *,
    device: str = "auto",
    data: Path | None = None,
    report: Report | None = None,
    fresh: bool = False,
    deterministic: bool = False,
) -> dict:
    """The experiment's result: read if the store has it, else run and stored."""
    if (result := ranks.broadcast_object(None if fresh else store.result(experiment))) is not None:
        return result
    return finish(performing(experiment, store, choose(device), data, report, fresh, deterministic))


def performing(
    experiment: Experiment,
    store: Store,
    device: str,
    data: Path | None,
    report: Report | None,
    fresh: bool,
    deterministic: bool,
) -> Steps:
    """The run, a step at a time, written to the store as it goes."""
    stream = load(experiment, data)  # what is wrong with the data shows before anything is written
    run = Run(experiment, stream, device, deterministic=deterministic)
    if ranks.rank():  # the first one writes for all
        return (yield from run.steps(saved=ranks.broadcast_object(None)))
    try:
        with store.recording(experiment, fresh) as recording:

            def record(line: dict) -> None:
                recording.line(line)
                if report:
                    report(line)

            saved = ranks.broadcast_object(recording.resumed)
            if report and saved and "at.learner.progress" in saved:  # of another version it may not be
                task, epoch, _ = saved["at.learner.progress"].tolist()
                report({"event": "resumed", "task": task, "epoch": epoch})
            result = yield from run.steps(record, recording.tensors, recording.checkpoint, saved)
            recording.result(result)
    except Done:  # by another process, in the meantime
        result = store.result(experiment)
    return result


def finish(steps: Steps) -> dict:
    """Take all steps of a run; its result."""
    with on_own_stream():
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value


class Run:
    """An experiment made ready to learn its stream and measure. `engine`: the learner's `capture` and `compile`."""

    def __init__(
        self,
        experiment: Experiment,
        stream: Stream,
        device: str,
        network: nn.Module | None = None,
        method: Method | None = None,
        deterministic: bool = False,
        **engine: bool,
    ):
        if device == "cpu" and experiment.precision != "float32":
            raise BadInput(f"precision {experiment.precision} is for a GPU; on the CPU leave it at float32")
        self.stream, self.device, self.deterministic = resident(stream, device), device, deterministic
        own = network is not None
        if not own:
            network = networks.build(experiment.network, stream.shape, stream.classes, experiment.seed)
        settings = {
            key: getattr(experiment, key)
            for key in ("memory", "epochs", "batch", "lr", "momentum", "weight_decay", "forward", "precision", "seed")
        }
        self.learner = Learner(
            method or experiment.build(),
            network,
            classes=stream.classes,
            pixels=stream.pixels,
            device=device,
            **settings,
            **engine,
        )
        self.network = type(network).__name__
        # With a network of one's own it is another experiment than the one with the stream's usual network.
        self.experiment = (
            dataclasses.replace(experiment, network=provenance.fingerprint(network)) if own else experiment
        )

    def steps(
        self,
        report: Report = lambda record: None,
        keep: Callable[[str, dict], None] = lambda name, tensors: None,
        save: Callable[[Callable[[], dict]], None] = lambda state: None,
        saved: dict | None = None,
    ) -> Steps:
        """The run, a step at a time; its value at the end is the result document. `save` is offered the state after every
        epoch and task, and `saved` is one to go on from."""
        start, learner, method = time.perf_counter(), self.learner, self.learner.method
        with arithmetic(learner, self.experiment.precision, self.deterministic):
            origin = provenance.here(self.device)  # of the code that runs, whatever becomes of its folder meanwhile
            measures, before, resumed = ([], 0.0, 0) if saved is None else self._resume(saved)
            commits = list(dict.fromkeys([*_read_commits(saved), origin["commit"]]))  # all that had a part in it
            untrained, *rows = measures or [learner.evaluate(self.stream)]
            seconds = lambda: before + time.perf_counter() - start

            def state() -> dict:
                counts = {"seconds": torch.tensor(seconds(), dtype=torch.float64), "resumed": torch.tensor(resumed)}
                seen = {"measures": torch.tensor([untrained, *rows], dtype=torch.float64)}  # [1 + tasks, 2, tasks]
                by = {"commits": torch.tensor(list(json.dumps(commits).encode()), dtype=torch.uint8)}
                return joined({"at": learner.state(), "run": counts | seen | by})

            def told(record: dict) -> None:
                report(record)
                save(state)

            tasks = [self.stream.merged()] if method.merges else self.stream.tasks
            for number, task in list(enumerate(tasks))[learner.tasks :]:
                yield from learner.updating(task, told)
                if review := method.weighting.review(learner, tasks[:number], task):
                    report({"event": "review", "task": number, **review})
                rows.append(learner.evaluate(self.stream))
                told({"event": "task", "task": number, **rows[-1]._asdict()})
            if learned := method.weighting.state():
                keep("weighting", learned)
            measured = {
                setting: metrics.summary([getattr(row, setting) for row in rows], getattr(untrained, setting))
                for setting in ("class_il", "task_il")
            }
            return {
                "experiment": self.experiment.document(),
                **measured,
                "seconds": round(seconds(), 3),
                "classes": list(self.stream.names),
                "network": self.network,
                "provenance": {
                    **origin,
                    "finished": provenance.now(),
                    **({"commits": commits} if len(commits) > 1 else {}),
                    "settings": self.experiment.hash,
                    "deterministic": self.deterministic,
                    "resumed": resumed,
                },
            }

    def _resume(self, saved: dict) -> tuple[list[metrics.Accuracies], float, int]:
        """Be where a run was: its accuracies so far, its seconds, how often it has been resumed."""
        try:
            self.learner.restore(part(saved, "at"))
        except (KeyError, RuntimeError, ValueError) as error:
            raise EverlearnError(
                f"the checkpoint is of another version of this run ({error}); the same command starts it anew"
            ) from error
        run = part(saved, "run")
        measures = [metrics.Accuracies(*row) for row in run["measures"].tolist()]
        return measures, float(run["seconds"]), int(run["resumed"]) + 1


def _read_commits(saved: dict | None) -> list:
    return json.loads(bytes(saved["run.commits"].tolist())) if saved and "run.commits" in saved else []


@functools.lru_cache(maxsize=2)
def resident(stream: Stream, device: str) -> Stream:
    """The stream on the device, once for all runs that share it."""
    stream = stream.to(device)
    if device == "cuda":
        torch.cuda.synchronize()  # runs on streams of their own may start reading
    return stream


@contextlib.contextmanager
def arithmetic(learner: Learner, precision: str, deterministic: bool = False) -> Iterator[None]:
    """On the CPU a small network runs on one thread.
    On a GPU `float32` means it: torch would convolve in tfloat32 of its own accord. There cuDNN tries its algorithms and
    takes the fastest, which may be another the next time; `deterministic` takes one that always gives the same bits.

    These are settings of the whole process. Runs that take turns in it want the same ones: the first to come sets them, and
    they are put back when the last one is gone.
    """
    global _inside, _before
    low = precision != "float32"
    if not _inside:
        _before = [getattr(*flag) for flag in FLAGS], torch.get_num_threads()
    _inside += 1
    if learner.device.type == "cuda":
        for flag, value in zip(FLAGS, (low, low, not deterministic, deterministic)):
            setattr(*flag, value)
    elif learner.small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        _inside -= 1
        if not _inside:
            for flag, value in zip(FLAGS, _before[0]):
                setattr(*flag, value)
            torch.set_num_threads(_before[1])


def load(experiment: Experiment, data: Path | None = None) -> Stream:
    """The experiment's stream; read once a process."""
    return _load(experiment.stream, experiment.content, experiment.tasks, experiment.classes, experiment.shuffle, data)


@functools.lru_cache(maxsize=2)
def _load(name, content, tasks, classes, shuffle, data) -> Stream:
    return streams.load(name, tasks=tasks, classes=classes, shuffle=shuffle, data=data)


def choose(device: str) -> str:
    """The kind of device; auto: the GPU if there is one."""
    kind = checks.device(device).type
    if kind == "cuda":
        ranks.check_gpus()
    return kind
