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
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from everlearn import checks, metrics, networks, registry
from everlearn.arguments import checked
from everlearn.core import ranks
from everlearn.core.capture import on_own_stream
from everlearn.core.state import joined, part
from everlearn.data import Stream
from everlearn.errors import MALFORMED, BadInput, EverlearnError
from everlearn.experiments import failures, provenance
from everlearn.experiments.arithmetic import arithmetic
from everlearn.experiments.experiment import Experiment, load, verify
from everlearn.experiments.store import Done, Store
from everlearn.learner import Learner, endings
from everlearn.learner import saved as saved_learner
from everlearn.methods.base import Method
from everlearn.spec import Spec, look_up, options_of
from everlearn.weightings.base import Weighting

Report = Callable[[dict], None]
Steps = Generator[None, None, dict]
Save = Callable[..., None]  # is given a function that returns the state, and whether to save at once
TELL = 0.5  # seconds between two reports on how far a run is within an epoch
AGREE = 16  # steps between two times that ranks agree on whether to write a checkpoint
_turn = threading.RLock()  # torch's generators, its threads and forward mode are one for all threads of a process


def _own_turn() -> None:
    """In a forked process: a thread that had the turn is not there to give it back."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own_turn)


@checked
def run(
    method: Any = "er",
    stream: Any = "digits",
    *,
    weighting: Any = None,
    network: Any = None,
    out: Path | str | None = None,
    device: str = "auto",
    fresh: bool = False,
    keep: bool = True,
    data: Path | str | None = None,
    report: Report | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Run one experiment and return its result document.

    `method`, `weighting`, `stream` and `network` are what Experiment.of takes: names, `file.py:attr`, classes or
    objects. Or `method` is an Experiment, such as `Experiment.read(result["experiment"])`, which is run as it is. With
    `out`, the run is kept in a folder there, and an experiment that is there already is not run again unless `fresh`.
    The folder has the trained network too, unless `keep` is False: Learner.load reads it.
    Of a `network` that is an nn.Module a copy is trained; it, and what is made inside a function or at a prompt, has
    no name to be kept under. Threads wait for each other; for runs side by side use processes.
    """
    module, own = network if isinstance(network, nn.Module) else None, None
    if isinstance(method, Experiment):
        if settings or weighting or (network and module is None) or stream not in ("digits", method.stream.name):
            raise BadInput("an Experiment has all its settings; dataclasses.replace makes another of it")
        experiment = method
    else:
        given = dict(weighting=weighting, network=None if module is not None else network, data=data, device=device)
        experiment, own = _experiment(method, stream, given | settings)
    if (module is not None or own is not None) and out is not None:
        what = "a network object" if own is None else f"{type(own).__name__}, made inside a function or at a prompt,"
        raise BadInput(
            f"{what} has no name in a run's settings, so its run cannot be kept in a folder; "
            "put it into a file and give file.py:name, or omit `out`"
        )
    verify([experiment], data)
    with _turn:
        if out is not None:
            store = Store(out)
            if (result := None if fresh else store.result(experiment)) is not None:
                return result
            with failures.noted(store, experiment):
                return finish(recorded(experiment, store, choose(device), data, report, fresh, keep=keep))
        made = Run(experiment, load(experiment.stream, data), choose(device), copy.deepcopy(module), own)
        return finish(made.steps(report or (lambda record: None)))


def _experiment(method: Any, stream: Any, given: dict[str, Any]) -> tuple[Experiment, Method | None]:
    """The experiment, and the method object itself where it has no name under which it could be found again."""
    if not isinstance(method, Method):
        return Experiment.of(method, stream, **given), None
    parts = {"method": method, "weighting": given.get("weighting") or getattr(method, "weighting", None)}
    if all(isinstance(one, str) or registry.placed(kind, type(one)) for kind, one in parts.items()):
        return Experiment.of(method, stream, **given), None
    if (given_one := given.get("weighting")) is not None:
        method = copy.copy(method)
        method.weighting = given_one if isinstance(given_one, Weighting) else _made("weighting", given_one)
    checks.method(method)
    known = next(kind for kind in type(method).__mro__ if registry.placed("method", kind))
    options = options_of("method", type(method)).keys() | options_of("weighting", type(method.weighting)).keys()
    if twice := sorted(options & given.keys()):
        raise BadInput(f"{twice[0]} is an option of the method object; give it where {type(method).__name__} is made")
    nearest = known if known.remembers == method.remembers else "er" if method.remembers else "finetune"
    others: dict[str, Any] = given | {"weighting": None}
    experiment = Experiment.of(nearest, stream, **others)
    parts = {"method": method, "weighting": method.weighting}
    specs = {kind: Spec(type(one).__name__, (("object", provenance.described(one)),)) for kind, one in parts.items()}
    return dataclasses.replace(experiment, **specs), method


def _made(kind: str, given: Any) -> Any:
    """The object that a name, or a table of a name and options, stands for."""
    found = look_up(kind, given)
    return found.thing(**found.given)


def recorded(
    experiment: Experiment,
    store: Store,
    device: str,
    data: Path | str | None = None,
    report: Report | None = None,
    fresh: bool = False,
    deterministic: bool = False,
    keep: bool = False,
) -> Steps:
    """The run, one step at a time, written to the store as it goes; if it is to `keep` them, with its network and what
    it takes to teach it on."""
    stream = load(experiment.stream, data)  # what is wrong with the data shows before anything is written
    run = Run(experiment, stream, device, deterministic=deterministic)
    if report:
        report({"event": "start", "tasks": len(run.tasks)})
    if ranks.rank():  # the first one writes for all
        saved = ranks.broadcast_object(None)
        if saved and "result" in saved:
            return saved["result"]
        return (yield from run.steps(save=together(run.learner, lambda state, now: state()), saved=saved))
    try:
        with endings.heard(), store.recording(experiment, fresh) as recording:

            def record(line: dict) -> None:
                recording.line(line)
                if report:
                    report(line)

            def save(state: Callable[[], dict], now: bool = False) -> None:
                try:
                    recording.checkpoint(state, now or endings.waiting())
                finally:
                    endings.let_through()

            saved = ranks.broadcast_object(recording.resumed)
            with contextlib.suppress(*MALFORMED):  # a checkpoint of another version may not have it
                task, epoch, _ = (saved or {})["at.learner.progress"].tolist()
                if report:
                    step = int((saved or {}).get("at.epoch.step", 0))
                    report({"event": "resumed", "task": task, "epoch": epoch, "step": step})
            save = together(run.learner, save, recording.due)
            steps = run.steps(record, recording.tensors, save, saved)
            result = yield from (told(run.learner, steps, report) if report else steps)
            for name, content in run.kept().items() if keep else ():
                recording.file(name, content)
            recording.result(result)
    except Done:  # by another process, in the meantime
        result = store.result(experiment)
        ranks.broadcast_object({"result": result})
    return result  # pyright: ignore[reportReturnType]  # what is done has a result


def together(learner: Learner, save: Save, due: Callable[[], bool] = lambda: False) -> Save:
    """Over several ranks the state of a step takes all of them: the first one says when, now and then, and none goes
    alone."""
    if not ranks.distributed():
        return save

    def all_save(state: Callable[[], dict], now: bool = False) -> None:
        if not now and learner.step % AGREE == 0 and ranks.broadcast_object(due()):
            save(state, True)

    return all_save


def told(learner: Learner, steps: Steps, report: Report) -> Steps:
    """The steps of a run; every half a second `report` is told how far they are."""
    said = time.monotonic()
    with contextlib.closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            if learner.step and time.monotonic() - said > TELL:
                said = time.monotonic()
                place = {"task": learner.tasks, "epoch": learner.epoch, "step": learner.step, "steps": learner.steps}
                report({"event": "step", **place})
            yield


def finish(steps: Steps) -> dict:
    """Take all steps of a run and return its result."""
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
        **engine: Any,
    ):
        if device == "cpu" and (precision := experiment.training.precision) != "float32":
            raise BadInput(f"precision {precision} is for a GPU; on the CPU leave it at float32")
        self.stream, self.device, self.deterministic = resident(stream, device), device, deterministic
        own = network is not None
        if network is None:
            assert experiment.network is not None  # the data are here
            make = look_up("network", experiment.network).thing
            options = dict(experiment.network.options)
            network = networks.build(make, stream.shape, stream.classes, experiment.seed, **options)
        self.learner = Learner(
            network,
            method or experiment.build(),
            classes=range(stream.classes),
            memory=experiment.memory,
            training=experiment.training,
            inputs=stream.pixels,
            seed=experiment.seed,
            device=device,
            **engine,
        )
        self.network = type(network).__name__
        self.tasks = [self.stream.merged()] if self.learner.method.merges else list(self.stream.tasks)
        # With a network of one's own it is another experiment than the one with the stream's usual network.
        self.experiment = (
            dataclasses.replace(experiment, network=Spec(provenance.fingerprint(network))) if own else experiment
        )

    def steps(
        self,
        report: Report = lambda record: None,
        keep: Callable[[str, dict], None] = lambda name, tensors: None,
        save: Save = lambda state, now=False: None,
        saved: dict | None = None,
    ) -> Steps:
        """The run, one step at a time; its value at the end is the result document.

        `save` is offered the state after every step, epoch and task, and has to take it when the run is left between
        two steps or while it is measured; `saved` is one to go on from.
        """
        start, learner, method = time.perf_counter(), self.learner, self.learner.method
        with arithmetic(learner, self.experiment.training.precision, self.deterministic):
            origin = provenance.here(self.device)  # of the code that runs, whatever becomes of its folder meanwhile
            measures, before, resumed = ([], 0.0, 0) if saved is None else self._resume(saved)
            commits = list(dict.fromkeys([*_read_commits(saved), origin["commit"]]))  # all that had a part in it
            with endings.at_once():
                checks.answering(learner, self.tasks[0].train[0])
                untrained, *rows = measures or [learner.evaluate(self.stream)]
            seconds = lambda: before + time.perf_counter() - start

            def state() -> dict:
                counts = {"seconds": torch.tensor(seconds(), dtype=torch.float64), "resumed": torch.tensor(resumed)}
                seen = {"measures": torch.tensor([untrained, *rows], dtype=torch.float64)}  # [1 + tasks, 2, tasks]
                by = {"commits": torch.tensor(list(json.dumps(commits).encode()), dtype=torch.uint8)}
                return joined({"at": learner.state(), "run": counts | seen | by})

            def tell(record: dict) -> None:
                report(record)
                save(state)

            resumable = lambda: endings.resumable(lambda: save(state, now=True))
            for number, task in list(enumerate(self.tasks))[len(rows) :]:
                if number == learner.tasks:
                    for _ in learner.updating(task, tell):
                        save(state)
                        with resumable():
                            yield
                    save(state)  # learned, and still to be measured
                with resumable(), endings.at_once():
                    review = method.weighting.review(learner, self.tasks[:number], task)
                    row, confusion = learner.examine(self.stream)
                if review:
                    report({"event": "review", "task": number, **review})
                rows.append(row)
                seen = {"classes": list(map(int, task.classes)), "confusion": _sparse(confusion)}
                tell({"event": "task", "task": number, **row._asdict(), **seen, **_composition(learner)})
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

    def kept(self) -> dict[str, bytes]:
        """The learner as files, its classes by the stream's names."""
        named = self.experiment.network
        built = {"spec": named and named.document(), "shape": self.stream.shape, "classes": self.stream.classes}
        return saved_learner.keep(self.learner, built, self.stream.names)

    def _resume(self, saved: dict) -> tuple[list[metrics.Accuracies], float, int]:
        """Be where a run was: its accuracies so far, its seconds, how often it has been resumed."""
        try:
            self.learner.restore(part(saved, "at"))
            run = part(saved, "run")
            measures = [metrics.Accuracies(*row) for row in run["measures"].tolist()]
            return measures, float(run["seconds"]), int(run["resumed"]) + 1
        except (RuntimeError, *MALFORMED) as error:
            raise EverlearnError(
                f"the checkpoint is of another version of this run ({error}); the same command starts it again"
            ) from error


def _sparse(counts: torch.Tensor) -> dict[str, list[int]]:
    """Which class was taken for which and how often, where it was: a matrix of few counts in three lists."""
    true, guess = counts.nonzero(as_tuple=True)
    return {"true": true.tolist(), "predicted": guess.tolist(), "count": counts[true, guess].tolist()}


def _composition(learner: Learner) -> dict[str, list[int]]:
    """Samples of each class in the memory, where the method has one."""
    if not learner.method.remembers or learner.memory is None:
        return {}
    held = learner.memory.held()[1].cpu()
    return {"memory": torch.bincount(held[held >= 0], minlength=learner.classes).tolist()}  # some rows may be empty


def _read_commits(saved: dict | None) -> list:
    return json.loads(bytes(saved["run.commits"].tolist())) if saved and "run.commits" in saved else []


@functools.lru_cache(maxsize=2)
def resident(stream: Stream, device: str) -> Stream:
    """The stream on the device, once for all runs that share it."""
    stream = stream.to(device)
    if device == "cuda":
        torch.cuda.synchronize()  # runs on streams of their own may start reading
    return stream


def parameters(experiment: Experiment, data: Path | str | None = None) -> int:
    """The number of parameters of the experiment's network."""
    return _parameters(experiment.network, experiment.stream, str(data) if data else None)


@functools.lru_cache(maxsize=64)
def _parameters(network: Spec, stream: Spec, data: str | None) -> int:
    of, make = load(stream, data), look_up("network", network).thing
    return sum(p.numel() for p in networks.build(make, of.shape, of.classes, 0, **dict(network.options)).parameters())


def choose(device: str) -> str:
    """The kind of device; auto: the GPU if there is one."""
    kind = checks.device(device).type
    if kind == "cuda":
        ranks.check_gpus()
    return kind
