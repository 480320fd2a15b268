"""Many runs, from wherever they are, as one collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from everlearn.collection.folders import Found, Look
from everlearn.collection.model import Collection, Run
from everlearn.collection.rows import rows
from everlearn.errors import listed
from everlearn.experiments import choosing


def collect(paths: Sequence[Path | str], index: bool = True, edited: bool = False) -> Collection:
    """What is under these paths: folders of runs, folders of such, studies, records, JSON documents.

    A path that is not there is refused. What is damaged, foreign or not complete is named, and the rest is read. What
    is not as it was written is damaged, unless it may be `edited`. With `index`, a folder of many runs gets a small
    file that makes the next reading faster.
    """
    found = Found()
    for path in dict.fromkeys(map(str, paths)):
        found.add(Look(path, index, edited).found())
    runs = [_with_curves(run, found.curves) for run in found.runs]
    return Collection(rows(runs), tuple(found.unfinished), tuple(found.problems))


def _with_curves(run: Run, curves: dict[str, Path]) -> Run:
    """A record with the curves that go with it: among what was found, or in a folder `…-epochs` beside its own."""
    if run.study is not None or run.place.is_dir():
        return run
    beside = Path(f"{run.place.parent.absolute()}-epochs") / run.place.name
    file = curves.get(run.name) or (beside if beside.is_file() else None)
    return run if file is None else replace(run, curves=file)


def chosen(collection: Collection, only: Sequence[str]) -> Collection:
    """The rows whose label has one of these, as a study's `only`; all without."""
    left = [f"{run.place} (not complete)" for run in collection.unfinished]
    left += [f"{problem.place} ({problem.kind})" for problem in collection.problems if problem.kind != "foreign"]
    besides = f"; left out: {listed(left)}" if left else ""
    labels = set(choosing.chosen((row.label for row in collection.rows), only, besides=besides))
    return replace(collection, rows=tuple(row for row in collection.rows if row.label in labels))
