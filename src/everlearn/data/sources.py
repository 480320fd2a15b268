"""Data sets on disk: found, read and compared with what was published.

A data set lies under the data root (an argument, else $EVERLEARN_DATA, else ~/.cache/everlearn) in any of its published
layouts; `everlearn data get NAME` puts it into the first one. `npz:FILE` and `folder:DIR` are the user's own data.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from everlearn.data import folders, formats
from everlearn.data.catalogue import SOURCES, Images, Layout, Source, read_digits
from everlearn.errors import BadInput, unknown

State = Literal["ok", "present", "missing", "wrong checksum", "unreadable", "partial", "skipped"]


@dataclass(frozen=True)
class FileStatus:
    """What is known of one file: `ok` has the published checksum, `present` has none published; of one's own pictures,
    `skipped` ones are left out of a run."""

    path: Path
    state: State
    detail: str = ""


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
        raise BadInput(
            f"{source.title} needs {place.folder / missing.names[0]}, which is not there: "
            f"run `everlearn data get {name}{f' --data {root}' if root else ''}`, put it there yourself, "
            "or say with --data where it is"
        )
    try:
        return place.layout.read([path for path in place.paths if path], source.names)
    except formats.Damaged as error:
        raise BadInput(f"{error}; {place.layout.remedy.format(name=name, folder=place.folder)}") from error


def check(name: str, root: Path | None = None, strict: bool = False) -> list[FileStatus]:
    """What is there of a data set, one row per file, each compared with its published checksum.

    Of a folder of pictures a row per class, and one per file that cannot be read, which `strict` calls unreadable.
    """
    if mine := own(name):
        kind, path = mine
        if not path.exists():
            return [FileStatus(path, "missing", "your own data")]
        if kind == "folder":
            return _check_folder(path, strict)
        (train, _), (test, _), names = OWN[kind](path)  # what is wrong with it is said
        return [FileStatus(path, "ok", f"{len(train)} + {len(test)} images of {len(names)} classes")]
    source = find(name)
    if not source.layouts:
        return [FileStatus(Path(name), "ok", "comes with scikit-learn")]
    rows = _check_parts(locate(source, data_root(root)))
    known = {row.path for row in rows}
    for archive in source.archives:  # downloaded, or on the way, and not itself one of the parts
        path = data_root(root) / name / archive.file
        part = path.with_name(f"{path.name}.part")
        if path.is_file() and path not in known:
            rows.append(_compare(path, archive.md5))
        elif part.is_file():
            rows.append(FileStatus(part, "partial", f"{_size(part)}: `everlearn data get {name}` goes on from there"))
    return rows


def _check_folder(path: Path, strict: bool) -> list[FileStatus]:
    there = folders.survey(path)
    (train, _), (test, _), names = there.parts
    sizes = [f"{width}x{height} ({count})" for (width, height), count in there.sizes.most_common()]
    more = f" and {len(sizes) - 4} other sizes" if len(sizes) > 4 else ""
    colour = "in colour" if train.shape[1] == 3 else "grey"
    what = f"{len(train)} + {len(test)} images of {len(names)} classes, {colour}, {train.shape[3]}x{train.shape[2]}"
    rows = [FileStatus(path, "ok", f"{what}; on disk {', '.join(sizes[:4])}{more}")]
    for folder, counts in there.counts.items():
        others = [f"{count} {suffix}" for suffix, count in sorted(folders.others(folder).items())]
        beside = f"; not read: {', '.join(others)}" if others else ""
        rows.append(FileStatus(folder, "ok", f"{' + '.join(str(n) for n in counts if n)} images{beside}"))
    return [*rows, *(FileStatus(one.path, "unreadable" if strict else "skipped", one.reason) for one in there.skipped)]


def found(name: str, root: Path | None = None) -> Path | None:
    """The folder where a data set lies whole, with the published checksums, or None; the root if it needs no files."""
    source = find(name)
    if not source.layouts:
        return data_root(root)
    place = locate(source, data_root(root))
    sound = place.whole and all(row.state in ("ok", "present") for row in _check_parts(place))
    return place.folder if sound else None


def _check_parts(place: Place) -> list[FileStatus]:
    return [
        FileStatus(place.folder / part.names[0], "missing") if path is None else _compare(path, part.md5, unpack=True)
        for part, path in zip(place.layout.parts, place.paths, strict=True)
    ]


def _compare(path: Path, published: str, unpack: bool = False) -> FileStatus:
    if not published:
        return FileStatus(path, "present", "a folder" if path.is_dir() else _size(path))
    try:
        md5 = formats.md5(path, unpack)
    except formats.Damaged as error:
        return FileStatus(path, "unreadable", str(error))
    if md5 != published:
        return FileStatus(path, "wrong checksum", f"md5 {md5}, published {published}")
    return FileStatus(path, "ok", _size(path))


def _size(path: Path) -> str:
    return f"{path.stat().st_size:,} bytes"
