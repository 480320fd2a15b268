"""What is in a folder: runs, documents, runs that are under way or were left, and what is none of ours."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everlearn import registry
from everlearn.collection import documents
from everlearn.collection.index import Index, stamp
from everlearn.collection.model import Problem, Run, Unfinished
from everlearn.errors import MALFORMED, BadInput
from everlearn.experiments import failures, seals
from everlearn.experiments.results import LINES, RESULT, read_opened
from everlearn.experiments.store import CHECKPOINT
from everlearn.files import stat_of
from everlearn.learner.saved import LEARNER

DEEPEST = 3  # folders within folders
SIGNS = ("experiment.json", LINES, CHECKPOINT, "lock")  # of a run, complete or not
NOTHING = "there is no run, study or record in it"


Read = tuple[list[documents.Digest], list[str]]  # what was read, and the files it was read from


@dataclass
class Found:
    runs: list[Run] = field(default_factory=list)
    unfinished: list[Unfinished] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    curves: dict[str, Path] = field(default_factory=dict)  # by the name of their record

    def anything(self) -> bool:
        return bool(self.runs or self.unfinished or self.curves or any(p.kind != "foreign" for p in self.problems))

    def add(self, other: Found) -> None:
        self.runs += other.runs
        self.unfinished += other.unfinished
        self.problems += other.problems
        self.curves |= other.curves


class Look:
    """A look at a path that was given. What is not as it was written is damaged, unless it may be `edited`."""

    def __init__(self, given: Path | str, indexed: bool = True, edited: bool = False):
        self.given, self.root, self.edited = str(given), Path(given), edited
        if self.root.name in ("", ".."):  # `.` is to be known by its name, too
            self.root = self.root.resolve()
        # What was edited is not to be in an index that others trust.
        self.index = Index(self.root) if indexed and not edited and self.root.is_dir() else None

    def found(self) -> Found:
        """All runs, documents and problems under the path."""
        if not os.path.lexists(self.root):
            raise BadInput(f"there is no file or folder {self.given}")
        found = Found()
        if not self.root.is_dir():
            self._document(self.root, stat_of(self.root), found)
        elif not self._run(self.root, found):
            found = self._folder(self.root, 0)
            if not found.anything() and not found.problems:
                found = _nothing(self.root)
        if self.index:
            self.index.write()
        return found

    def _folder(self, folder: Path, depth: int) -> Found:
        """The runs and documents in a folder, and in the folders in it."""
        found, strange = Found(), Found()
        for name, is_folder, status in _entries(folder, found):
            path = folder / name
            if not is_folder:
                self._document(path, status, found, strange)
            elif not self._run(path, found) and depth < DEEPEST:
                inner = self._folder(path, depth + 1)
                saved = stat_of(path / LEARNER)  # by `teach` say: nothing to compare, and not foreign
                found.add(inner if inner.anything() or saved else _nothing(path))
        if found.anything():
            found.add(strange)
        elif not depth:
            found.problems += strange.problems
        return found

    def _run(self, folder: Path, found: Found) -> bool:
        """Is it a run's folder? Then what there is of it is found."""
        status = stat_of(folder / RESULT)
        if status is None and not any(stat_of(folder / name) for name in SIGNS) and stat_of(folder):
            return False
        if folder.suffix == ".part":
            try:
                found.unfinished.append(self._unfinished(folder))
            except FileNotFoundError:  # it has just been completed, or given up
                self._run(folder.with_name(folder.name.removesuffix(".part")), found)
        elif status is not None:
            self._remembered(folder, f"{self._relative(folder)}/", lambda: self._result(folder), found)
        elif stat_of(folder):  # and was not moved away between the two looks
            found.problems.append(Problem("damaged", folder, "it has no result.json; run the experiment again"))
        return True

    def _result(self, folder: Path) -> Read:
        """What a run's folder says, and the files that have been looked at for it."""
        found = read_opened(folder, self.edited)
        name = folder.resolve().name
        return documents.digests(found, name, self._relative(folder)), [RESULT, *found.files]

    def _document(self, file: Path, status: os.stat_result | None, found: Found, strange: Found | None = None) -> None:
        """A file of JSON; what is none of ours is set apart as strange."""
        strange = found if strange is None else strange
        if status is None and not os.path.lexists(file):
            return  # removed in the meantime
        if status is None or not stat.S_ISREG(status.st_mode):
            return strange.problems.append(Problem("foreign", file, "it is no regular file"))
        if status.st_size > seals.LARGEST:
            return strange.problems.append(Problem("foreign", file, "it is too large for a record"))
        wrong: dict[str, str] = {}

        def read() -> Read:
            opened = seals.opened(seals.read(file), self.edited)
            if documents.kind(opened.document) == "curves":
                found.curves[file.stem] = file
                return [], [""]
            wrong.update(documents.failures(opened.document))
            return documents.digests(opened, file.stem, self._relative(file), self.edited), [""]

        try:
            self._remembered(file, self._relative(file), read, found, lambda: not wrong)
        except documents.Foreign as error:
            strange.problems.append(Problem("foreign", file, str(error)))
        place = lambda run: file if file.name == f"{run}{failures.SUFFIX}" else file.parent / run
        found.problems += [
            Problem("failed", place(run), why) for run, why in wrong.items() if not _ran_since(file, status, run)
        ]

    def _remembered(
        self, place: Path, name: str, read: Callable[[], Read], found: Found, keep: Callable[[], bool] = lambda: True
    ) -> None:
        """The runs of a file, from the index or by reading it; what goes wrong is a problem."""
        now = lambda file: stamp(f"{place}{os.sep}{file}" if file else place)
        known = self.index.get(name, now) if self.index else None
        if known is not None:
            with contextlib.suppress(*MALFORMED):
                found.runs += [documents.made(digest, place, self.given) for digest in known]
                return
            self.index.drop(name)
        try:
            before = {file: now(file) for file in os.listdir(place)} if place.is_dir() else {"": now("")}
            digests, files = read()
            runs = [documents.made(digest, place, self.given) for digest in digests]
        except documents.Foreign:
            raise
        except OSError as error:
            return found.problems.append(Problem("damaged", place, f"it cannot be read: {error.strerror}"))
        except seals.Edited as error:
            why = str(error) if place.is_dir() else f"{error}; {seals.ANYWAY}"
            return found.problems.append(Problem("damaged", place, why))
        except BadInput as error:
            if place.exists():  # and was not removed in the meantime
                found.problems.append(_no_result(place, str(error)))
            return
        except MALFORMED:
            return found.problems.append(Problem("damaged", place, "it is incomplete, or not the record of a run"))
        found.runs += runs
        if self.index and runs and keep():
            self.index.put(name, {file: before.get(file) for file in files}, digests)

    def _unfinished(self, folder: Path) -> Unfinished:
        """A run's folder that is not complete: how far it is."""
        known: documents.Digest = {"title": "", "settings": {}}
        seed = None
        with contextlib.suppress(OSError, *MALFORMED):
            document = seals.read(folder / "experiment.json")
            known, seed = documents.described_by(document), int(document["seed"])
        try:
            lines = (folder / LINES).read_bytes()
            touched = os.stat(folder / LINES).st_mtime
        except OSError:
            lines, touched = b"", os.stat(folder).st_mtime
        of = lambda event: sum(line.startswith(b'{"event": "%b"' % event) for line in lines.split(b"\n")[:-1])
        there = stat_of(folder / CHECKPOINT) is not None
        settings, total = known["settings"], _epochs(known["settings"])
        name = folder.resolve().name.removesuffix(".part")
        done = of(b"epoch")
        return Unfinished(
            name, folder, self.given, known["title"], seed, settings, of(b"task"), done, total, touched, there
        )

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self.root) if path != self.root else path.name


def _ran_since(file: Path, status: os.stat_result, run: str) -> bool:
    """Is there a complete run, later than the file that says it failed?"""
    with contextlib.suppress(OSError, ValueError):  # a name may be anything
        return os.stat(file.parent / run / RESULT).st_mtime >= status.st_mtime
    return False


def _nothing(folder: Path) -> Found:
    """What to say of a folder with nothing of ours in it: that it is foreign, unless it is empty."""
    with contextlib.suppress(OSError):
        if any(not path.name.startswith(".") for path in folder.iterdir()):
            return Found(problems=[Problem("foreign", folder, NOTHING)])
    return Found()


def _no_result(folder: Path, why: str) -> Problem:
    """A run's folder whose result is none, or a folder of somebody else's with a file of that name."""
    if any(stat_of(folder / name) for name in SIGNS):
        return Problem("damaged", folder, why)
    return Problem("foreign", folder, "its result.json is no record of a run")


def _epochs(settings: dict[str, Any]) -> int | None:
    """How many epochs a run will have over all its tasks."""
    tasks, epochs = settings.get("tasks"), settings.get("epochs")
    if not isinstance(tasks, int) or not isinstance(epochs, int):
        return None
    with contextlib.suppress(Exception):  # somebody else's method may not be here
        tasks = 1 if registry.find("method", settings["method"]).merges else tasks
    return tasks * epochs


def _entries(folder: Path, found: Found) -> Iterator[tuple[str, bool, os.stat_result | None]]:
    """Folders and JSON files in a folder, by name; not what is hidden, on its way out, or a link to a folder."""
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:  # removed in the meantime
        return
    except OSError as error:
        found.problems.append(Problem("damaged", folder, f"it cannot be read: {error.strerror}"))
        return
    for entry in listed:
        if entry.name.startswith(".") or entry.name.endswith(".old"):
            continue
        try:
            is_folder = entry.is_dir()
        except OSError:  # a link that may not be followed
            continue
        if is_folder and not (entry.is_symlink() and _leads_up(entry.path, folder)):
            yield entry.name, True, None
        elif not is_folder and entry.name.endswith(".json"):
            yield entry.name, False, stat_of(Path(entry.path))


def _leads_up(link: str, folder: Path) -> bool:
    """Does a link lead back to a folder it is in?"""
    return f"{os.path.realpath(folder)}{os.sep}".startswith(f"{os.path.realpath(link)}{os.sep}")
