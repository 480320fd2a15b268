"""Tiny ImageNet's folder: 110,000 pictures, verified as one, and decoded once.

All pictures are looked at one by one (a second), and hashed (four) when one of them was touched.
"""

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.data import formats, photos, verified
from everlearn.errors import BadInput, Notice
from everlearn.files import opened, stat_of, write_whole

TEXTS = ("wnids.txt", "words.txt", "val/val_annotations.txt")  # the classes, their names, and the labels of val/images
LONGEST = 2**22  # bytes of such a text
CLASSES, EACH, TESTED = 200, 500, 10_000
# Of the names, labels and pictures that `content` reads. Of its authors only the zip has a checksum; this one was taken
# of a copy with 500 + 50 pictures in each of the 200 classes.
PUBLISHED = "72c4fcbec8afd86dc514e10c1d0fe0e403ccbefa7e73d17a796eba66e063ff0e"
MANY, AGAIN = 10_000, 10.0  # a folder of more than MANY files is looked at again after AGAIN seconds
_seen: dict[str, tuple[float, verified.Stamp]] = {}  # when it looked at a folder, and what it saw


def read(folder: Path) -> formats.Parts:
    """Decode the pictures, and keep them as one file beside the folder: 110,000 JPEGs are worth decoding once."""
    cache, known = _cache(folder), identify(folder)
    if verified.recall(cache, _kept(folder)) == known and (parts := _decoded(cache)):
        return parts
    before, parts = _touched(folder), decode(folder)
    if _touched(folder, now=True).text != before.text:
        raise BadInput(f"{folder} changed while it was read; wait until nothing writes there, and read it again")
    if _save(cache, parts):
        verified.record(cache, _kept(folder), known)
    else:
        words = f"the decoded pictures cannot be kept in {cache}, so they are decoded again the next time"
        warnings.warn(words, Notice, stacklevel=2)
    return parts


def decode(path: Path) -> formats.Parts:
    """tiny-imagenet-200: wnids.txt (the classes, in order), words.txt (their names), train/WNID/images/*.JPEG, and
    val/images with val/val_annotations.txt (a row: file, WNID, bounding box), which is the test split."""
    rows = path / "val" / "val_annotations.txt"
    wnids, names, annotations = _texts(path)
    if not (wnids and annotations):
        raise formats.Damaged(f"{rows if wnids else path / 'wnids.txt'} is empty or cannot be read")
    index = {wnid: label for label, wnid in enumerate(wnids)}
    if len(index) < len(wnids):
        raise formats.Damaged(f"{path / 'wnids.txt'} names a class twice")
    if odd := index.keys() ^ {entry.name for entry in photos.subfolders(path / "train")}:
        raise formats.Damaged(
            f"{path / 'train' / min(odd)} is {'missing' if min(odd) in index else 'not a class of wnids.txt'}"
        )
    files: list[Path] = []
    labels: list[int] = []
    for wnid, label in index.items():
        pictured = sorted((path / "train" / wnid / "images").glob("*.JPEG"))
        if not pictured:
            raise formats.Damaged(f"{path / 'train' / wnid / 'images'} holds no *.JPEG")
        files += pictured
        labels += [label] * len(pictured)
    cut = len(files)
    for number, row in enumerate(annotations, 1):
        file, wnid, *_ = [*row, ""]
        if wnid not in index or file in ("", ".", "..") or os.path.basename(file) != file:
            raise formats.Damaged(f"row {number} of {rows} is not a file, a tab and a class of wnids.txt")
        files.append(path / "val" / "images" / file)
        labels.append(index[wnid])
    pixels, y = _pixels(files), np.array(labels, np.int64)
    return (pixels[:cut], y[:cut]), (pixels[cut:], y[cut:]), tuple(names.get(wnid) or wnid for wnid in wnids)


def _pixels(files: list[Path]) -> np.ndarray:
    """Pictures of one size as uint8 [N, 3, H, W]; some of the photographs are grey."""
    first = photos.photo(files[0], channels=3)
    pixels = np.empty((len(files), *first.shape), np.uint8)
    size = lambda picture: f"{picture.shape[2]}x{picture.shape[1]}"
    for row, file in enumerate(files):
        picture = photos.photo(file, channels=3)
        if picture.shape != first.shape:
            raise formats.Damaged(f"{file} is {size(picture)} pixels where {files[0]} is {size(first)}")
        pixels[row] = picture
    return pixels


def identify(folder: Path) -> str:
    """The digest of the folder's content, remembered as long as no file in it is touched."""
    return verified.digest(folder, _touched(folder), lambda: content(folder))


def content(folder: Path) -> str:
    """A digest of the classes and their names, the labels of the test half, and each picture's name and content."""
    wnids, names, rows = _texts(folder)
    digest = hashlib.sha256(repr((wnids, [names.get(wnid) for wnid in wnids], [row[:2] for row in rows])).encode())
    for name in _picture_folders(folder):
        for picture in _pictures(f"{folder}/{name}"):
            digest.update(os.fsencode(f"{name}/{picture}\0"))
            one = hashlib.sha256()
            with contextlib.suppress(OSError), opened(f"{folder}/{name}/{picture}") as file:
                while piece := file.read(LONGEST):
                    one.update(piece)
            digest.update(one.digest())
    return digest.hexdigest()


def counts(folder: Path) -> dict[str, str]:
    """What each part of the data set holds, in words."""
    wnids, _, rows = _texts(folder)
    *train, val = (len(_pictures(folder / name)) for name in _picture_folders(folder))
    return {
        "wnids.txt": f"{len(wnids):,} classes",
        "train": f"{sum(train):,} pictures of {len(train):,} classes",
        "val/images": f"{val:,} pictures",
        "val/val_annotations.txt": f"{len(rows):,} labels",
    }


def wanting(folder: Path) -> str:
    """What is not as published: the first thing there is too little or too much of."""
    wnids, names, rows = _texts(folder)
    *classes, val = _picture_folders(folder)
    expected = [("wnids.txt", len(set(wnids)), CLASSES, "classes"), ("train", len(classes), CLASSES, "classes")]
    expected += [(name, len(_pictures(folder / name)), EACH, "pictures") for name in classes]
    expected += [(val, len(_pictures(folder / val)), TESTED, "pictures")]
    expected += [("val/val_annotations.txt", len(rows), TESTED, "labels")]
    expected += [("words.txt", len(names.keys() & set(wnids)), CLASSES, "names")]
    for name, there, published, what in expected:
        if there != published:
            return f"{name} has {there:,} of {published:,} {what}"
    return "a name, a label or a picture is another"


def cached(folder: Path) -> tuple[Path, str]:
    """The file that holds the decoded pictures, and whether it is still of use."""
    cache = _cache(folder)
    if verified.recall(cache, _kept(folder)) is None:
        return cache, "of pictures that have changed since; they are decoded again, or delete it"
    return cache, "the decoded pictures; without it they are decoded again"


def _cache(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.npz")


def _kept(folder: Path) -> verified.Stamp:
    """The stamp of every file of the data set and of the decoded pictures."""
    inside, decoded = _touched(folder), verified.stamp([("", stat_of(_cache(folder)))])
    return verified.Stamp(f"{inside.text} {decoded.text}", inside.settled)


def _touched(folder: Path, now: bool = False) -> verified.Stamp:
    """The stamp of every file of the data set. One taken a few seconds ago will do, unless it is to be of `now`."""

    def stats() -> Iterator[tuple[str, os.stat_result | None]]:
        for name in TEXTS:
            yield name, stat_of(folder / name)
        for name in _picture_folders(folder):
            for picture in _pictures(f"{folder}/{name}"):
                yield f"{name}/{picture}", stat_of(f"{folder}/{name}/{picture}")

    key = os.path.abspath(folder)
    when, seen = _seen.get(key, (-AGAIN, None))
    if now or seen is None or time.monotonic() - when > AGAIN:
        seen = verified.stamp(rows := list(stats()))
        if len(rows) > MANY:
            _seen[key] = time.monotonic(), seen
    return seen


def _picture_folders(folder: Path) -> list[str]:
    """Those of the classes, by name, then that of the test half."""
    classes = []
    with contextlib.suppress(OSError), os.scandir(folder / "train") as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir())
    return [*(f"train/{name}/images" for name in classes), "val/images"]


def _pictures(folder: Path | str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.endswith(".JPEG"))
    return []  # what is not there is reported when it is read


def _texts(folder: Path) -> tuple[list[str], dict[str, str], list[list[str]]]:
    """The classes in order; the name of each class that has one; and the rows of the test half's labels."""
    wnids, words, rows = (_text(folder / name) for name in TEXTS)
    lines = (line.partition("\t") for line in words.splitlines())
    names = {wnid: text.split(",")[0].strip() for wnid, _, text in lines}
    return wnids.split(), names, [row.split("\t") for row in rows.splitlines()]


def _text(path: Path) -> str:
    with contextlib.suppress(OSError), opened(path) as file:
        return file.read(LONGEST).decode("utf-8", "replace")
    return ""  # what is not there is reported when it is read


def _decoded(cache: Path) -> formats.Parts | None:
    """What was decoded; None if it is damaged or not there."""
    with contextlib.suppress(Exception):  # zipfile, zlib and numpy each have their own: it is decoded again
        return formats.npz(cache)
    return None


def _save(cache: Path, parts: formats.Parts) -> bool:
    """Write what formats.npz reads, whole or not at all."""
    train, test, names = parts
    arrays: dict[str, Any] = dict(zip(formats.NPZ, (*train, *test), strict=True), names=np.array(names))
    with contextlib.suppress(OSError):  # a read-only or full disk costs time at the next start, not this run
        write_whole(cache, lambda draft: np.savez(draft, **arrays))
        return True
    return False
