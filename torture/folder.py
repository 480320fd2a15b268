"""Many processes at one study in one folder, killed at random: is every run done once, and are its bits right?

    python torture/folder.py [--count 8] [--seconds 600] [--seed 0] [--out torture/results/folder.json]

`--count` processes perform the study side by side, as so many commands on a shared folder do. One of them is killed
(SIGKILL) every fraction of a second and another takes its place. When the study is complete the next round begins in
another folder. After the last kill nobody disturbs any more, and the study in hand is completed. A run holds if it was
done once, in the bits of an undisturbed study, and leaves nothing but its folder.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from record import Record, options

from everlearn.experiments.experiment import Experiment
from everlearn.experiments.results import read_lines, read_result
from everlearn.experiments.store import Store
from everlearn.launchers import perform

CLAIM = "Processes at one study in one folder, killed at random: every run is done once and has the right bits."
SMALL = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=3, batch=32)
PAUSE = 0.3  # seconds between two kills, on average


def study() -> list[Experiment]:
    return [
        Experiment.of(method, memory=memory, seed=seed, device="cpu", **SMALL)
        for method in ("er", "rer", "der++", "icarl")
        for memory in (20, 50)
        for seed in range(3)
    ]


def started(experiments: list[Experiment], root: Path) -> int:
    """A process that performs the study, forked from this one: it has imported all it takes."""
    if process := os.fork():
        return process
    code = 1
    try:
        os.environ["EVERLEARN_CHECKPOINT"] = "0.1"
        store = Store(root)
        store.prepare(experiments)
        outcomes = perform(experiments, store, device="cpu", jobs=1)
        code = int(any(isinstance(outcome, Exception) for outcome in outcomes))
    finally:
        os._exit(code)


def outcome(folder: Path) -> tuple:
    """What has to be the same bits."""
    result = read_result(folder)
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in read_lines(folder)]
    tensors = {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}
    return result["class_il"], result["task_il"], lines, tensors


class Round:
    """One study in one folder."""

    def __init__(self, experiments: list[Experiment], root: Path):
        self.experiments, self.root, self.first = experiments, root, {}
        root.mkdir()

    def look(self) -> bool:
        """Is the study complete? Each run is remembered by its folder's number on the disk when it is first seen."""
        store = Store(self.root)
        for experiment in store.done(self.experiments):
            self.first.setdefault(experiment.name, os.stat(store.path(experiment)).st_ino)
        return len(self.first) == len(self.experiments)

    def judge(self, record: Record, expected: dict[str, tuple]) -> None:
        Store(self.root).prepare(self.experiments)  # as the next command does
        for experiment in self.experiments:
            folder = self.root / experiment.name
            wrong = None
            if not folder.is_dir():
                wrong = "it is not there"
            elif os.stat(folder).st_ino != self.first.get(experiment.name):
                wrong = "it was done twice"
            elif outcome(folder) != expected[experiment.name]:
                wrong = "it ended otherwise"
            elif strange := {path.name for path in folder.iterdir()} & {"lock", "lock.alive", "checkpoint"}:
                wrong = f"it still has {', '.join(sorted(strange))}"
            record.tried("run", f"{self.root.name}, {experiment.name}", wrong)
        left = {path.name for path in self.root.iterdir()} - {experiment.name for experiment in self.experiments}
        record.tried("folder", self.root.name, f"left: {', '.join(sorted(left))}" if left else None)


def torture(processes: int, seconds: float, seed: int) -> Record:
    record, rng, experiments = Record("folder", CLAIM), random.Random(seed), study()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.waitpid(started(experiments, root / "undisturbed"), 0)
        expected = {e.name: outcome(root / "undisturbed" / e.name) for e in experiments}
        kills, rounds, end = 0, [Round(experiments, root / "round 1")], time.monotonic() + seconds
        alive: set[int] = set()
        while time.monotonic() < end:
            now = rounds[-1]
            while len(alive) < processes and not now.look():
                alive.add(started(experiments, now.root))
            time.sleep(rng.expovariate(1 / PAUSE))
            alive -= ended(alive)
            if now.look():
                finish(alive)
                now.judge(record, expected)
                shutil.rmtree(now.root)
                rounds.append(Round(experiments, root / f"round {len(rounds) + 1}"))
            elif alive:
                process = rng.choice(sorted(alive))
                os.kill(process, signal.SIGKILL)
                kills += 1
        finish(alive)
        last = rounds[-1]
        last.look()
        os.waitpid(started(experiments, last.root), 0)
        last.look()
        last.judge(record, expected)
    record.figures |= {"processes": processes, "kills": kills, "rounds": len(rounds)}
    return record


def ended(alive: set[int]) -> set[int]:
    return {process for process in alive if os.waitpid(process, os.WNOHANG)[0]}


def finish(alive: set[int]) -> None:
    """Those that are left end by themselves: the study is complete, or they are killed for the last time."""
    for process in alive:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    alive.clear()


def main() -> int:
    parser = options(__doc__.splitlines()[0], 8)
    parser.add_argument("--seconds", type=float, default=600, help="how long (600)")
    given = parser.parse_args()
    return torture(given.count, given.seconds, given.seed).end(given.out)


if __name__ == "__main__":
    sys.exit(main())
