"""Runs under way as the page shows them: how far each is, how long it will still take, and its losses so far."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import fmean
from typing import Any

from everlearn.collection import Unfinished
from everlearn.collection.model import SETTINGS
from everlearn.report.rounding import rounded

LOCKS = Path("/proc/locks")  # what is locked on this machine, where the system says it
RECENT = 20  # epochs from which the time of the next ones is estimated
POINTS = 200  # of a curve


def locked() -> set[int] | None:
    """The numbers on the disk of all files that are locked on this machine; None where the system does not say."""
    try:
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    places = (word.rsplit(":", 1)[-1] for line in lines for word in line.split() if word.count(":") == 2)
    return {int(place) for place in places if place.isdigit()}


def _held(run: Unfinished, files: set[int] | None) -> bool | None:
    """Is a process of this machine at work on the run? None if the system does not say."""
    try:
        return None if files is None else os.stat(run.place / "lock").st_ino in files
    except OSError:
        return False


def described(run: Unfinished, files: set[int] | None, ours: set[str]) -> dict[str, Any]:
    """How far a run is. `files` are those that are locked; `ours` are the runs this machine was once found at."""
    history, held = run.history, _held(run, files)
    if held:
        ours.add(str(run.place))
    seconds = [epoch.seconds for epoch in history.epochs[-RECENT:] if epoch.seconds is not None]
    pace = fmean(seconds) if seconds else None
    left = None if pace is None or run.epochs is None else round(pace * max(run.epochs - run.done, 0), 1)
    last = history.tasks[-1] if history.tasks else None
    seen = {s: None if last is None else fmean(getattr(last, s)[: last.task + 1]) for s in SETTINGS}
    return {
        "name": run.name,
        "label": run.title or run.name,
        "seed": run.seed,
        "stream": str(run.settings.get("stream", "")),
        "tasks": run.tasks_done,
        "done": run.done,
        "epochs": run.epochs,
        "left": left,
        "pace": rounded(pace, 3),
        "touched": round(run.touched, 1),
        "held": held,
        "stopped": held is False and str(run.place) in ours,
        "resumable": run.resumable,
        "damage": history.damage,
        "seen": rounded(seen, 3),
    }


def losses(run: Unfinished) -> list[dict[str, Any]]:
    """The losses of a run under way, epoch by epoch."""
    epochs = run.history.epochs
    every = -(-len(epochs) // POINTS) or 1
    kept = [(n, epoch) for n, epoch in enumerate(epochs, 1) if n % every == 0]
    terms = dict.fromkeys(term for _, epoch in kept for term in epoch.loss)
    return [
        {
            "run": run.name,
            "term": term,
            "epoch": [n for n, epoch in kept if term in epoch.loss],
            "loss": rounded([epoch.loss[term] for _, epoch in kept if term in epoch.loss], 4),
        }
        for term in terms
    ]
