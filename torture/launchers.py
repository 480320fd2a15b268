"""Commands that spread runs over processes, one of which is killed at a random instant: are the runs none the worse?

    python torture/launchers.py [--count 10] [--seed 0] [--jobs 2] [--out torture/results/launchers.json]

Each kind of death is tried `--count` times: a Ray worker is killed, a submitit job preempted or killed, a rank of
torchrun killed, with or without restarts of its own, a worker process of ours killed; two workers get Ctrl-C. A command
that does not go on by itself is given again. A case holds if every run is then complete, with the bits of an
undisturbed command of its kind, if none was done twice, and if nothing else is left. A run that was asked to end, and
not killed, goes on from where it was. Ray is an extra: without it its cases are left out, and the record says so.
"""

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kills import seen
from record import Record, options

from everlearn import Experiment
from everlearn.experiments.results import LINES, read_result
from everlearn.experiments.store import CHECKPOINT, Store

CLAIM = "Ray, submitit, torchrun and worker processes, one killed at random: every run is done once, in the right bits."
STUDY = """
seeds = 2
[[grid]]
method = "rer"
classes = ["0", "1", "2", "3"]
tasks = 2
epochs = 15
memory = 20
"""
RANKS = "-m torch.distributed.run --standalone --nproc-per-node 2"
JOB, JOBS, SUBMITIT = (
    "submitit.core._submit",
    ".slurm/runs/*.part",
    "--on slurm --launcher-option cluster=local --jobs 2",
)
NEVER = 1e6  # seconds
PATIENCE = 600  # seconds, and it hangs


@dataclass(frozen=True)
class Kind:
    """A command, which of its processes gets which signal, and whether it goes on without being given again."""

    victim: str  # a word of the process's own command line
    after: str = ""
    place: str = "*.part"  # where its runs are while they are under way
    before: str = ""
    signal: int = signal.SIGKILL
    survives: bool = True
    package: str = "everlearn"  # what it takes

    @property
    def asks(self) -> bool:
        return self.signal != signal.SIGKILL

    def command(self, out: Path) -> list[str]:
        words = f"study {out.parent / 'study.toml'} --out {out} --device cpu --keep --quiet {self.after}"
        return [sys.executable, *self.before.split(), "-m", "everlearn", *words.split()]


KINDS = {
    "Ray, a worker killed": Kind("ray::run_there", "--on ray", package="ray"),
    "submitit, a job preempted": Kind(JOB, SUBMITIT, JOBS, signal=signal.SIGUSR2, package="submitit"),
    "submitit, a job killed": Kind(JOB, SUBMITIT, JOBS, package="submitit"),
    "torchrun, a rank killed": Kind("everlearn", before=RANKS, survives=False),
    "torchrun with restarts, a rank killed": Kind("everlearn", before=f"{RANKS} --max-restarts 3"),
    "two workers, one killed": Kind("multiprocessing.forkserver"),
    "two workers, Ctrl-C": Kind("multiprocessing.forkserver", signal=signal.SIGINT, survives=False),
}


class Command:
    """One that has been started, with all its processes; none of them outlives it."""

    def __init__(self, kind: Kind, out: Path):
        self.kind, self.out = kind, out
        own = {"EVERLEARN_CHECKPOINT": str(NEVER if kind.asks else 0.1), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            kind.command(out),
            env=os.environ | own | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> dict[int, int]:
        """Its processes, and the parent of each."""
        parents = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                parents[int(entry)] = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
        ours = {self.process.pid}
        while more := {process for process, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return {process: parents[process] for process in ours - {self.process.pid}}

    def victims(self) -> list[int]:
        """Those that have the word in their command line, but for those that have started others that have."""
        word, found = self.kind.victim.encode(), {}
        for process, parent in self.processes().items():
            with contextlib.suppress(OSError):
                if word in Path("/proc", str(process), "cmdline").read_bytes().replace(b"\0", b" "):
                    found[process] = parent
        return sorted(found.keys() - {*found.values()})

    def under_way(self) -> bool:
        """Is there a victim, and a run in its hands?"""
        return any(self.out.glob(self.kind.place)) and bool(self.victims())

    def wait(self, until: bool) -> None:
        """Until it is under way, or no longer is."""
        limit = time.monotonic() + PATIENCE
        while self.under_way() != until and self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)

    def learning(self) -> set[str]:
        """The runs that have written something, and are not complete."""
        lines = self.out.glob(f"{self.kind.place}/{LINES}")
        return {path.parent.name.removesuffix(".part") for path in lines if path.exists() and path.stat().st_size}

    def ended(self) -> tuple[int | None, str]:
        """Its exit code, None if it hangs, and what it said."""
        try:
            said = self.process.communicate(timeout=PATIENCE)[1]
            return self.process.returncode, said
        except subprocess.TimeoutExpired:
            for process in [*self.processes(), self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return None, "it hangs"


def complete(out: Path) -> dict[str, int]:
    """The complete runs and their folders' numbers on the disk."""
    folders = [path for path in out.glob("[!.]*") if path.suffix not in (".part", ".old")]
    return {path.name: os.stat(path).st_ino for path in folders}


def outcome(folder: Path) -> dict:
    """What has to be the same bits."""
    return seen(Store(folder.parent), Experiment.parse(read_result(folder)["experiment"]))


def undisturbed(kind: Kind, out: Path) -> tuple[dict[str, dict], float]:
    """What each run comes to, and for how many seconds they were under way."""
    command = Command(kind, out)
    command.wait(True)
    start = time.monotonic()
    command.wait(False)
    seconds = time.monotonic() - start
    code, said = command.ended()
    if code != 0:
        raise SystemExit(f"{' '.join(kind.command(out))} fails by itself: {said}")
    return {name: outcome(out / name) for name in complete(out)}, seconds


def killed(kind: Kind, out: Path, pause: float, choice: random.Random, expected: dict[str, dict]) -> str | None:
    """What was wrong, '' for nothing; None if it was over before."""
    command = Command(kind, out)
    command.wait(True)
    time.sleep(pause)
    learning, done, victims = command.learning(), complete(out), command.victims()
    if not victims or command.process.poll() is not None:
        command.ended()
        return None
    if kind.signal == signal.SIGINT:  # as a terminal does it
        os.killpg(command.process.pid, signal.SIGINT)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(choice.choice(victims), kind.signal)
    code, said = command.ended()
    if code is None:
        return said
    left = {name for name in learning if not (out / name).exists() and not (out / f"{name}.part" / CHECKPOINT).exists()}
    if not kind.survives and kind.asks and left:
        return f"{len(left)} of {len(learning)} runs under way left no checkpoint"
    if not kind.survives and (code or complete(out).keys() != expected.keys()):
        code, said = Command(kind, out).ended()
    if code != 0:
        return f"exit code {code}: {said.strip()[-300:]}"
    after = complete(out)
    if after.keys() != expected.keys():
        return f"{len(after)} of {len(expected)} runs are there"
    if twice := [name for name, number in done.items() if after[name] != number]:
        return f"{', '.join(twice)} was done twice"
    if wrong := [name for name in after if outcome(out / name) != expected[name]]:
        return f"{', '.join(wrong)} came out differently"
    if kind.asks and learning == expected.keys() and not resumed(out):
        return "what was asked to end began anew"
    if strays := {path.name for path in [*out.iterdir(), *out.glob(".slurm/runs/*")]} - {*after, ".slurm", "runs"}:
        return f"left: {', '.join(sorted(strays))}"
    return ""


def resumed(out: Path) -> int:
    """How many of its runs went on from a checkpoint."""
    return sum(read_result(out / name)["provenance"]["resumed"] > 0 for name in complete(out))


def torture(count: int, seed: int, jobs: int = 2) -> Record:
    record = Record("launchers", CLAIM)
    here = {name: kind for name, kind in KINDS.items() if importlib.util.find_spec(kind.package)}
    for name in KINDS.keys() - here.keys():
        print(f"launchers: {name}: left out, for {KINDS[name].package} is not here", file=sys.stderr)
        record.figures[name] = f"left out, for {KINDS[name].package} was not there"
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored, by children too
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        roots = [Path(folder, str(number)) for number in range(len(here))]
        of = partial(tortured, count, seed)
        for name, (tried, again) in zip(here, pool.map(of, here, roots)):
            for case, wrong in tried:
                record.tried(name, case, wrong)
            record.figures[f"{name}: {count} times, runs that then went on from a checkpoint:"] = again
    return record


def tortured(count: int, seed: int, name: str, root: Path) -> tuple[list[tuple[str, str | None]], int]:
    """The cases of a kind and what was wrong with each; how many runs went on from a checkpoint."""
    kind, choice, tried, again = KINDS[name], random.Random(f"{name} {seed}"), [], 0
    root.mkdir()
    (root / "study.toml").write_text(STUDY)
    expected, seconds = undisturbed(kind, root / "undisturbed")
    for number in range(count):
        share, wrong = choice.random(), None
        for attempt in range(10):  # if it was over before, earlier
            out, pause = root / f"{number}-{attempt}", share * seconds / 2**attempt
            if (wrong := killed(kind, out, pause, choice, expected)) is not None:
                break
        case = f"case {number}, {pause:.2f} of {seconds:.2f} s"
        tried.append((case, "it could not be killed" if wrong is None else wrong or None))
        print(f"launchers: {name}, {case}: {wrong or 'held'}", file=sys.stderr, flush=True)
        again += resumed(out)
        shutil.rmtree(out, ignore_errors=True)
    return tried, again


if __name__ == "__main__":
    given = options(CLAIM, 10)
    given.add_argument("--jobs", type=int, default=2, help="kinds of death at a time (2)")
    arguments = given.parse_args()
    sys.exit(torture(arguments.count, arguments.seed, arguments.jobs).end(arguments.out))
