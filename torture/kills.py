"""Runs that are killed, at random and chosen instants, and resumed: they end with the bits of one that was not killed.

    python torture/kills.py --count 500 --out torture/results/kills.json

A run is a process forked from this one, which has imported everything. It dies in the middle of a step, at one of its
file operations, while a checkpoint is being written, or whenever it happens to be; by SIGKILL or by one that asks.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from record import Record, options
from safetensors.torch import load_file

from everlearn import Experiment, registry
from everlearn.core import feeding
from everlearn.core.plan import reservoir
from everlearn.experiments import run as runs
from everlearn.experiments.experiment import load
from everlearn.experiments.results import RESULT, read_lines
from everlearn.experiments.store import CHECKPOINT, Store
from everlearn.launchers.local import cores

CLAIM = "A run that is killed, at any instant, goes on and ends with the bits of one that was not killed."
SETTINGS = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=3, batch=32)
MEMORIES = (20, "balanced:20", 400)  # the last one is larger than a task
ASKING = ("SIGTERM", "SIGINT", "SIGHUP")
NEVER = 1e6  # seconds


def labels() -> list[str]:
    """Every method, every relational one, and every weighting on three methods."""
    rehearsing, own = ("er", "er-ace", "der++"), ("fixed", "relation", "labelled")
    weighed = [f"{method}+{weighting}" for method in rehearsing for weighting in registry.WEIGHTINGS]
    others = [name for name in weighed if name.split("+")[-1] not in own]
    return [*registry.METHODS, *registry.ALIASES, *others, "der+++labelled"]


class Case(NamedTuple):
    """A run, how often it writes checkpoints, and how it dies."""

    label: str
    memory: int | str
    where: str  # step, file, checkpoint or instant
    signal: str
    share: float  # of the way there
    every: float  # seconds between checkpoints

    def experiment(self) -> Experiment:
        remembers = registry.find("method", registry.parts(self.label)[0]).remembers
        return Experiment.of(self.label, **SETTINGS, **({"memory": self.memory} if remembers else {}))

    def __str__(self) -> str:
        return f"{self.label}, memory {self.memory}: {self.signal} {self.share:.3f} of the way, by {self.where}"


class Counted:
    """Steps and file operations of this process; at one of them it gets a signal."""

    def __init__(self, folder: Path, where: str = "", number: int = -1, name: str = "SIGKILL", delay: float = 0.0):
        self.counts = {"step": 0, "file": 0, "checkpoint": 0}
        self.folder, self.where, self.number, self.signal, self.delay = str(folder), where, number, name, delay
        feeding.train_step = self._step(feeding.train_step)
        sys.addaudithook(self._audit)

    def _step(self, train_step):
        def counted(method, step):
            terms = train_step(method, step)
            self._count("step")  # θ has moved, and nobody knows yet
            return terms

        return counted

    def _audit(self, event: str, given: tuple) -> None:
        if event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir", "shutil.rmtree"):
            path = os.fsdecode(given[0]) if isinstance(given[0], (str, bytes, os.PathLike)) else ""
            if path.startswith(self.folder):
                self._count("file")
                if event == "open" and CHECKPOINT in Path(path).name and set(str(given[1])) & set("wxa"):
                    self._count("checkpoint")

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        if what == self.where and self.counts[what] == self.number:
            if what == "checkpoint":  # somewhere in the next millisecond, also within a system call
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, self.delay)
            else:
                os.kill(os.getpid(), getattr(signal, self.signal))


def begun(experiment: Experiment, folder: Path, every: float, **death) -> int:
    """A process that performs the run; its number."""
    if process := os.fork():
        return process
    code = 99
    try:
        os.environ["EVERLEARN_CHECKPOINT"] = str(every)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background they may be ignored
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        counted = Counted(folder, **death)
        runs.finish(runs.recorded(experiment, Store(folder), "cpu", keep=True))
        (folder.parent / f"{folder.name}.counts").write_text(json.dumps(counted.counts))
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(process: int) -> int:
    """Its exit code, or the signal it died of as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def seen(store: Store, experiment: Experiment) -> dict:
    """What a complete run left, but for how long it took and where."""
    result, folder = store.result(experiment), store.path(experiment)
    assert result is not None
    kept = {key: result[key] for key in ("experiment", "class_il", "task_il", "classes", "network")}
    lines = [{key: value for key, value in line.items() if key != "seconds"} for line in read_lines(folder)]
    bits = lambda path: {name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()}
    return {"result": kept, "metrics": lines, **{path.name: bits(path) for path in folder.glob("*.safetensors")}}


def undisturbed(root: Path, case: Case) -> None:
    """The run nobody kills, what it counted and how long it took."""
    folder = root / place(case)
    start = time.monotonic()
    if ended(begun(case.experiment(), folder, 0)):
        raise SystemExit(f"{case.label} fails by itself")
    counts = folder.parent / f"{folder.name}.counts"
    counts.write_text(json.dumps(json.loads(counts.read_text()) | {"instant": time.monotonic() - start}))


def place(case: Case) -> str:
    return f"whole-{case.label}-{case.memory}".replace(":", "-")


def tortured(root: Path, case: Case) -> str | None:
    """What was wrong with it, if anything was."""
    whole, folder = root / place(case), Path(tempfile.mkdtemp(dir=root))
    counts = json.loads((root / f"{place(case)}.counts").read_text())
    experiment, store = case.experiment(), Store(folder)
    try:
        for attempt in range(20):
            wrong, resumable = died(case, case.share / 2**attempt, counts, experiment, folder)
            if wrong is not None:  # else it was over before: earlier, then
                break
        else:
            return "it could not be killed"
        if wrong:
            return wrong
        if code := ended(begun(experiment, folder, NEVER)):
            return f"it did not go on: exit code {code}"
        if left := sorted(path.name for path in folder.iterdir() if path != store.path(experiment)):
            return f"it left {', '.join(left)}"
        if resumable and not store.result(experiment)["provenance"]["resumed"]:
            return "it began anew, though there was a checkpoint"
        one, other = seen(Store(whole), experiment), seen(store, experiment)
        differing = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
        return f"{', '.join(sorted(differing))} came out differently" if differing else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def died(case: Case, share: float, counts: dict, experiment: Experiment, folder: Path) -> tuple[str | None, bool]:
    """Let it run to where it dies: '' or what was wrong then, None if it lived, and whether it can be resumed."""
    if case.where == "instant":
        process = begun(experiment, folder, case.every)
        time.sleep(share * counts["instant"])
        os.kill(process, getattr(signal, case.signal))
        code = ended(process)
    else:
        number = 1 + int(share * counts[case.where])
        death = dict(where=case.where, number=number, name=case.signal, delay=1e-6 + 1e-3 * (1000 * share % 1))
        code = ended(begun(experiment, folder, case.every, **death))
    store = Store(folder)
    if code == 0:  # too late for this one
        shutil.rmtree(folder)
        folder.mkdir()
        return None, False
    asked = {128 + signal.SIGTERM, 130, 128 + signal.SIGHUP, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
    if code not in ({-signal.SIGKILL, -signal.SIGALRM} if case.signal == "SIGKILL" else asked):
        return f"it ended with exit code {code}", False
    part = store.part(experiment)
    checkpoint, complete = (part / CHECKPOINT).exists(), (part / RESULT).exists()  # a complete one is only moved
    if case.where == "step" and case.signal != "SIGKILL" and not checkpoint:
        return f"{case.signal} in a step left no checkpoint", False
    return "", checkpoint and not complete


def cases(count: int, seed: int) -> list[Case]:
    """Every label in turn; by turns in each of the ways to die."""
    chosen, made, names = random.Random(seed), [], labels()
    for n in range(count):
        where = ("step", "instant", "step", "file", "instant", "checkpoint")[n % 6]
        asks = (where == "step" and n % 6 == 2) or (where == "instant" and n % 6 == 4)
        every = 0.0 if where in ("file", "checkpoint") or chosen.random() < 0.5 else NEVER
        turn = n // len(names)
        name = names[(n + turn) % len(names)]
        own = registry.find("method", registry.parts(name)[0])
        memory = MEMORIES[turn % 3 if own.slot_rule is reservoir else 2 * (turn % 2)]  # others balance in their own way
        made.append(Case(name, memory, where, chosen.choice(ASKING) if asks else "SIGKILL", chosen.random(), every))
    return made


def main(count: int, seed: int, jobs: int | None = None) -> Record:
    record, made = Record("kills", CLAIM), cases(count, seed)
    shared = Path("/dev/shm")
    torch.set_num_threads(1)
    load(made[0].experiment().stream)  # once, for all that are forked
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        root = Path(folder)
        with ProcessPoolExecutor(jobs or cores(), mp_context=get_context("fork")) as pool:
            wholes = list({place(case): case for case in made}.values())
            list(pool.map(undisturbed, [root] * len(wholes), wholes))
            for case, wrong in zip(made, pool.map(tortured, [root] * len(made), made)):
                record.tried(case.label, str(case), wrong)
    record.figures["methods and weightings"] = len({case.label for case in made})
    for kind, name in {"step": "in a step", "file": "at a file operation", "instant": "at a random instant"}.items():
        record.figures[f"kills {name}"] = sum(case.where == kind for case in made)
    record.figures["kills while a checkpoint is written"] = sum(case.where == "checkpoint" for case in made)
    record.figures["signals that ask"] = sum(case.signal != "SIGKILL" for case in made)
    return record


if __name__ == "__main__":
    parser = options(CLAIM, 500)
    parser.add_argument("--jobs", type=int, help="so many at a time (as many as there are cores)")
    arguments = parser.parse_args()
    sys.exit(main(arguments.count, arguments.seed, arguments.jobs).end(arguments.out))
