"""Where runs are performed. A launcher is one function, found by its name like everything else:

    launch(todo, job, report) -> an iterator of (experiment, None or what went wrong)

It performs each experiment once, somewhere, and yields as they end; the run is in `job.store` by then. `perform` does
the rest.
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everlearn import registry
from everlearn.core import ranks
from everlearn.errors import FULL, BadInput, EverlearnError, foreign, located, short_of_memory
from everlearn.experiments import failures, run
from everlearn.experiments.experiment import Experiment, verify
from everlearn.experiments.locks import Busy
from everlearn.experiments.seals import Damaged
from everlearn.experiments.store import Done, Store

Report = Callable[[Experiment, dict], None]
Outcome = tuple[Experiment, Exception | None]
DONE = {"event": "run"}  # the last record of a run, for whoever watches
WAITING = {"event": "waiting"}  # another process is at it
AGAIN = 3  # times a run is started anew when its worker dies
PATIENCE = 0.5  # seconds between looks at a run that another process is at


@dataclass(frozen=True)
class Job:
    """All there is to know about how a run is to be performed."""

    store: Store
    device: str = "cpu"
    data: Path | None = None
    fresh: bool = False
    deterministic: bool = False
    keep: bool = False  # the trained network too
    jobs: int | None = None  # at most so many at a time; None: the launcher decides
    pack: int | None = None  # runs that share a GPU; None: as many as fit
    options: Mapping[str, str | int] = field(default_factory=dict)  # the launcher's own

    def steps(self, experiment: Experiment, report: Callable[[dict], None] | None = None) -> run.Steps:
        """The run, one step at a time, kept in the store."""
        how = dict(fresh=self.fresh, deterministic=self.deterministic, keep=self.keep)
        return run.recorded(experiment, self.store, self.device, self.data, report, **how)


def perform(
    experiments: Sequence[Experiment],
    store: Store,
    *,
    on: str = "local",
    device: str = "auto",
    report: Report = lambda experiment, record: None,
    **more: Any,
) -> list[dict | Exception]:
    """The result of each experiment, in order, or what went wrong with it. What the store has is read and not run.

    A run that another process is at is waited for, and done here if that process dies. `more` are fields of Job.
    """
    launch = registry.find("launcher", on)
    if on == "local" and more.get("options"):
        raise BadInput("--launcher-option is for --on ray and --on slurm")
    if on != "local" and ranks.distributed():
        raise BadInput(f"--on {on} and torchrun both hand out the work; use one of the two")
    job = Job(store, device_of(on, device, more.get("options", {})), **more)
    verify(experiments, job.data)
    done = set() if job.fresh else {*store.done(experiments)}
    todo = ranks.broadcast_object([experiment for experiment in experiments if experiment not in done])
    if not ranks.rank():
        failures.clear(store, todo)
    wrong: dict[Experiment, Exception] = {}
    known: set[Experiment] = set()
    while todo:
        busy = []
        for experiment, error in launch(todo, job, report):
            if error is not None and not ranks.rank():
                failures.note(store, experiment, error)
            if error is not None and ranks.distributed():
                raise error  # the other ranks are in the middle of it
            if isinstance(error, Done):  # by another process, in the meantime
                error = None
            if isinstance(error, Busy):
                busy.append(experiment)
                if experiment not in known:
                    report(experiment, WAITING)
                known.add(experiment)
                continue
            if error is not None:
                wrong[experiment] = error
            report(experiment, DONE)
        if len(busy) == len(todo):
            time.sleep(PATIENCE)
        todo = busy
    return ranks.broadcast_object([wrong[e] if e in wrong else _read(store, e) for e in experiments])


def device_of(on: str, device: str, options: Mapping[str, str | int] = {}) -> str:
    """The kind of device runs will have there. A launcher that runs elsewhere says what `auto` is, as its `device`."""
    own = getattr(registry.find("launcher", on), "device", None)
    if own is None:
        return run.choose(device)
    return own(options) if device == "auto" else device


def _read(store: Store, experiment: Experiment) -> dict | Exception:
    try:
        return store.result(experiment) or EverlearnError("the launcher ended without having performed it")
    except Damaged as error:
        return error


def needs(module: str, extra: str) -> Any:
    """Import a package that is not always installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BadInput(f"--on {extra} needs {module}, which is not here: pip install 'everlearn[{extra}]'") from None


def attempted(job: Job, experiment: Experiment, report: Callable[[dict], None] | None = None) -> Exception | None:
    """Perform a run here, and return what went wrong with it, or None."""
    try:
        run.finish(job.steps(experiment, report))
    except Exception as error:
        return failure(error)


def failure(error: Exception) -> Exception:
    """An error that can travel between processes and has its traceback with it.

    What is not an error of this package becomes a sentence that says where it happened: it may be a user's method.
    """
    trace = "".join(traceback.format_exception(error))
    home = type(error).__module__.partition(".")[0]  # an error of another package may not survive the way
    # An OSError is ours if it is about the run's files, and not about one that a user's method reads.
    files = isinstance(error, OSError) and (error.errno in FULL or not foreign(error))
    ours = files or isinstance(error, EverlearnError) or short_of_memory(error)
    if not (ours and home in ("builtins", "everlearn", "torch")):
        error = EverlearnError(located(error))
    error.traceback = trace  # pyright: ignore[reportAttributeAccessIssue]  # on any error, as EverlearnError has it
    return error


def each(todo: Sequence[Experiment], job: Job, report: Report) -> Iterator[Outcome]:
    """Perform the runs one after another in this process."""
    for experiment in todo:
        yield experiment, attempted(job, experiment, lambda record, experiment=experiment: report(experiment, record))
