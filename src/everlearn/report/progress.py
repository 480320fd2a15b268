"""The live display: which run, which task and epoch, how far, how long still."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column
from rich.text import Text

from everlearn import launchers
from everlearn.core import ranks
from everlearn.errors import EverlearnError, plural, printable
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Store
from everlearn.launchers import DONE
from everlearn.learner.saved import NETWORK
from everlearn.report import console

LOG_EVERY = 30  # seconds


class Words(TextColumn):
    """Words on one line, an ellipsis where there is no room for more of them."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


class Display:
    """A bar over all epochs of all runs, on stderr; says nothing when quiet."""

    def __init__(self, experiments: Sequence[Experiment], quiet: bool = False):
        self.console = console(stderr=True, quiet=quiet)
        bar = [BarColumn(20)] if self.console.width >= 120 else []  # words and numbers need the room first
        whole = Column(no_wrap=True)  # where the line is too long, the words are cut and the numbers stay as they are
        columns = (
            Words("{task.description}", table_column=Column(), markup=False),
            *bar,
            MofNCompleteColumn(table_column=whole),
            TextColumn("epochs"),
            TimeElapsedColumn(table_column=whole),
            TextColumn("left"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=False, table_column=whole),
        )
        self._progress = Progress(
            *columns, console=self.console, disable=quiet or not self.console.is_interactive, transient=True
        )
        self._epochs = {experiment: experiment.training.epochs * self._tasks(experiment) for experiment in experiments}
        self._bar = self._progress.add_task("", total=sum(self._epochs.values()))
        self._done: dict[Experiment, float] = dict.fromkeys(experiments, 0)  # epochs
        self._said = time.monotonic()

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *error) -> None:
        self._progress.stop()

    def report(self, experiment: Experiment, record: dict) -> None:
        """A run's record as it comes. A run that is over counts in full, however many tasks it turned out to have."""
        epochs = experiment.training.epochs
        if record["event"] == "start":  # now the data have said how many tasks there are
            self._epochs[experiment] = epochs * record["tasks"]
            self._progress.update(self._bar, total=sum(self._epochs.values()))
        whole = self._epochs[experiment]
        if record["event"] in ("step", "epoch"):
            step = record.get("step")
            self._done[experiment] = min(
                record["task"] * epochs + record["epoch"] + (step / record["steps"] if step else 1), whole
            )
            who = printable(f"{experiment.label} on {experiment.stream.name}, seed {experiment.seed}")
            text = f"{who}: task {record['task'] + 1}, epoch {record['epoch'] + 1} of {epochs}"
            text += f", step {step} of {record['steps']}" if step else ""
            self._progress.update(self._bar, description=text)
            # To a log file a line now and then.
            if not self.console.is_interactive and time.monotonic() - self._said > LOG_EVERY:
                self._said = time.monotonic()
                self.say(f"{text} ({int(sum(self._done.values()))} of {sum(self._epochs.values())} epochs in all)")
        elif record["event"] == "waiting":
            self.say(f"another process is running {experiment.name}; waiting for it")
        elif record["event"] == "resumed":
            self._done[experiment] = record["task"] * epochs + record["epoch"]
            taken = record.get("step", 0)
            steps = f" and {plural(taken, 'step')}" if taken else ""
            done = f"{record['epoch']} of its {epochs} epochs{steps}"
            self.say(f"{experiment.name} continues with task {record['task'] + 1} after {done}")
        elif record["event"] == "run":
            self._done[experiment] = whole
        self._progress.update(self._bar, completed=sum(self._done.values()))

    def say(self, sentence: str) -> None:
        self.console.print(sentence, soft_wrap=True)

    @staticmethod
    def _tasks(experiment: Experiment) -> int:
        return experiment.stream.get("tasks") or 1  # until the data say how many there are


def watched(
    experiments: Sequence[Experiment],
    store: Store,
    quiet: bool,
    keep_going: bool = False,
    fresh: bool = False,
    **more: Any,
) -> list[Any]:
    """All experiments' results, with progress on stderr.

    What goes wrong with one is raised at the end or, to keep going, stands in the place of its result.
    """
    store.prepare(experiments)
    with Display(experiments, quiet or ranks.rank() > 0) as display:
        for sentence in notes(experiments):
            display.say(sentence)
        there = [] if fresh else store.done(experiments)
        for experiment in there:
            if len(there) <= 10:
                display.say(f"already run, see {store.path(experiment)} (--fresh runs it again)")
            display.report(experiment, DONE)
        if len(there) > 10:
            display.say(f"{len(there)} of {len(experiments)} runs exist already")
        if lost := [e for e in there if more.get("keep") and not (store.path(e) / NETWORK).exists()]:
            display.say(f"the network of {plural(len(lost), 'run')} was not kept; with --fresh it is")
        with contextlib.redirect_stdout(sys.stderr):  # what somebody's code prints: stdout is for results
            outcomes = launchers.perform(experiments, store, fresh=fresh, report=display.report, **more)
    wrong = {e.name: outcome for e, outcome in zip(experiments, outcomes) if isinstance(outcome, Exception)}
    if wrong and not keep_going:
        name, error = next(iter(wrong.items()))
        if type(error) is EverlearnError and len(wrong) < len(outcomes):
            error.args = (f"{name}: {error}; {len(wrong)} of {len(outcomes)} runs failed, the others are complete",)
        raise error
    return outcomes


def notes(experiments: Sequence[Experiment]) -> list[str]:
    """What the weightings of these experiments have to say about their schedules, each sentence once."""
    of = lambda e: e.build().weighting.notes(e.training, e.stream.get("tasks"), e.label)
    kinds = {(e.method, e.weighting, e.training, e.stream): e for e in experiments}
    return list(dict.fromkeys(sentence for e in kinds.values() for sentence in of(e)))


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
    log = console(stderr=True, quiet=quiet)
    with Progress(*columns, console=log, disable=quiet or not log.is_interactive, transient=True) as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
