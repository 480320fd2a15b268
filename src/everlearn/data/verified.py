"""What the content of a file was when it was last hashed: 180 MB are hashed once, and not before every run.

A file is taken for the same as long as its size, its times and its number on the disk are. Digests are kept in the
user's own cache folder, so that data cannot vouch for itself, and read-only data are hashed once, too.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from everlearn.errors import MALFORMED, parsed
from everlearn.files import opened, write_whole

MEMORY = "~/.cache/everlearn/verified.json"
LARGEST = 2**20  # at most so many bytes of it are read
SETTLED = 2_000_000_000  # ns; a file changed within them may change again without its time changing

_known: dict[tuple[str, str], str] = {}  # what this process knows: the digest of a path with a stamp


class Stamp(NamedTuple):
    """What tells whether files were touched, and whether their last change is long enough past to rely on it."""

    text: str
    settled: bool


def stamp(stats: Iterable[tuple[str, os.stat_result | None]]) -> Stamp:
    """The stamp of files, given by name and `os.stat`; None stands for one that is not there."""
    rows = [(name, s and (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)) for name, s in stats]
    last = max((max(row[1:3]) for _, row in rows if row), default=0)
    return Stamp(hashlib.sha256(repr(rows).encode()).hexdigest()[:32], abs(time.time_ns() - last) > SETTLED)


def digest(path: Path, seen: Stamp, make: Callable[[], str]) -> str:
    """What is remembered of a file or folder with this stamp, else what `make` finds out."""
    if (known := recall(path, seen)) is not None:
        return known
    found = make()
    record(path, seen, found)
    return found


def recall(path: Path, seen: Stamp) -> str | None:
    key = os.path.abspath(path), seen.text
    if key not in _known:
        for where, (text, found) in _written().items():
            _known.setdefault((where, text), found)
    return _known.get(key)


def record(path: Path, seen: Stamp, found: str) -> None:
    """Remember it, here and in the user's cache folder. A disk that refuses costs time, not the run."""
    if not seen.settled:
        return
    key, file = os.path.abspath(path), Path(os.path.expanduser(MEMORY))
    _known[key, seen.text] = found
    rows = {path: known for path, known in _written().items() if os.path.exists(path)} | {key: (seen.text, found)}
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, lambda draft: draft.write(json.dumps(rows, indent=1).encode()))


def _written() -> dict[str, tuple[str, str]]:
    """What is written down; nothing if that is not what this module writes."""
    try:
        with opened(Path(os.path.expanduser(MEMORY))) as file:
            rows = parsed(file.read(LARGEST))
        return {str(path): (str(seen), str(found)) for path, (seen, found) in rows.items()}
    except (OSError, *MALFORMED):
        return {}
