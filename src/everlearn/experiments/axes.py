"""A key of a study's grid, as it stands in the file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from everlearn.data.sources import own
from everlearn.errors import BadInput, shown
from everlearn.spec import KINDS


def axis(path: Path, key: str, value: Any) -> Any:
    """A key of a grid: a value, or a list of them to be crossed."""
    if key in ("seed", "seeds", "given", "label"):
        raise BadInput(f"{path}: {key} has no place in a grid; seeds = K, above all grids, runs seeds 0 to K − 1")
    plain = lambda v: isinstance(v, (str, int, float))
    row = lambda v: isinstance(v, list) and len(v) > 0 and all(map(plain, v))
    if key in ("weights", "classes"):  # one of them is a list already
        if row(value):
            return [value]
        if isinstance(value, list) and value and all(map(row, value)):
            return value
        raise BadInput(
            f"{path}: {key} = {shown(value)} must be a list, such as {[1, 0.5] if key == 'weights' else ['0', '1']}"
        )
    if key in KINDS:
        named = value if isinstance(value, list) else [value]
        if not named or not all(
            isinstance(v, str) or (isinstance(v, dict) and isinstance(v.get("name"), str)) for v in named
        ):
            raise BadInput(f"{path}: {key} = {shown(value)} must be a name, a table with a name, or a list of these")
        place = partial(_beside, path, key)
        return [place(v) if isinstance(v, str) else v | {"name": place(v["name"])} for v in named]
    if not (plain(value) or row(value)):
        raise BadInput(f"{path}: {key} = {shown(value)} must be a value or a list of values")
    return value


def _beside(path: Path, key: str, name: str) -> str:
    """What a path names is looked for beside the study, then in the working folder; data must be in one of them."""
    if key == "stream" and (mine := own(name)):
        kind, there = mine
        beside = path.parent / there
        if not (beside.exists() or there.exists()):
            raise BadInput(f"{path}: there is no {'folder' if kind == 'folder' else 'file'} {beside.resolve()}")
        return f"{kind}:{beside if beside.exists() else there}"
    home, colon, attribute = name.rpartition(":")
    beside = path.parent / home
    return f"{beside}:{attribute}" if colon and home.endswith(".py") and beside.is_file() else name
