"""An index of a folder of runs: what was read of each file, so that it need not be read again.

It is one file beside the runs, compressed JSON, written aside and moved into place: whoever reads it finds a whole one
or none, without a lock. An entry counts only for a file of the same size, time of change and number on the disk, so an
index that is old, damaged or somebody else's costs time and nothing more.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from pathlib import Path
from typing import Any

from everlearn.collection.documents import FORMAT, Digest
from everlearn.errors import parsed
from everlearn.version import __version__

NAME = ".everlearn-index"
LEAST = 100  # files; fewer are read as fast
YOUNG = 2.0  # seconds: a file changed so lately may change once more without its time showing it
LARGEST = 1 << 30  # bytes of an index, unpacked

Stamp = list[int]


def stamp(stat: os.stat_result) -> Stamp:
    """What tells a file from a changed one."""
    return [stat.st_mtime_ns, stat.st_size, stat.st_ino]


class Index:
    """The index of a folder as it was found, and what is to be in the next one."""

    def __init__(self, folder: Path):
        self.file, self.old, self.new, self.changed = folder / NAME, _read(folder / NAME), {}, False

    def get(self, name: str, now: Stamp) -> list[Digest] | None:
        """What was read of a file, if it is still the same."""
        entry = self.old.get(name)
        if not isinstance(entry, list) or len(entry) != 2 or entry[0] != now:
            return None
        self.new[name] = entry
        return entry[1]

    def put(self, name: str, now: Stamp, digests: list[Digest]) -> None:
        if time.time() - now[0] / 1e9 > YOUNG:
            self.new[name], self.changed = [now, digests], True

    def drop(self, name: str) -> None:
        """An entry that turned out to be none."""
        self.new.pop(name, None)

    def write(self) -> None:
        """Keep it for the next time, if there is something new in it; a folder that cannot be written to has none."""
        if len(self.new) < LEAST or not (self.changed or self.new.keys() != self.old.keys()):
            return
        document = {"format": FORMAT, "version": __version__, "files": self.new}
        beside = self.file.with_name(f"{NAME}.{os.getpid()}.{time.monotonic_ns()}")
        with contextlib.suppress(OSError):
            try:
                beside.write_bytes(zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 1))
                os.replace(beside, self.file)
            finally:
                beside.unlink(missing_ok=True)


def _read(file: Path) -> dict[str, Any]:
    """The entries of an index; none if it is missing, damaged or of another version."""
    try:
        unpacker = zlib.decompressobj()
        document = parsed(unpacker.decompress(file.read_bytes(), LARGEST))
        known = (document["format"], document["version"]) == (FORMAT, __version__)
        return document["files"] if known and isinstance(document["files"], dict) else {}
    except (OSError, zlib.error, ValueError, KeyError, TypeError, RecursionError):
        return {}
