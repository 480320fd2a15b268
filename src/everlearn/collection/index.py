"""An index of a folder of runs: what was read of each file, so that it need not be read again.

It is one file beside the runs, compressed JSON, written aside and moved into place: whoever reads it finds a whole one
or none, without a lock. An entry counts only while all files it was read from and checked with have the same size, time
of change and number on the disk, so an index that is old, damaged or somebody else's costs time and nothing more.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from everlearn.collection.documents import FORMAT, Digest
from everlearn.errors import MALFORMED, parsed
from everlearn.files import stat_of, write_whole
from everlearn.version import __version__

NAME = ".everlearn-index"
LEAST = 100  # files; fewer are read as fast
YOUNG = 2.0  # seconds: a file changed so lately may change once more without its time showing it
LARGEST = 1 << 30  # bytes of an index, unpacked

Stamp = list[int]


def stamp(file: Path | str) -> Stamp | None:
    """What tells a file from a changed one; None if it is not there."""
    seen = stat_of(file)
    return None if seen is None else [seen.st_mtime_ns, seen.st_size, seen.st_ino]


class Index:
    """The index of a folder as it was found, and what is to be in the next one."""

    def __init__(self, folder: Path):
        self.file, self.old, self.new, self.changed = folder / NAME, _read(folder / NAME), {}, False

    def get(self, name: str, now: Callable[[str], Stamp | None]) -> list[Digest] | None:
        """What was read of some files, if they are still the same; `now` is the stamp of each."""
        entry = self.old.get(name)
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], dict) or not entry[0]:
            return None
        if any(now(file) != then for file, then in entry[0].items()):
            return None
        self.new[name] = entry
        return entry[1]

    def put(self, name: str, stamps: Mapping[str, Stamp | None], digests: list[Digest]) -> None:
        limit = (time.time() - YOUNG) * 1e9
        if all(stamp and stamp[0] < limit for stamp in stamps.values()):
            self.new[name], self.changed = [stamps, digests], True

    def drop(self, name: str) -> None:
        """Leave out an entry that could not be read as runs."""
        self.new.pop(name, None)

    def write(self) -> None:
        """Keep it for the next time, if there is something new in it; a folder that cannot be written to has none."""
        if len(self.new) < LEAST or not (self.changed or self.new.keys() != self.old.keys()):
            return
        document = {"format": FORMAT, "version": __version__, "files": self.new}
        packed = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1)
        with contextlib.suppress(OSError):
            write_whole(self.file, lambda draft: draft.write(packed))


def _read(file: Path) -> dict[str, Any]:
    """The entries of an index; none if it is missing, damaged or of another version."""
    try:
        unpacker = zlib.decompressobj()
        document = parsed(unpacker.decompress(file.read_bytes(), LARGEST))
        known = (document["format"], document["version"]) == (FORMAT, __version__)
        return document["files"] if known and isinstance(document["files"], dict) else {}
    except (OSError, zlib.error, *MALFORMED):
        return {}
