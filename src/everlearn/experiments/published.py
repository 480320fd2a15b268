"""The paper's published numbers, from `published.toml`: a table per study, its rows labelled as the study's."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    """A published mean and its standard deviation."""

    mean: float
    std: float


SETTINGS = (
    "ResNet-18, batch 32 and 32 per memory draw, 50 epochs per task, SGD 0.03 without momentum, five seeds; "
    "weights 1, 1 (ER, ER-ACE), preset 1, 0.5 (RER, RER-ACE) and 1, 0.2, 0.5 (RDER); "
    "warm-up 25 epochs, Interval 5 unless varied."
)

Row = dict[str, dict[str, Figure | None]]  # "class_il" or "task_il": "acc" or "bwt": a figure, None where none is given


def published(study: str, row: str) -> Row | None:
    """What the paper gives for a row of a study; None where it has no such study or row."""
    return tables().get(study, {}).get(row)


@functools.cache
def tables() -> dict[str, dict[str, Row]]:
    """All published figures, by study and label."""
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        return {study: _rows(**table) for study, table in tomllib.load(file).items()}


def _rows(columns: list[str], **rows: list[str]) -> dict[str, Row]:
    return {label: _row(columns, cells) for label, cells in rows.items()}


def _row(columns: list[str], cells: list[str]) -> Row:
    row: Row = {setting: {"acc": None, "bwt": None} for setting in ("class_il", "task_il")}
    for column, cell in zip(columns, cells, strict=True):
        setting, metric = column.split()
        row[setting][metric] = None if cell == "-" else Figure(*map(float, cell.split("±")))
    return row
