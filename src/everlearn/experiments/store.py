"""Runs on disk: one folder per run, named after the experiment's hash.

    experiment.json    the settings
    source.zip         files of somebody else's that it runs, if there are any
    metrics.jsonl      a line per epoch, as they come, and one per task: accuracies, confusions, what the memory holds
    result.json        the accuracies, metrics, seconds and provenance, and the checksums of all files
    *.safetensors      what the run leaves behind to be looked at

A run is written to NAME.part and renamed to NAME when it is complete: a folder without `.part` is a whole run. A run
of more than a minute, or one that is stopped, leaves a `checkpoint` there, tensors and a checksum, from which it goes
on. A run that is whole is never removed: if it cannot be moved to its place, the next command does it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import torch

from everlearn.core.state import as_bytes, from_bytes
from everlearn.errors import MALFORMED, BadInput, EverlearnError, Notice, Stopped
from everlearn.experiments import seals, sources
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.locks import ALIVE, alone
from everlearn.experiments.results import LINES, RESULT, read_opened, same
from everlearn.experiments.seals import Damaged
from everlearn.files import no_link, write_whole

CHECKPOINT, LOCK = "checkpoint", "lock"
EVERY = 60  # seconds between checkpoints, unless $EVERLEARN_CHECKPOINT says otherwise
# Beside the state in a checkpoint: of which experiment it is, and how many bytes of records it goes with.
OF, LENGTH, RECORDS = "records.of", "records.length", "records.sha256"
WORKING = (LOCK, LOCK + ALIVE, CHECKPOINT)  # files of a run that is not complete
MOVES_OPEN = os.name != "nt"  # Windows moves no folder with an open file in it
PAUSES = (0.05, 0.5, 2.0)  # seconds between attempts at a move: a network folder may fail once
LEFT = re.compile(r"\.(.+\.part\.\w+|\d+\.probe)")  # names of what was being removed when its process was killed


class Done(BadInput):
    """This run is complete."""


class Store:
    """A folder of runs; those that are not what was written are refused, unless they may be `edited`."""

    def __init__(self, root: Path | str = "runs", edited: bool = False):
        self.root, self.edited = Path(root), edited

    def path(self, experiment: Experiment) -> Path:
        return self.root / experiment.name

    def part(self, experiment: Experiment) -> Path:
        """The folder of a run that is not complete."""
        return self.root / f"{experiment.name}.part"

    def has(self, experiment: Experiment) -> bool:
        """Is there a complete run of this experiment?"""
        return self.path(experiment).is_dir()

    def done(self, experiments: Iterable[Experiment]) -> list[Experiment]:
        """Those there is a complete run of: the folder is looked at once, however many they are."""
        there = self._names()
        return [experiment for experiment in experiments if there.get(experiment.name)]

    def _names(self) -> dict[str, bool]:
        """The names in the folder of runs, and whether each is a folder."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.root) as entries:
            return {entry.name: entry.is_dir() for entry in entries}
        return {}

    def result(self, experiment: Experiment) -> dict | None:
        """The result of a complete run of this experiment, if there is one."""
        if not self.has(experiment):
            return None
        path = self.path(experiment)
        found = read_opened(path, self.edited)
        # The hash that a run wrote down itself saves computing it anew; in a sealed result it can be relied on.
        known = found.document.get("provenance", {}).get("settings") if found.sealed else None
        if known != experiment.hash and not same(experiment, found.document["experiment"]):
            raise Damaged(f"{path} holds the result of another experiment; remove the folder or use --fresh")
        return found.document

    def forget(self, experiment: Experiment) -> None:
        """Remove the run of this experiment, complete or not."""
        for path in (self.path(experiment), self.part(experiment)):
            shutil.rmtree(path, ignore_errors=True)

    def prepare(self, experiments: Sequence[Experiment] = ()) -> None:
        """The folder, made and tried before any work starts; what killed processes left of these runs is cleared."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.root).close()  # it has no name, so nothing is left of it
        except OSError as error:
            raise BadInput(
                f"cannot write to the folder {self.root}: {error.strerror}; choose another with --out"
            ) from None
        if not experiments:
            return
        there = self._names()
        for name in filter(LEFT.fullmatch, there):
            _remove(self.root / name)
        for experiment in experiments:
            if f"{experiment.name}.old" in there or {experiment.name, f"{experiment.name}.part"} <= there.keys():
                # Another process is at work on it, or its run will say what is wrong.
                with contextlib.suppress(BadInput, OSError):
                    self._recover(experiment)

    def _recover(self, experiment: Experiment) -> None:
        """What a killed process left half-way: a run that is whole comes to its place, and else one that had made way
        for it comes back; the rest is cleared."""
        final, part, old = self._places(experiment)
        with _claim(part) as lock:
            if _whole(part, experiment):
                return _place(part, final, old, lock)
            if old.exists() and not final.exists():
                _move(old, final)
            shutil.rmtree(old, ignore_errors=True)
            if final.exists():
                _let_go(lock)
                _clear(part)

    def _places(self, experiment: Experiment) -> tuple[Path, Path, Path]:
        final = self.path(experiment)
        return final, self.part(experiment), final.with_name(f"{final.name}.old")

    @contextlib.contextmanager
    def recording(self, experiment: Experiment, fresh: bool = True) -> Iterator[Recording]:
        """A run being written; if it is there already, only when `fresh`.

        A run that fails of itself leaves nothing behind. One that is stopped, by Ctrl-C, a full disk or a missing
        library, leaves its checkpoint, if it has one.
        """
        self.prepare()
        every = _seconds(os.environ.get("EVERLEARN_CHECKPOINT", EVERY))
        final, part, old = self._places(experiment)
        if (part / RESULT).exists() or old.exists():
            self._recover(experiment)
        with _claim(part) as lock:
            whole = False
            try:
                if final.exists() and not fresh:
                    raise Done(f"{final} is there already")
                _empty(part, leaving=(LOCK, LOCK + ALIVE, LINES, *(() if fresh else (CHECKPOINT,))))
                with open(part / LINES, "a", opener=no_link) as metrics:
                    (part / "experiment.json").write_bytes(spelled(experiment.document()))
                    if (source := sources.archive(experiment)) is not None:
                        (part / sources.ARCHIVE).write_bytes(source)
                    yield Recording(part, metrics, every, experiment.hash)
                _seal(part)
                whole = True
                _place(part, final, old, lock)
            except BaseException as error:
                failed = isinstance(error, EverlearnError) and not isinstance(error, (Stopped, BadInput))
                lost = failed or isinstance(error, Done) or not (part / CHECKPOINT).exists()
                if lost and not whole:
                    _let_go(lock)
                    _clear(part)
                raise


def _seal(part: Path) -> None:
    """What makes a run complete: the checksums of its files, and all of them on the disk."""
    if not (part / RESULT).exists():
        raise EverlearnError(f"the run in {part} ended without a result")
    result = seals.opened(seals.read(part / RESULT))
    if result.sealed:  # the run was made on another machine, and its files may have been damaged on the way
        seals.check(part, result.files)
    else:
        whole = seals.sealed(result.document, seals.sums(part, leaving=(RESULT, *WORKING)))
        (part / RESULT).write_bytes(spelled(whole))
    for file in part.iterdir():
        _sync(file)
    _sync(part)


def _place(part: Path, final: Path, old: Path, lock: IO) -> None:
    """Move a run that is whole to its place. What it no longer needs is cleared only then."""
    if final.exists():  # run again on purpose: the old run makes way only now, and in one move
        shutil.rmtree(old, ignore_errors=True)
        _move(final, old)
    _let_go(lock)
    try:
        _move(part, final)
    except OSError as error:
        if old.exists():
            _move(old, final)
        raise Stopped(
            f"the run in {part} is complete and cannot be moved to {final.name} ({error.strerror}); "
            "the same command tries it again"
        ) from error
    _sync(final.parent)
    for name in WORKING:  # the lock is held to the end: nobody writes into a folder that is being finished
        _remove(final / name)
    shutil.rmtree(old, ignore_errors=True)


def _move(source: Path, target: Path) -> None:
    """Rename, once more if it fails; on a network folder one that is reported to have failed may have been done."""
    for pause in (*PAUSES, None):
        try:
            source.rename(target)
            return
        except OSError:
            if target.exists() and not source.exists():
                return
            if pause is None or target.exists():
                raise
            time.sleep(pause)


def _sync(path: Path) -> None:
    """On the disk, and not only on its way there, as far as the system can do it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _whole(part: Path, experiment: Experiment) -> bool:
    """Is the run in a `.part` complete, and only not in its place?"""
    try:
        found = read_opened(part)
        return found.sealed and same(experiment, found.document["experiment"])
    except BadInput:
        return False


def _let_go(lock: IO) -> None:
    """Close the lock of a folder that is about to be moved, where a folder with an open file in it cannot be moved. A
    process that comes in between makes the move fail there."""
    if not MOVES_OPEN:
        lock.close()


def _clear(part: Path) -> None:
    """Remove a folder. It is renamed first, so that no process claims one that is half removed."""
    with contextlib.suppress(OSError):
        shutil.rmtree(part.rename(part.with_name(f".{part.name}.{os.getpid()}")), ignore_errors=True)


def _empty(folder: Path, leaving: Sequence[str]) -> None:
    for path in folder.iterdir():
        if path.name not in leaving:
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a file or a folder; if that is not possible it stays."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@contextlib.contextmanager
def _claim(part: Path) -> Iterator[IO]:
    """Make the folder of a run in progress and hold its lock, so that no other process works in it."""
    while True:
        part.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(alone(part / LOCK, f"is running this experiment in {part}"))
                ours = os.path.samestat(os.fstat(lock.fileno()), os.stat(part / LOCK))
            except FileNotFoundError:  # finished and renamed just now
                continue
            if ours:  # and not the lock of a run that was renamed between opening and locking it
                yield lock
                return


class Recording:
    """The folder of a run in progress."""

    def __init__(self, folder: Path, metrics: IO, every: float = EVERY, of: str = ""):
        self.folder, self._metrics, self._every, self._saved = folder, metrics, every, time.monotonic()
        self._of, self._sum = of, hashlib.sha256()
        self.resumed = self._resume()  # the state it was left in, or None

    def _resume(self) -> dict | None:
        """The checkpoint, if there is a sound one of this experiment; the records then end where it was written."""
        try:
            state = self._state((self.folder / CHECKPOINT).read_bytes())
        except FileNotFoundError:
            state = None
        except (Damaged, IsADirectoryError) as error:
            state = None
            _remove(self.folder / CHECKPOINT)
            warnings.warn(f"the checkpoint in {self.folder} {error}; the run starts again", Notice, stacklevel=1)
        self._metrics.truncate(0 if state is None else int(state.pop(LENGTH)))
        self._metrics.seek(0, os.SEEK_END)  # truncating does not move the end that `tell` gives
        return state

    def _state(self, content: bytes) -> dict:
        from safetensors import SafetensorError
        from safetensors.torch import load

        digest, payload = content[:32], content[32:]
        if hashlib.sha256(payload).digest() != digest:
            raise Damaged("is damaged")
        try:
            state = load(payload)
            of, records, length = from_bytes(state.pop(OF)), from_bytes(state.pop(RECORDS)), int(state[LENGTH])
        except (SafetensorError, RuntimeError, *MALFORMED):
            raise Damaged("is of another version") from None
        if of != self._of:
            raise Damaged("is another experiment's")
        written = (self.folder / LINES).read_bytes()[:length]
        if len(written) != length or hashlib.sha256(written).hexdigest() != records:
            raise Damaged(f"goes with other records than {LINES} has")
        self._sum.update(written)
        return state

    def due(self) -> bool:
        """Is it time for the next checkpoint?"""
        return time.monotonic() - self._saved >= self._every

    def checkpoint(self, state: Callable[[], dict], now: bool = False) -> None:
        """Write the state down, if it is time or has to be now: whole, or not at all."""
        if not (now or self.due()):
            return
        own = {OF: as_bytes(self._of), RECORDS: as_bytes(self._sum.hexdigest())}
        payload = _bytes(state() | own | {LENGTH: torch.tensor(self._metrics.tell())})
        os.fsync(self._metrics.fileno())
        content = hashlib.sha256(payload).digest() + payload
        write_whole(self.folder / CHECKPOINT, lambda draft: draft.write(content))
        self._saved = time.monotonic()

    def line(self, record: dict) -> None:
        words = json.dumps(record) + "\n"
        self._metrics.write(words)
        self._metrics.flush()
        self._sum.update(words.encode())

    def result(self, document: dict) -> None:
        self.file(RESULT, spelled(document))

    def tensors(self, name: str, tensors: dict) -> None:
        # Not written by safetensors itself, so that a full disk raises OSError as everywhere.
        self.file(f"{name}.safetensors", _bytes(tensors))

    def file(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)


def _seconds(given: str | float) -> float:
    try:
        return float(given)
    except ValueError:
        raise BadInput(f"EVERLEARN_CHECKPOINT is '{given}', which is not a number of seconds") from None


def _bytes(tensors: dict) -> bytes:
    from safetensors.torch import save

    return save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})


def spelled(document: dict) -> bytes:
    """A document as it stands in a file."""
    return (json.dumps(document, indent=1) + "\n").encode()
