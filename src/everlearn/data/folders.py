"""A folder of class folders as a data set: pictures to train on and pictures to test on."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from everlearn.data import photos
from everlearn.data.formats import Parts
from everlearn.errors import BadInput, Notice, plural

Classes = dict[str, list[Path]]  # the pictures of each


class Survey(NamedTuple):
    """A folder as a data set, and what was found on the way."""

    parts: Parts
    counts: dict[Path, tuple[int, int]]  # by class folder: pictures to train on, and to test on
    sizes: Counter[tuple[int, int]]  # (width, height) of the pictures as they are on disk
    files: int
    skipped: tuple[photos.Skipped, ...]


def folder(path: Path, size: photos.Size | None = None, strict: bool = False) -> Parts:
    """PATH/train/CLASS/* and PATH/test/CLASS/*, or only PATH/CLASS/*, of which a fixed quarter a class is held out.

    Size and channels are as in `photos.photos`. What cannot be read is skipped with a warning; with `strict`, refused.
    """
    found = survey(path, size, strict)
    if found.skipped:
        listed = f"`everlearn data check folder:{path}` lists them"
        told = photos.unread(path, found.files, found.skipped, then=" and were skipped")
        warnings.warn(f"{told}; {listed}", Notice, stacklevel=2)
    for half in dict.fromkeys(home.parent for home in found.counts):
        for told in photos.passed_over(half):
            warnings.warn(told, Notice, stacklevel=2)
    return found.parts


def survey(path: Path, size: photos.Size | None = None, strict: bool = False) -> Survey:
    """A folder of pictures as a data set, with all that `everlearn data check` shows of it; nothing is warned about."""
    halves = _halves(path)
    files = [file for classes in halves.values() for of in classes.values() for file in of]
    found = photos.gather(files, size, None)
    if strict:
        photos.insist(path, len(files), found.skipped)
    train, test = _train_and_test(halves, found)
    rows = {file: row for row, file in enumerate(found.looks)}
    splits = [
        (found.pixels[[rows[file] for of in split.values() for file in of]], photos.labels(split))
        for split in (train, test)
    ]
    count = lambda half, name: (len(train[name]) * (half != "test"), len(test[name]) * (half != "train"))
    counts = {path / half / name: count(half, name) for half in halves for name in train}
    sizes = Counter((width, height) for _, height, width in found.looks.values())
    return Survey((splits[0], splits[1], tuple(train)), counts, sizes, len(files), found.skipped)


def _train_and_test(halves: Mapping[str, Classes], found: photos.Gathered) -> tuple[Classes, Classes]:
    """The pictures that could be read, by class: those to train on, and those to test on."""
    left = {half: photos.readable(classes, found) for half, classes in halves.items()}
    if "" not in left:
        return left["train"], left["test"]
    held = {name: _hold_out(files, len(halves[""][name])) for name, files in left[""].items()}
    train, test = ({name: pair[half] for name, pair in held.items()} for half in (0, 1))
    return train, test


def others(folder: Path) -> Counter[str]:
    """How many files of each suffix in a class folder are not called pictures; hidden ones do not count."""
    files = (file for file in folder.iterdir() if not file.name.startswith(".") and file.is_file())
    return Counter(file.suffix.lower() or "without a suffix" for file in files if not photos.is_picture(file))


def _halves(path: Path) -> dict[str, Classes]:
    """The class folders under `train` and `test`, or those under the path itself, as the half ''."""
    if path.is_file():
        raise BadInput(f"{path} is a file; npz:{path} names one of arrays")
    if not path.is_dir():
        raise BadInput(f"there is no folder {path}")
    splits = [half for half in ("train", "test") if photos.subfolders(path / half)]
    if len(splits) == 1:
        other = {"train": "test", "test": "train"}[splits[0]]
        raise BadInput(f"{path} has {splits[0]}/CLASS but no {other}/CLASS: add it, or leave only {path}/CLASS")
    halves = {half: photos.class_folders(path / half) for half in splits or [""]}
    if splits and (odd := halves["train"].keys() ^ halves["test"].keys()):
        here, there = ("train", "test") if min(odd) in halves["train"] else ("test", "train")
        raise BadInput(f"{path} has the class '{min(odd)}' in {here} but not in {there}: both need every class")
    for files in halves.get("", {}).values():
        _hold_out(files, len(files))
    if (classes := len(next(iter(halves.values())))) < 2:
        raise BadInput(
            f"{path} has {plural(classes, 'class folder')} where two at least are needed: {path}/CLASS/*.png"
        )
    return halves


def _hold_out(files: list[Path], there: int) -> tuple[list[Path], list[Path]]:
    """Three quarters and one quarter of a class, picked by the hash of the file names, of those that can be read.

    No random numbers: the same files split alike everywhere, and no class's split depends on another class.
    """
    if len(files) < 2:
        only = "one picture" if there < 2 else "one picture that can be read"
        raise BadInput(f"{files[0].parent} holds {only}: two at least are needed to hold one out for testing")
    shuffled = sorted(files, key=lambda file: hashlib.sha256(file.name.encode("utf-8", "surrogateescape")).digest())
    quarter = max(1, len(files) // 4)
    return sorted(shuffled[quarter:]), sorted(shuffled[:quarter])
