"""Where runs are performed. A place is one function in one file:

    perform(todo, job, report) -> an iterator of (experiment, None or what went wrong)

It performs each experiment once, somewhere, and yields as they end; the run is in `job.store` by then. `perform_all` does the rest.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everlearn.core import ranks
from everlearn.experiments import runs
from everlearn.errors import BadInput, EverlearnError, unknown
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Busy, Damaged, Done, Store

Report = Callable[[Experiment, dict], None]
Outcome = tuple[Experiment, Exception | None]
FAILURES = (EverlearnError, OSError, MemoryError, RuntimeError, ValueError)  # of a run, and not of ours
PLACES = ("local", "ray", "slurm")
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
    jobs: int | None = None  # at most so many at a time; None: the place decides
    pack: int | None = None  # runs that share a GPU; None: as many as fit
    options: Mapping[str, str | int] = field(default_factory=dict)  # the place's own

    def run(self, experiment: Experiment, report: Callable[[dict], None] | None = None) -> None:
        runs.perform(
            experiment,
            self.store,
            device=self.device,
            data=self.data,
            fresh=self.fresh,
            deterministic=self.deterministic,
            report=report,
        )


def perform_all(
    experiments: Sequence[Experiment],
    store: Store,
    *,
    on: str = "local",
    device: str = "auto",
    report: Report = lambda experiment, record: None,
    **more,
) -> list[dict | Exception]:
    """The result of each experiment, in order, or what went wrong with it. What the store has is read and not run.

    A run that another process is at is waited for, and done here if that process dies. `more` are fields of Job.
    """
    if on not in PLACES:
        raise unknown("place", on, PLACES)
    if on == "local" and more.get("options"):
        raise BadInput("--place is for --on ray and --on slurm")
    if on != "local" and ranks.distributed():
        raise BadInput(f"--on {on} and torchrun both deal out the work; use one of the two")
    job = Job(store, runs.choose(device) if on == "local" else device, **more)
    perform = importlib.import_module(f"everlearn.launchers.{on}").perform
    todo = ranks.broadcast_object([experiment for experiment in experiments if job.fresh or not store.has(experiment)])
    wrong: dict[Experiment, Exception] = {}
    known: set[Experiment] = set()
    while todo:
        busy = []
        for experiment, error in perform(todo, job, report):
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


def _read(store: Store, experiment: Experiment) -> dict | Exception:
    try:
        return store.result(experiment)
    except Damaged as error:
        return error


def needs(module: str, extra: str):
    """A module that is not always there."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise BadInput(f"--on {extra} needs {module}, which is not here: pip install 'everlearn[{extra}]'") from None


def attempted(job: Job, experiment: Experiment, report: Callable[[dict], None] | None = None) -> Exception | None:
    """What went wrong with a run, if it was the run and not us."""
    try:
        job.run(experiment, report)
    except FAILURES as error:
        return error


def each(todo: Sequence[Experiment], job: Job, report: Report) -> Iterator[Outcome]:
    """One after another, here."""
    for experiment in todo:
        yield experiment, attempted(job, experiment, lambda record: report(experiment, record))
