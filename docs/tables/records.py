"""What is on record, and the runs of it in groups."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import reproduce
from reproduce import experiment

from everlearn.experiments import seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import published
from everlearn.experiments.studies import LITERATURE, SIX

ROOT = Path(__file__).parents[2]


def record(path: str | Path) -> dict:
    return seals.opened(json.loads((ROOT / path).read_text()), of=path).document


def files(folder: str) -> list[Path]:
    """The records in a folder."""
    return sorted((ROOT / folder).glob("*.json"))


FIRST = (("refresh", False), ("refresh_older", True), ("averaged_teacher", False))
VARIANTS = {  # by method: what else has a row of its own
    "retain": {
        "retain, second form": (("refresh_older", False),),
        "retain, first form, refreshed": (("refresh", True), *FIRST[1:]),
        "retain, first form": FIRST,
    }
}


@cache
def usual(e: Experiment, *other: tuple[str, object]) -> Experiment:
    """The settings of this method at this memory size as published, in bfloat16, some being others."""
    return Experiment.of(e.label, e.stream.name, memory=e.memory, seed=e.seed, precision="bfloat16", **dict(other))


def as_usual() -> dict[tuple[str, str, int], list[dict]]:
    """The runs at these settings, by method, stream and memory."""
    found: dict[tuple[str, str, int], list[dict]] = {}
    for e, run in reproduce.recorded().items():
        for label, other in ({e.label: ()} | VARIANTS.get(e.label, {})).items():
            if e == usual(e, *other):
                found.setdefault((label, e.stream.name, e.memory), []).append(run)
    return found


def named(run: dict) -> list[str]:
    """What tells a run from others but for its seed: method, memory, weights and order of update. Beside the method
    stands what else is not as published."""
    e = experiment(run)
    variants = VARIANTS.get(e.label, {}).items()
    label, other = next(((label, other) for label, other in variants if e == usual(e, *other)), (e.label, ()))
    here, expected = e.settings(), usual(e, *other).settings()
    odd = [f"{key} {here[key]}" for key in here if key not in ("weights", "order") and here[key] != expected.get(key)]
    weights = ", ".join(f"{w:g}" for w in e.weighting["weights"])
    return [", ".join([f"`{label}`", *odd]), str(e.memory), weights, e.weighting.get("order", "–")]


def every_run(stream: str = "cifar10") -> list[dict]:
    """All recorded runs of a stream, by memory, in the order of the paper's tables, ours after them."""
    known = [*LITERATURE[:8], *SIX]
    rank = lambda label: known.index(label) if label in known else len(known)
    key = lambda run, e: (e.memory, rank(e.label), named(run), e.seed)
    runs = [run for e, run in reproduce.recorded().items() if reproduce.folder(e) == stream]
    return sorted(runs, key=lambda run: key(run, experiment(run)))


OF_STREAM = {  # the paper's table of the methods on it
    "cifar10": "table1-cifar10",
    "cifar100": "table2-cifar100",
    "tinyimagenet": "table1-tinyimagenet",
}


def groups(stream: str = "cifar10") -> Iterator[tuple[list[str], list[dict], dict | None]]:
    """What tells the runs of a group from others, the runs, and what was published of them."""
    theirs = {
        e: published(study, label)
        for study in reversed(reproduce.TABLES.values())
        for label, row in reproduce.cells(study).items()
        for e in row
    }
    for name, group in groupby(every_run(stream), named):
        runs = list(group)
        e = experiment(runs[0])
        own = published(OF_STREAM[stream], f"{e.label}, M = {e.memory}")  # also for other weights or orders
        yield name, runs, theirs.get(e) or (own if name[0] == f"`{e.label}`" else None)


def as_published(stream: str = "cifar10") -> Iterator[tuple[list[str], list[dict], dict]]:
    """Those at the published settings."""
    return ((name, runs, row) for name, runs, row in groups(stream) if row and (e := experiment(runs[0])) == usual(e))
