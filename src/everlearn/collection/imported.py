"""Others' results as documents that stand beside ours: runs with settings, figures and what there is of a matrix.

{"imported": "mammoth", "runs": [{"name": …, "seed": 0, "settings": {"method": "der", …}, "class_il": {"acc": …}}]}
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from everlearn.errors import BadInput

Rows = Sequence[Sequence[float]]
Triangle = list[list[float | None]]  # a row per task learned; None of a task that was not measured yet


def files(paths: Sequence[Path], name: str) -> list[Path]:
    """The log files of this name: those given, and those in folders given."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise BadInput(f"there is no file or folder {path}")
        inside = sorted(path.rglob(name)) if path.is_dir() else [path]
        if not inside:
            raise BadInput(f"there is no {name} in {path}")
        found += inside
    return list({os.path.realpath(file): file for file in found}.values())


def text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadInput(f"{file} is no text") from None


def triangle(rows: Rows) -> Triangle | None:
    """Accuracies after each task, on the tasks learned so far; None if they are not all there.

    A task may have been measured several times: the last time counts. In a square, what is above the diagonal may be
    filled up with 0, and is left out.
    """
    tasks = max(map(len, rows), default=0)
    square = len(rows) == tasks and all(len(row) == tasks for row in rows)
    by_length = dict(enumerate(rows, 1)) if square else {len(row): row for row in rows}
    if not tasks or set(by_length) != set(range(1, tasks + 1)):
        return None
    return [[*by_length[n][:n], *[None] * (tasks - n)] for n in range(1, tasks + 1)]


def figures(matrix: Triangle, **known: float | None) -> dict[str, Any]:
    """ACC, BWT and forgetting of such accuracies, as metrics.summary defines them, and what else is known."""
    last, tasks = [v for v in matrix[-1] if v is not None], len(matrix)
    found: dict[str, Any] = {"acc": fmean(last), "bwt": None, "forgetting": None, "fwt": None}
    if tasks > 1:
        best = lambda i: max(v for row in matrix[i:] if (v := row[i]) is not None)
        found["bwt"] = fmean([last[i] - (matrix[i][i] or 0.0) for i in range(tasks - 1)])
        found["forgetting"] = fmean([best(i) - last[i] for i in range(tasks - 1)])
    return found | {key: value for key, value in known.items() if value is not None} | {"matrix": matrix}


def finite(value: Any) -> float | None:
    """The value as a float; None if it is not a finite number."""
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def document(kind: str, runs: Iterator[dict[str, Any]], paths: Sequence[Path]) -> dict[str, Any]:
    """All runs of some logs; refused if there is none."""
    found = list(runs)
    if not found:
        raise BadInput(f"there is no result of {kind} in {', '.join(map(str, paths))}")
    return {"imported": kind, "runs": found}
