"""What launchers that run elsewhere share: a run is claimed here, performed there, and its files are brought back."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from everlearn.errors import Stopped
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.locks import Busy
from everlearn.experiments.run import choose
from everlearn.experiments.store import Recording, Store
from everlearn.launchers import PATIENCE, Job, attempted, failure

try:
    import resource
except ImportError:  # Windows
    resource = None

Files = dict[str, bytes]


def run_there(job: Job, experiment: Experiment, folder: Path | None = None) -> Files | Exception:
    """On the other machine: the run's files, or what went wrong with it.

    Where the `folder` outlives a lost run, the next attempt goes on from its checkpoint.
    """
    try:
        with contextlib.nullcontext(folder) if folder else tempfile.TemporaryDirectory() as root:
            own = replace(job, store=Store(root), device=choose(job.device), fresh=False)
            # An earlier attempt may have been given up as lost and be running still.
            while isinstance(error := attempted(own, experiment), Busy):
                time.sleep(PATIENCE)
            return error or {path.name: path.read_bytes() for path in own.store.path(experiment).iterdir()}
    except Exception as error:  # no GPU there, no room for a folder: what is raised in a job looks like a lost one
        return failure(error)


@dataclass
class Claims:
    """The runs this process has sent out. While it lives nobody else does them; if it dies they are free again."""

    job: Job

    def __post_init__(self):
        if resource:  # each holds two files open
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._open: dict[Experiment, tuple[contextlib.ExitStack, Recording]] = {}

    def take(self, experiment: Experiment) -> Exception | None:
        """Claim a run; None, or why not."""
        stack = contextlib.ExitStack()
        try:
            recording = stack.enter_context(self.job.store.recording(experiment, fresh=self.job.fresh))
        except Exception as error:  # another process has it, it is complete, or its folder cannot be had
            return failure(error)
        self._open[experiment] = stack, recording

    def settle(self, experiment: Experiment, outcome: Files | Exception) -> Exception | None:
        """Its files are put in place, or what went wrong is handed on and the run is free again."""
        stack, recording = self._open.pop(experiment)
        try:
            with stack:
                if isinstance(outcome, Exception):
                    raise outcome
                for name, content in outcome.items():
                    Path(recording.folder, name).write_bytes(content)
        except Exception as error:
            return error

    def drop(self) -> None:
        for experiment in list(self._open):
            self.settle(experiment, Stopped("stopped"))


@contextlib.contextmanager
def claims(job: Job) -> Iterator[Claims]:
    held = Claims(job)
    try:
        yield held
    finally:
        held.drop()
