"""What tells data from other data of the same name: other images make another experiment."""

import contextlib
import functools
import hashlib
import json
import os
import time
from pathlib import Path

from everlearn.data import formats, photos
from everlearn.data.sources import data_root, find, locate, own
from everlearn.errors import parsed

MEMORY = ".verified.json"  # under the data root: the md5 of each file that was hashed, so that 180 MB are hashed once
SETTLED = 2_000_000_000  # ns; a file changed within them may change again without its time changing

Seen = tuple[str, int, int, int]  # path, size, time of its content, time of its entry

_known: dict[Seen, str] = {}  # the md5s this process knows


def fingerprint(name: str, data: Path | None = None) -> str | None:
    """A digest of the images a name stands for, in the folder `data`; None for the published ones, and for none at all.

    Of `npz:FILE` and `folder:DIR` it is always a digest, unless there is nothing under the path.
    """
    if mine := own(name):
        return _of_own(mine[1])
    source, root = find(name), data_root(data)
    if not source.layouts:
        return None  # comes with scikit-learn
    place = locate(source, root)
    if identify := place.layout.identify:
        return identify(place.folder) if place.whole else None
    parts = [(part, path) for part, path in zip(place.layout.parts, place.paths, strict=True) if path]
    md5s = [_md5(path, root) for _, path in parts]
    if md5s == [part.md5 for part, _ in parts]:
        return None
    named = [(part.names[0], md5) for (part, _), md5 in zip(parts, md5s, strict=True)]
    return hashlib.sha256(repr(named).encode()).hexdigest()[:16]


# --- named data ---


def _md5(path: Path, root: Path) -> str:
    """Of the unpacked content; read from the file only if neither this process nor the data root remembers it."""
    try:
        seen = _look(path)
        if seen not in _known:
            for known, md5 in _recall(root).items():
                _known.setdefault(known, md5)
        if seen in _known:
            return _known[seen]
        md5 = formats.md5(path, unpack=True)
    except (OSError, formats.Damaged):
        return "unreadable"  # as is said when it is read
    if abs(time.time_ns() - max(seen[2:])) > SETTLED:
        _known[seen] = md5
        _record(root, seen, md5)
    return md5


def _look(path: Path) -> Seen:
    stat = path.stat()
    return os.path.abspath(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _recall(root: Path) -> dict[Seen, str]:
    """What is written down under the data root; nothing if that is not what this module writes."""
    try:
        rows = parsed((root / MEMORY).read_text())
        known = {(os.path.abspath(root / name), *map(int, seen)): str(md5) for name, (*seen, md5) in rows.items()}
        return known  # pyright: ignore[reportReturnType]  # a row of another length is no file's
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _record(root: Path, seen: Seen, md5: str) -> None:
    """Write it down under the data root; a disk that refuses costs time, not the run."""
    others = {known: old for known, old in _recall(root).items() if known[0] != seen[0]}
    rows = {os.path.relpath(path, root): [*at, of] for (path, *at), of in (others | {seen: md5}).items()}
    draft = root / f"{MEMORY}.{os.getpid()}"
    with contextlib.suppress(OSError):
        try:
            draft.write_text(json.dumps(rows, indent=1) + "\n")
            os.replace(draft, root / MEMORY)
        finally:
            draft.unlink(missing_ok=True)


# --- one's own ---


def _of_own(path: Path) -> str | None:
    files = [path] if path.is_file() else sorted(file for file in photos.pictures_under(path) if file.is_file())
    if not files:
        return None  # a path that is not there is reported when it is read
    return _digest(path, tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


@functools.lru_cache(maxsize=8)
def _digest(path: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    """Of the files' names and contents; size and time only say whether they were read before."""
    digest = hashlib.sha256()
    for file, _, _ in files:
        with open(file, "rb") as content:
            digest.update(
                repr((str(file.relative_to(path)), hashlib.file_digest(content, "sha256").hexdigest())).encode()
            )
    return digest.hexdigest()[:16]
