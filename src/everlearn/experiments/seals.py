"""Checksums of documents, and of the files a run leaves: what was changed since it was written is noticed.

    {"experiment": …, "class_il": …, "files": {"metrics.jsonl": {"bytes": 812, "sha256": "9f…"}}, "seal": "sha256:3b…"}

A seal is over what a document says, not over how it is spelled: spaces and the order of its keys are nobody's figures.
The result of a run also has the checksums of the files beside it. Documents from before there were seals have none:
they are read, and nobody can say whether they are as they were written.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from everlearn.errors import BadInput, parsed
from everlearn.learner.saved import LEARNER, NETWORK

SEAL, FILES = "seal", "files"
KIND = "sha256:"
LARGEST = 1 << 26  # bytes of a document
OWN = (LEARNER, NETWORK)  # large files whose readers compare checksums inside them; here only their size is compared
ANYWAY = "--accept-edited (of compare, report, watch, explain, again and study) takes it as it is"


class Damaged(BadInput):
    """A run's result cannot be read as one."""


class Edited(Damaged):
    """A document or file has been changed since it was written."""


class Opened(NamedTuple):
    document: dict[str, Any]  # without its seal
    sealed: bool  # it had one, and is what was written
    files: dict[str, dict[str, Any]]  # those that were beside it: their sizes and checksums


def sealed(document: Mapping[str, Any], files: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document with its seal; `files` are those beside it, as `sums` gives them."""
    content = {key: value for key, value in document.items() if key not in (SEAL, FILES)}
    content |= {} if files is None else {FILES: dict(files)}
    return content | {SEAL: _seal(content)}


def opened(document: Any, edited: bool = False, of: object = "it") -> Opened:
    """A document without its seal. One that is not what was sealed is refused in the name of the file it is `of`,
    unless it may be `edited`."""
    if not isinstance(document, dict):
        return Opened(document, False, {})
    content = {key: value for key, value in document.items() if key != SEAL}
    # Under another name it is a seal, too: else a slip in its name would take it off.
    has = SEAL in document or any(isinstance(value, str) and value.startswith(KIND) for value in content.values())
    right = has and document.get(SEAL) == _seal(content)
    if has and not right and not edited:
        raise Edited(f"{of} is not what was written")
    files = content.pop(FILES, {}) if has else {}
    return Opened(content, right, files if isinstance(files, dict) else {})


def _seal(content: Mapping[str, Any]) -> str:
    words = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return KIND + hashlib.sha256(words.encode()).hexdigest()


def sums(folder: Path, leaving: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Sizes and checksums of the files in a folder, but for some."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name not in leaving)
    return {name: {"bytes": (folder / name).stat().st_size, "sha256": _sum(folder / name)} for name in names}


def check(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse files that are not what was written."""
    for name, written in files.items():
        file = os.path.join(folder, os.path.basename(name))  # no Path, which is slower: a table may be of 10,000 runs
        try:
            status = os.stat(file)
            same = stat.S_ISREG(status.st_mode) and status.st_size == written["bytes"]
            if not same or (name not in OWN and _sum(file) != written["sha256"]):
                raise Edited(f"{file} is not what was written")
        except OSError as error:
            raise Edited(f"{file} is not what was written ({error.strerror})") from None


def _sum(file: Path | str) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read(file: Path) -> Any:
    """The JSON in a file, a regular one and no larger than a document is; ValueError if there is none."""
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | getattr(os, "O_NONBLOCK", 0))) as content:
        status = os.fstat(content.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise ValueError("no regular file, or too large")
        return parsed(content.read())
