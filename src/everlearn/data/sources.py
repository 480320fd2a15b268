"""Data sets on disk: found, compared with what was published, and read.

A data set lies under the data root (an argument, else $EVERLEARN_DATA, else ~/.cache/everlearn) in any of its published
layouts; `everlearn data get NAME` puts it into the first one. What is not as published is refused, unless
$EVERLEARN_UNVERIFIED is 1; it is another experiment's then. `npz:FILE` and `folder:DIR` are the user's own data.
"""

import contextlib
import os
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from everlearn.data import folders, formats, verified
from everlearn.data.catalogue import SOURCES, Images, Layout, Source, read_digits
from everlearn.errors import BadInput, Notice, unknown
from everlearn.files import stat_of

State = Literal["ok", "present", "missing", "wrong checksum", "unreadable", "partial", "skipped", "cache"]
UNVERIFIED = "EVERLEARN_UNVERIFIED"


@dataclass(frozen=True)
class FileStatus:
    """What is known of one file, or of a class or a whole data set: `ok` has the published checksum, `present` has none
    published; of one's own pictures, `skipped` ones are left out of a run; a `cache` can be deleted."""

    path: Path
    state: State
    detail: str = ""
    kind: Literal["file", "folder", "class", "data set"] = "file"


# --- where things are ---


def find(name: str) -> Source:
    """The data set of that name."""
    if name not in SOURCES:
        raise unknown("data set", name, [*SOURCES, "npz:FILE", "folder:DIR"])
    return SOURCES[name]


def data_root(root: Path | None = None) -> Path:
    """The folder of all data sets: the argument, else $EVERLEARN_DATA, else ~/.cache/everlearn."""
    return Path(os.path.expanduser(root or os.environ.get("EVERLEARN_DATA") or "~/.cache/everlearn"))


@dataclass(frozen=True)
class Place:
    """A layout in one of its folders: each part's path, or None where it is not there."""

    layout: Layout
    folder: Path
    paths: tuple[Path | None, ...]

    @property
    def whole(self) -> bool:
        return None not in self.paths


def locate(source: Source, root: Path) -> Place:
    """The layout and folder with the most parts in place; the first of equals."""

    def place(layout: Layout, folder: Path) -> Place:
        candidates = ([folder / name for name in part.names] for part in layout.parts)
        return Place(layout, folder, tuple(next(filter(os.path.exists, paths), None) for paths in candidates))

    places = [place(layout, root / folder) for layout in source.layouts for folder in layout.folders]
    return max(places, key=lambda place: (place.whole, len(place.paths) - place.paths.count(None)))


class Content(NamedTuple):
    """A file of a data set, or all of it: where it is, what it holds and what was published."""

    path: Path
    name: str  # the same wherever it lies
    digest: str  # "" of a file that cannot be read
    published: str  # "" where nothing is
    damage: formats.Damaged | None = None  # why it cannot be read

    @property
    def sound(self) -> bool:
        return self.published in ("", self.digest)


def contents(place: Place, anew: bool = False) -> list[Content]:
    """The digests of what is there; with `anew`, of what is on the disk now, whatever is remembered of it."""
    if whole := place.layout.whole:
        find_out = whole.compute if anew else whole.identify
        return [Content(place.folder, "", find_out(place.folder), whole.published)] if place.whole else []
    parts = zip(place.layout.parts, place.paths, strict=True)
    return [_content(path, part.names[0], part.md5, partial(_md5, path, anew)) for part, path in parts if path]


def _content(path: Path, name: str, published: str, find_out: Callable[[], str]) -> Content:
    try:
        return Content(path, name, find_out(), published)
    except formats.Damaged as damage:
        return Content(path, name, "", published, damage)


def _md5(path: Path, anew: bool) -> str:
    """The md5 of the unpacked content, remembered as long as the file is not touched; with `anew`, computed now."""
    seen, make = verified.stamp([(str(path), stat_of(path))]), lambda: formats.md5(path, unpack=True)
    if not anew:
        return verified.digest(path, seen, make)
    verified.record(path, seen, found := make())
    return found


OWN: dict[str, Callable[..., formats.Parts]] = {"npz": formats.npz, "folder": folders.folder}


def own(name: str) -> tuple[str, Path] | None:
    """The kind and the path of npz:FILE or folder:DIR; None for a name of the table."""
    kind, colon, path = name.partition(":")
    if not colon or kind not in OWN:
        return None
    if not path:
        raise BadInput(f"'{name}' names nothing: write the path after the colon")
    return kind, Path(os.path.expanduser(path))


# --- what the rest of the library asks ---


def read(name: str, root: Path | None = None, **options: Any) -> Images:
    """A data set as arrays: a name of SOURCES, `npz:FILE` (see formats.npz) or `folder:DIR` (see folders.folder, which
    has `options`)."""
    if mine := own(name):
        kind, path = mine
        return Images(*OWN[kind](path, **options))
    source = find(name)
    if not source.layouts:
        return read_digits()
    place = locate(source, data_root(root))
    if not place.whole:
        missing = place.layout.parts[place.paths.index(None)]
        above = [folder for folder in place.folder.absolute().parents if locate(source, folder).whole]
        there = f"it is in {above[0]}: give that with --data" if above else "or say with --data where it is"
        raise BadInput(
            f"{source.title} needs {place.folder / missing.names[0]}, which is not there: "
            + (there if above else f"run `{getting(name, root)}`, put it there yourself, {there}")
        )
    with _remedied(name, place, root):
        _verify(source, place)
        return place.layout.read([path for path in place.paths if path], source.names)


def verify(name: str, root: Path | None = None) -> None:
    """Refuse a named data set that is there and is not the published one; where it may be another, say that it is."""
    if own(name) or not (source := find(name)).layouts or not (place := locate(source, data_root(root))).whole:
        return
    with _remedied(name, place, root):
        if other := _verify(source, place):
            warnings.warn(f"{other}; its runs are kept apart from those on the published data", Notice, stacklevel=1)


def getting(name: str, root: Path | None) -> str:
    """The command that fetches a data set to where it is looked for."""
    return f"everlearn data get {name}{f' --data {shlex.quote(str(root))}' if root else ''}"


@contextlib.contextmanager
def _remedied(name: str, place: Place, root: Path | None) -> Iterator[None]:
    """What is damaged is refused with what to do about it."""
    try:
        yield
    except formats.Damaged as error:
        if isinstance(error.__cause__, PermissionError):  # as it is, it may be sound
            raise BadInput(str(error)) from error
        remedy = place.layout.remedy.format(get=getting(name, root), folder=place.folder)
        raise BadInput(f"{error}; {remedy}") from error


def _verify(source: Source, place: Place) -> str:
    """Refuse what is not as published; unless it may be another, of which what is not so is said."""
    wrong = next((one for one in contents(place) if not one.sound), None)
    if wrong is None:
        return ""
    if wrong.damage:
        raise wrong.damage
    whole = place.layout.whole
    why = whole.wanting(wrong.path) if whole else f"its md5 is {wrong.digest}, published is {wrong.published}"
    told = f"{wrong.path} is not {source.title} as published ({why})"
    if os.environ.get(UNVERIFIED) == "1":
        return told
    raise formats.Damaged(f"{told}: {UNVERIFIED}=1 reads it as it is, for another experiment")


def check(name: str, root: Path | None = None, strict: bool = False) -> list[FileStatus]:
    """What is there of a data set: all of it in a row, a row per file, each compared with its published checksum, and
    what lies beside them.

    Of a folder of pictures a row per class, and one per file that cannot be read, which `strict` calls unreadable.
    """
    if mine := own(name):
        kind, path = mine
        if not path.exists():
            return [FileStatus(path, "missing", "your own data", "folder" if kind == "folder" else "file")]
        if kind == "folder":
            return _check_folder(path, strict)
        (train, _), (test, _), names = OWN[kind](path)  # what is wrong with it is said
        return [FileStatus(path, "ok", f"{len(train):,} + {len(test):,} images of {len(names):,} classes")]
    source = find(name)
    if not source.layouts:
        return [FileStatus(Path(name), "ok", f"{_counted(read_digits())}; comes with scikit-learn", "data set")]
    place = locate(source, data_root(root))
    rows = _check_parts(source, place)
    known = {row.path for row in rows}
    for archive in source.archives:  # downloaded, or on the way, and not itself one of the parts
        path = data_root(root) / name / archive.file
        part = path.with_name(f"{path.name}.part")
        if path.is_file() and path not in known:
            rows.append(_stated(_content(path, path.name, archive.md5, partial(formats.md5, path))))
        elif part.is_file():
            rows.append(FileStatus(part, "partial", f"{_size(part)}: `{getting(name, root)}` continues from there"))
    if place.layout.whole:
        cache, use = place.layout.whole.cache(place.folder)
        if cache.is_file():
            rows.append(FileStatus(cache, "cache", f"{_size(cache)}: {use}"))
    return rows


def _counted(images: Images) -> str:
    return f"{len(images.train[1]):,} + {len(images.test[1]):,} images of {len(images.names):,} classes"


def _check_folder(path: Path, strict: bool) -> list[FileStatus]:
    there = folders.survey(path)
    (train, _), (test, _), names = there.parts
    sizes = [f"{width}x{height} ({count})" for (width, height), count in there.sizes.most_common()]
    more = f" and {len(sizes) - 4} other sizes" if len(sizes) > 4 else ""
    colour = "in colour" if train.shape[1] == 3 else "grey"
    what = f"{len(train)} + {len(test)} images of {len(names)} classes, {colour}, {train.shape[3]}x{train.shape[2]}"
    rows = [FileStatus(path, "ok", f"{what}; on disk {', '.join(sizes[:4])}{more}", "data set")]
    for folder, counts in there.counts.items():
        others = [f"{count} {suffix}" for suffix, count in sorted(folders.others(folder).items())]
        beside = f"; not read: {', '.join(others)}" if others else ""
        images = " + ".join(str(n) for n in counts if n)
        rows.append(FileStatus(folder, "ok", f"{images} images{beside}", "class"))
    return [*rows, *(FileStatus(one.path, "unreadable" if strict else "skipped", one.reason) for one in there.skipped)]


def found(name: str, root: Path | None = None) -> Path | None:
    """The folder where a data set lies whole, with the published checksums, or None; the root if it needs no files."""
    source = find(name)
    if not source.layouts:
        return data_root(root)
    place = locate(source, data_root(root))
    return place.folder if place.whole and all(one.sound for one in contents(place)) else None


def _check_parts(source: Source, place: Place) -> list[FileStatus]:
    """A row for the whole data set, if all of it is there, and one for each part; all is read anew."""
    layout = place.layout
    held = {one.path: one for one in contents(place, anew=True)}
    sound = all(one.sound for one in held.values())
    counts = layout.whole.counts(place.folder) if layout.whole else {}
    rows = []
    for part, path in zip(layout.parts, place.paths, strict=True):
        if path is None:
            rows.append(FileStatus(place.folder / part.names[0], "missing"))
        elif layout.whole:
            kind = "folder" if path.is_dir() else "file"
            rows.append(FileStatus(path, "ok" if sound else "present", counts[part.names[0]], kind))
        else:
            rows.append(_stated(held[path]))
    if not place.whole:
        return rows
    if not sound:
        why = layout.whole.wanting(place.folder) if layout.whole else "see below"
        told = f"not as published ({why}); a run refuses it, unless {UNVERIFIED}=1"
        return [FileStatus(place.folder, "wrong checksum", told, "data set"), *rows]
    if layout.whole:
        told = f"{counts['train']}, {counts['val/images']} to test on"
    else:
        told = _counted(layout.read([path for path in place.paths if path], source.names))
    return [FileStatus(place.folder, "ok", f"{told}; as published", "data set"), *rows]


def _stated(one: Content) -> FileStatus:
    if one.damage:
        return FileStatus(one.path, "unreadable", str(one.damage))
    if not one.sound:
        return FileStatus(one.path, "wrong checksum", f"md5 {one.digest}, published {one.published}")
    return FileStatus(one.path, "ok" if one.published else "present", _size(one.path))


def _size(path: Path) -> str:
    return f"{path.stat().st_size:,} bytes"
