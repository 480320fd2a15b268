"""What tells data from other data of the same name: other images make another experiment."""

import functools
import hashlib
from pathlib import Path

from everlearn.data import formats, photos, verified
from everlearn.data.sources import contents, data_root, find, locate, own
from everlearn.files import opened, stat_of


def fingerprint(name: str, data: Path | None = None) -> str | None:
    """A digest of the images a name stands for, in the folder `data`; None for the published ones, and for none at all.

    Of `npz:FILE` and `folder:DIR` it is always a digest, unless there is nothing under the path.
    """
    if mine := own(name):
        return _of_own(mine[1])
    source = find(name)
    if not source.layouts:
        return None  # comes with scikit-learn
    held = contents(locate(source, data_root(data)))
    if all(one.sound for one in held):
        return None
    return hashlib.sha256(repr([(one.name, one.digest) for one in held]).encode()).hexdigest()[:16]


def _of_own(path: Path) -> str | None:
    files = [path] if path.is_file() else sorted(file for file in photos.pictures_under(path) if file.is_file())
    if not files:
        return None  # a path that is not there is reported when it is read
    seen = verified.stamp((str(file), stat_of(file)) for file in files)
    return (_digest if seen.settled else _digest.__wrapped__)(path, tuple(files), seen.text)


@functools.lru_cache(maxsize=8)
def _digest(path: Path, files: tuple[Path, ...], _: str) -> str:
    """Of the files' names and contents; the stamp only says whether they were read before."""
    digest = hashlib.sha256()
    for file in files:
        with formats.reading(file), opened(file) as content:
            held = hashlib.file_digest(content, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
        digest.update(repr((str(file.relative_to(path)), held)).encode())
    return digest.hexdigest()[:16]
