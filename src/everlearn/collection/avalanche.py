"""Avalanche's results: the `eval_results.csv` of its CSVLogger, a line per experience trained on and evaluated on.

The file does not name the method: the folder it is in does, and its seed if the name ends in one, as `er-seed0` does.
A run that was stopped has the figures of the experiences it had learned, and so their number as its `tasks`.
Accuracies are shares of 1. Whether they are among all classes or a task's own is not written down: `setting` says it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from everlearn.collection import imported
from everlearn.collection.model import SETTINGS
from everlearn.errors import BadInput, unknown

FILE = "eval_results.csv"
COLUMNS = ("eval_exp", "training_exp", "eval_accuracy")
SEED = re.compile(r"(?:(.*?)[-_. ]+)?(?:seed|s)[-_=]?(\d+)")


def read(paths: Sequence[Path], setting: str = "class_il") -> dict[str, Any]:
    """The runs in these logs, as a document."""
    if setting not in SETTINGS:
        raise unknown("setting", setting, SETTINGS)
    found = imported.files(paths, FILE)
    return imported.document("avalanche", _runs(found, setting), paths)


def _runs(files: Sequence[Path], setting: str) -> Iterator[dict[str, Any]]:
    for file in files:
        table = _table(file)
        trained = sorted(task for task in table if task >= 0)
        if not trained:
            continue
        table = _learned(table, trained)
        rows = [[table[task][on] for on in sorted(table[task])] for task in trained if task in table]
        folder = file.absolute().parent.name
        named = SEED.fullmatch(folder)
        method, seed = (named[1] or folder, int(named[2])) if named else (folder, None)
        settings = {"method": method, "tasks": max(map(len, rows))}
        yield {"name": str(file), "seed": seed, "settings": settings, setting: _figures(rows, table.get(-1))}


def _table(file: Path) -> dict[int, dict[int, float]]:
    """Accuracy in % after each experience (−1: before the first) on each; the last of several counts."""
    lines = csv.DictReader(io.StringIO(imported.text(file)))
    if not {*COLUMNS} <= {*(lines.fieldnames or ())}:
        raise BadInput(f"{file} has no columns {', '.join(COLUMNS)}; is it of Avalanche's CSVLogger?")
    table: dict[int, dict[int, float]] = {}
    try:
        for line in lines:
            on, after, accuracy = (line[column] for column in COLUMNS)
            share = imported.finite(float(accuracy))
            if share is None or not 0 <= share <= 1:
                raise ValueError("no share")
            table.setdefault(-1 if after == "None" else int(after), {})[int(on)] = 100 * share
    except (ValueError, TypeError, csv.Error):
        raise BadInput(f"line {lines.line_num} of {file} is not of Avalanche's CSVLogger") from None
    return table


def _learned(table: dict[int, dict[int, float]], trained: Sequence[int]) -> dict[int, dict[int, float]]:
    """The table of a run that may have been stopped: without a last row that was being written, and without experiences
    that it never learned. After joint training there is one row, and all were learned."""
    if len(trained) < 2:
        return table
    before, last = trained[-2:]
    whole = table.keys() - ({last} if table[before].keys() - table[last].keys() else set())
    return {task: {on: of for on, of in table[task].items() if on <= max(whole)} for task in sorted(whole)}


def _figures(rows: list[list[float]], untrained: dict[int, float] | None) -> dict[str, Any]:
    """All figures, if each row has all tasks; from the tasks learned so far all but FWT; else ACC alone."""
    tasks = len(rows[-1])
    if len(rows) != tasks or any(len(row) != tasks for row in rows):
        lower = imported.triangle(rows)
        return {"acc": fmean(rows[-1])} if lower is None else imported.figures(lower)
    first = [untrained[on] for on in sorted(untrained)] if untrained else []
    ahead = [rows[i][i + 1] - first[i + 1] for i in range(tasks - 1)] if len(first) == tasks else []
    matrix: imported.Triangle = [[*row] for row in rows]
    return imported.figures(matrix, fwt=fmean(ahead) if ahead else None)
