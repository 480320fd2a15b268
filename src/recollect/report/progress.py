"""The live display: which run, which task and epoch, how far, how long still."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from recollect.experiments import Experiment

LOG_EVERY = 30  # seconds


class Display:
    """A bar over all epochs of all runs, on stderr; says nothing when quiet."""

    def __init__(self, experiments: Sequence[Experiment], quiet: bool = False):
        self.console = Console(stderr=True, quiet=quiet)
        wraps = Column()  # where the line is too long, the text gives way and not the numbers
        columns = (
            TextColumn("{task.description}", table_column=wraps),
            BarColumn(20),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=False),
        )
        self._progress = Progress(
            *columns, console=self.console, disable=quiet or not self.console.is_interactive, transient=True
        )
        self._epochs = {experiment: experiment.epochs * self._tasks(experiment) for experiment in experiments}
        self._bar = self._progress.add_task("", total=sum(self._epochs.values()))
        self._done = dict.fromkeys(experiments, 0)  # epochs
        self._said = time.monotonic()

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *error) -> None:
        self._progress.stop()

    def report(self, experiment: Experiment, record: dict) -> None:
        """A run's record as it comes. A run that is over counts in full, however many tasks it turned out to have."""
        whole = self._epochs[experiment]
        if record["event"] == "epoch":
            self._done[experiment] = min(self._done[experiment] + 1, whole)
            text = f"{experiment.method} on {experiment.stream}, seed {experiment.seed}: task {record['task'] + 1}, epoch {record['epoch'] + 1} of {experiment.epochs}"
            self._progress.update(self._bar, description=text)
            if (
                not self.console.is_interactive and time.monotonic() - self._said > LOG_EVERY
            ):  # a log file: a line now and then
                self._said = time.monotonic()
                self.console.print(
                    f"{text} ({sum(self._done.values())} of {sum(self._epochs.values())} epochs in all)",
                    soft_wrap=True,
                    highlight=False,
                )
        elif record["event"] == "waiting":
            self.console.print(
                f"another process is at {experiment.name}; waiting for it", soft_wrap=True, highlight=False
            )
        elif record["event"] == "resumed":
            self._done[experiment] = record["task"] * experiment.epochs + record["epoch"]
            words = f"{experiment.name} goes on after task {record['task'] + 1}, epoch {record['epoch']}"
            self.console.print(words, soft_wrap=True, highlight=False)
        elif record["event"] == "run":
            self._done[experiment] = whole
        self._progress.update(self._bar, completed=sum(self._done.values()))

    @staticmethod
    def _tasks(experiment: Experiment) -> int:
        return 1 if experiment.build().merges else experiment.tasks or 5  # a guess where only the data know


@contextlib.contextmanager
def download_bar(name: str, quiet: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """A bar over the bytes of a download."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, quiet=quiet)
    with Progress(*columns, console=console, disable=quiet or not console.is_interactive, transient=True) as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
