"""Tiny ImageNet's folder: 110,000 pictures, identified by their list, and decoded once."""

import contextlib
import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.data import formats, photos

TEXTS = ("wnids.txt", "words.txt", "val/val_annotations.txt")  # the classes, their names, and the labels of val/images
CLASSES, EACH, TESTED = 200, 500, 10_000


def read(folder: Path) -> formats.Parts:
    """Decode the pictures, and keep them as one file beside the folder: 110,000 JPEGs are worth decoding once."""
    cache, now = folder.with_name(f"{folder.name}.npz"), listing(folder)
    if (parts := _decoded(cache, now)) is None:
        parts = decode(folder)
        _save(cache, parts, now)
    return parts


def decode(path: Path) -> formats.Parts:
    """tiny-imagenet-200: wnids.txt (the classes, in order), words.txt (their names), train/WNID/images/*.JPEG, and
    val/images with val/val_annotations.txt (a row: file, WNID, bounding box), which is the test split."""
    rows, words = path / "val" / "val_annotations.txt", path / "words.txt"
    with formats.reading(path):
        wnids = (path / "wnids.txt").read_text("utf-8", "replace").split()
        annotations = rows.read_text("utf-8", "replace").splitlines()
        lines = words.read_text("utf-8", "replace").splitlines() if words.exists() else []
    if not (wnids and annotations):
        raise formats.Damaged(f"{rows if wnids else path / 'wnids.txt'} is empty")
    index = {wnid: label for label, wnid in enumerate(wnids)}
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
        file, wnid, *_ = [*row.split("\t"), ""]
        if wnid not in index:
            raise formats.Damaged(f"row {number} of {rows} is not a file, a tab and a class of wnids.txt")
        files.append(path / "val" / "images" / file)
        labels.append(index[wnid])
    pixels, y = _pixels(files), np.array(labels, np.int64)
    names = {wnid: text.split(",")[0].strip() for wnid, _, text in (line.partition("\t") for line in lines)}
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


def identify(folder: Path) -> str | None:
    """None for a folder with as many classes and pictures as were published, else a digest of what it has."""
    marks = [*TEXTS, *_picture_folders(folder), "train"]
    stamps = tuple((mark, _changed(folder / mark)) for mark in marks)
    return None if _published(folder, stamps) else listing(folder)[:16]


def listing(folder: Path) -> str:
    """A digest of the pictures' names and sizes, and of the texts that label them."""
    digest = hashlib.sha256()
    for name in TEXTS:
        digest.update(repr((name, hashlib.sha256(_content(folder / name)).hexdigest())).encode())
    for name in _picture_folders(folder):
        sizes = sorted((picture.name, _size(picture)) for picture in _pictures(folder / name))
        digest.update(repr((name, sizes)).encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=4)
def _published(folder: Path, stamps: tuple[tuple[str, int], ...]) -> bool:
    """A folder's time changes with the names in it, so `stamps` say whether they were counted before."""
    wnids = _content(folder / "wnids.txt").split()
    *train, val = (len(_pictures(folder / name)) for name in _picture_folders(folder))
    tested = len(_content(folder / "val/val_annotations.txt").splitlines())
    return len(set(wnids)) == CLASSES and train == [EACH] * CLASSES and val == tested == TESTED


def _picture_folders(folder: Path) -> list[str]:
    """Those of the classes, by name, then that of the test half."""
    classes = []
    with contextlib.suppress(OSError), os.scandir(folder / "train") as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir())
    return [*(f"train/{name}/images" for name in classes), "val/images"]


def _pictures(folder: Path) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [entry for entry in entries if entry.name.endswith(".JPEG")]
    return []  # what is not there is reported when it is read


def _size(picture: os.DirEntry[str]) -> int:
    with contextlib.suppress(OSError):
        return picture.stat().st_size
    return -1  # a link that leads nowhere


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def _changed(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _decoded(cache: Path, now: str) -> formats.Parts | None:
    """What was decoded of a folder with this listing; None if it is of another, damaged or not there."""
    try:
        with np.load(cache, allow_pickle=False) as file:
            if str(file["listing"]) != now:
                return None
        return formats.npz(cache)
    except Exception:  # zipfile, zlib and numpy each have their own, and all mean that it is decoded again
        return None


def _save(cache: Path, parts: formats.Parts, now: str) -> None:
    """Write what formats.npz reads, whole or not at all, and what it was made from."""
    train, test, names = parts
    draft = cache.with_name(f".{cache.name}.{os.getpid()}")
    arrays: dict[str, Any] = dict(
        zip(formats.NPZ, (*train, *test), strict=True), names=np.array(names), listing=np.array(now)
    )
    with contextlib.suppress(OSError):  # a read-only or full disk costs time at the next start, not this run
        try:
            with draft.open("wb") as file:
                np.savez(file, **arrays)
            os.replace(draft, cache)
        finally:
            draft.unlink(missing_ok=True)
