"""What a learned weighting did: its weights over training, how its net answers, what it gave new and old samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everlearn.collection import Row, Run
from everlearn.report.rounding import rounded
from everlearn.report.surface import CELLS, FILE, WRONG, surface

SETS = ("weights", "surface")
WEIGHTS = 30_000  # numbers in curves on one page
POINTS = 150  # of one curve
SURFACES = 40_000  # cells of response surfaces
FEWEST = 5  # cells each way that still show a shape


def relational(row: Row) -> bool:
    return row.settings.get("weighting", "fixed") != "fixed"


def tables(row: Row, rows: int) -> dict[str, list[dict[str, Any]]]:
    """The records of a row's charts of weights, of its first run that has some; `rows` share a page."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SETS}
    if not relational(row):
        return found
    for run in row.runs:
        epochs = [(n, epoch) for n, epoch in enumerate(run.history.epochs, 1) if epoch.weights]
        if epochs:
            terms = list(epochs[0][1].weights)
            every = -(-len(epochs) // max(2, min(POINTS, WEIGHTS // rows // (5 * len(terms)))))
            found["weights"] = [_curve(term, epochs[::every], run.seed) for term in terms]
            found["surface"] = _surface(run, SURFACES // rows // len(terms))
            break
    return found


def validated(run: Run) -> dict[str, float]:
    """The mean weights of the new task's and of older validation samples at the end, if they are on record."""
    weights = list(run.validated.values())
    return rounded({"to_new": weights[0], "to_old": weights[-1]}, 4) if len(weights) > 1 else {}


def _curve(term: str, epochs: Sequence[tuple[int, Any]], seed: int | None) -> dict[str, Any]:
    of = [(n, epoch.task + 1, epoch.weights[term]) for n, epoch in epochs if term in epoch.weights]
    columns = {key: rounded([getattr(w, key) for *_, w in of], 4) for key in ("mean", "low", "high")}
    return {"term": term, "seed": seed, "epoch": [n for n, *_ in of], "task": [task for _, task, _ in of], **columns}


def _surface(run: Run, most: int) -> list[dict[str, Any]]:
    """The net's weight of each term over a grid of losses, and the mean losses it saw. Records have no net."""
    cells = min(CELLS, int(most**0.5))
    if cells < FEWEST or not (run.place / FILE).is_file():
        return []
    seen = [epoch for epoch in run.history.epochs if epoch.norms]
    try:
        found = surface(run.place, seen, run.settings.get("learned", ()), cells)
    except WRONG:  # `explain` says which file is damaged
        found = None
    if found is None:
        return []
    dots = seen[:: -(-len(seen) // POINTS)]
    shared = {
        "seed": run.seed,
        "top": found.top,
        "half": found.top / cells / 2,
        "x": rounded(found.losses, 4),
        "y": rounded(found.losses, 4),
        "seen_x": rounded([epoch.loss[found.x] for epoch in dots], 4),
        "seen_y": rounded([epoch.loss[found.y] for epoch in dots], 4),
    }
    return [
        {"term": term, **shared, "weight": rounded(grid, max(4, found.decimals(term)))}
        for term, grid in found.weights.items()
    ]
