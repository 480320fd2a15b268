"""Runs under way as the page shows them: how far each is, how long it will still take, and its losses so far."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from everlearn.collection import Unfinished
from everlearn.collection.model import SETTINGS
from everlearn.report.web.rounding import rounded

RECENT = 20  # epochs that say how long the next ones take
POINTS = 200  # of a curve


def described(run: Unfinished) -> dict[str, Any]:
    """How far a run is."""
    history = run.history
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
