"""Runs on disk: one folder per run, named after the experiment's hash.

    experiment.json    the settings
    metrics.jsonl      a line per epoch, as they come, and one per task: accuracies, confusions, what the memory holds
    result.json        the accuracies, metrics, seconds and provenance
    *.safetensors      what the run leaves behind to be looked at

A run is written to NAME.part and renamed to NAME when it is complete: a folder without `.part` is a whole run. A run
of more than a minute leaves a `checkpoint` there, tensors and a checksum, from which it goes on if it is stopped or
killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import filelock
import torch

from everlearn.errors import BadInput, EverlearnError, Stopped, parsed
from everlearn.experiments.experiment import Experiment
from everlearn.metrics import METRICS

CHECKPOINT = "checkpoint"
EVERY = 60  # seconds between checkpoints, unless $EVERLEARN_CHECKPOINT says otherwise
LENGTH = "records.length"  # bytes of metrics.jsonl at the checkpoint
MOVES_OPEN = os.name != "nt"  # Windows moves no folder with an open file in it


class Busy(BadInput):
    """Another process is at this run."""


class Done(BadInput):
    """This run is complete."""


class Damaged(BadInput):
    """What should be a run's result is none."""


class Store:
    """A folder of runs."""

    def __init__(self, root: Path | str = "runs"):
        self.root = Path(root)

    def path(self, experiment: Experiment) -> Path:
        return self.root / experiment.name

    def part(self, experiment: Experiment) -> Path:
        """The folder of a run that is not complete."""
        return self.root / f"{experiment.name}.part"

    def has(self, experiment: Experiment) -> bool:
        """Is there a complete run of this experiment?"""
        return self.path(experiment).is_dir()

    def result(self, experiment: Experiment) -> dict | None:
        """The result of a complete run of this experiment, if there is one."""
        if not self.has(experiment):
            return None
        path = self.path(experiment)
        if not same(experiment, (result := read_result(path))["experiment"]):
            raise Damaged(f"{path} holds the result of another experiment; remove the folder and run this one again")
        return result

    def forget(self, experiment: Experiment) -> None:
        """Remove its run, complete or not."""
        for path in (self.path(experiment), self.part(experiment)):
            shutil.rmtree(path, ignore_errors=True)

    def prepare(self) -> None:
        """The folder, made and tried before any work starts."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".{os.getpid()}.probe"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise BadInput(
                f"cannot write to the folder {self.root}: {error.strerror}; choose another with --out"
            ) from None

    @contextlib.contextmanager
    def recording(self, experiment: Experiment, fresh: bool = True) -> Iterator[Recording]:
        """A run being written; if it is there already, only when `fresh`.

        A run that fails of itself leaves nothing behind. One that is stopped, by Ctrl-C, a full disk or a missing
        library, leaves its checkpoint, if it has one.
        """
        self.prepare()
        every = _seconds(os.environ.get("EVERLEARN_CHECKPOINT", EVERY))
        final = self.path(experiment)
        part, old = self.part(experiment), final.with_name(final.name + ".old")
        with _claim(part) as lock:
            try:
                if final.exists() and not fresh:
                    raise Done(f"{final} is there already")
                if fresh:
                    (part / CHECKPOINT).unlink(missing_ok=True)
                with open(part / "metrics.jsonl", "a") as metrics:
                    _write(part / "experiment.json", experiment.document())
                    yield Recording(part, metrics, every)
                (part / CHECKPOINT).unlink(missing_ok=True)
                if final.exists():  # run again on purpose: the old run makes way only now, and in one move
                    shutil.rmtree(old, ignore_errors=True)
                    final.rename(old)
                _let_go(lock)
                part.rename(final)
                (final / "lock").unlink()  # held to the end: nobody writes into a folder that is being finished
                shutil.rmtree(old, ignore_errors=True)
            except BaseException as error:
                failed = isinstance(error, EverlearnError) and not isinstance(error, (Stopped, BadInput))
                if failed or isinstance(error, Done) or not (part / CHECKPOINT).exists():
                    _let_go(lock)
                    _clear(part)
                raise


def _let_go(lock: IO) -> None:
    """Of a folder about to be moved, where it must be: there, whoever comes in between makes the move fail."""
    if not MOVES_OPEN:
        lock.close()


def _clear(part: Path) -> None:
    """Out of the way in one move: nobody is to claim a folder that is being cleared."""
    with contextlib.suppress(OSError):
        shutil.rmtree(part.rename(part.with_name(f".{part.name}.{os.getpid()}")), ignore_errors=True)


@contextlib.contextmanager
def _claim(part: Path) -> Iterator[IO]:
    """The folder of a run in progress, made, and nobody else in it."""
    while True:
        part.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(alone(part / "lock", f"is running this experiment in {part}"))
                ours = os.path.samestat(os.fstat(lock.fileno()), os.stat(part / "lock"))
            except FileNotFoundError:  # finished and renamed just now
                continue
            if ours:  # and not the lock of a run that was renamed between opening and locking it
                yield lock
                return


class Recording:
    """The folder of a run in progress."""

    def __init__(self, folder: Path, metrics: IO, every: float = EVERY):
        self.folder, self._metrics, self._every, self._saved = folder, metrics, every, time.monotonic()
        self.resumed = self._resume()  # the state it was left in, or None

    def _resume(self) -> dict | None:
        """The checkpoint, if there is a sound one; the records then end where it was written."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            content = (self.folder / CHECKPOINT).read_bytes()
            digest, payload = content[:32], content[32:]
            state = load(payload) if hashlib.sha256(payload).digest() == digest else None
            if state and state[LENGTH] > os.fstat(self._metrics.fileno()).st_size:
                state = None  # the records before it were lost
        except (FileNotFoundError, SafetensorError):
            state = None
        self._metrics.truncate(0 if state is None else int(state.pop(LENGTH)))
        return state

    def checkpoint(self, state: Callable[[], dict]) -> None:
        """Write the state down, if the last time was a minute ago: whole, or not at all."""
        if time.monotonic() - self._saved < self._every:
            return
        payload = _bytes(state() | {LENGTH: torch.tensor(self._metrics.tell())})
        os.fsync(self._metrics.fileno())
        new = self.folder / f"{CHECKPOINT}.new"
        with open(new, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / CHECKPOINT)
        self._saved = time.monotonic()

    def line(self, record: dict) -> None:
        self._metrics.write(json.dumps(record) + "\n")
        self._metrics.flush()

    def result(self, document: dict) -> None:
        _write(self.folder / "result.json", document)

    def tensors(self, name: str, tensors: dict) -> None:
        # Not by safetensors itself: a full disk is to be an OSError like any other.
        self.file(f"{name}.safetensors", _bytes(tensors))

    def file(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)


def _seconds(given: str | float) -> float:
    try:
        return float(given)
    except ValueError:
        raise BadInput(f"EVERLEARN_CHECKPOINT is '{given}', which is no number of seconds") from None


def _bytes(tensors: dict) -> bytes:
    from safetensors.torch import save

    return save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})


@contextlib.contextmanager
def alone(lock: Path, doing: str) -> Iterator[IO]:
    """A lock on a file, for one process at a time; the system releases it if the process dies. `doing` is what another
    process does that has it."""
    try:
        file = open(lock, "a", opener=_here)  # noqa: SIM115  # closed below: what fails in between is another error
    except FileNotFoundError:  # its folder has just been moved, as _claim expects
        raise
    except OSError as error:
        raise _unlockable(lock, error) from None
    with file:
        try:
            locked = filelock.lock_descriptor(file.fileno(), blocking=False)
        except OSError as error:
            raise _unlockable(lock, error) from None
        if not locked:
            raise Busy(f"another process {doing}; wait for it or choose another --out")
        yield file


def _here(path: str, flags: int) -> int:
    """Opened where it is: a link in its place is not followed."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _unlockable(lock: Path, error: OSError) -> BadInput:
    return BadInput(f"{lock} cannot be locked: {error.strerror}; remove it or choose another --out")


def read_result(path: Path) -> dict:
    """The result in a run's folder, or in a file of its own, or a sentence on why it is none."""
    file = path if path.is_file() else path / "result.json"
    way_out = "is it a run's record?" if file == path else "remove the folder and run the experiment again"
    try:
        document = parsed(file.read_text())
    except FileNotFoundError:
        if not path.exists():
            raise BadInput(f"there is no {path}") from None
        if path.suffix == ".part":
            raise BadInput(
                f"{path} is of a run that is not complete; the command that began it goes on with it"
            ) from None
        if not (path / "experiment.json").exists() and any(path.iterdir()):  # a folder of runs, say
            way_out = "name one of a run, such as runs/digits-er-m100-e5-s0-…"
        raise Damaged(f"{path} is not a run's folder, it has no result.json; {way_out}") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise Damaged(f"{file} is not whole; {way_out}") from None
    if isinstance(document, dict) and "rows" in document:
        name = document.get("study")
        raise BadInput(f"{file} is the record of a study, of many runs; `everlearn study {name}` runs them again")
    of = lambda key: found if isinstance(found := document.get(key), dict) else {}
    figure = lambda value: value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    measured = lambda setting: "matrix" in of(setting) and all(figure(of(setting).get(m, "")) for m in METRICS)
    if not (isinstance(document, dict) and of("experiment") and measured("class_il") and measured("task_il")):
        raise Damaged(f"{file} is not the record of a run; {way_out}")
    return document


def same(experiment: Experiment, document: dict) -> bool:
    """Does the document describe the experiment, wherever its files lay?"""
    try:
        return Experiment.parse(document).hash == experiment.hash
    except (BadInput, KeyError, TypeError, ValueError, AttributeError):
        return False


def read_lines(folder: Path) -> list[dict]:
    """The records of a run folder, in the order they came."""
    return [parsed(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def validation(folder: Path) -> dict[str, float] | None:
    """The mean weights a relation gave validation samples at the end of a run's last task, if they are on record."""
    with contextlib.suppress(OSError, ValueError):
        reviews = [line.get("validation") for line in read_lines(folder) if line["event"] == "review"]
        return reviews[-1]["weights"] if reviews and reviews[-1] else None


def _write(path: Path, document: dict) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")
