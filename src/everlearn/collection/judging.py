"""Is one collection worse than another? The question a test of somebody's changes asks.

Rows are compared with those of the same settings, else with those of the same label; where there is one row on each
side, these two are compared whatever they are. On two common seeds or more, a row is worse if the whole 95 % interval
of its mean difference on these seeds is on the wrong side of 0. On one common seed or none it is worse if its mean is.
A row that is no longer there, because its runs fail say, is worse than one that is.
"""

from __future__ import annotations

from typing import NamedTuple

from everlearn.collection.model import HIGHER, SETTINGS, Collection, Row
from everlearn.errors import BadInput, unknown
from everlearn.metrics import METRICS

NAMES = {metric: ("class_il", metric) for metric in METRICS} | {
    f"{setting}.{metric}": (setting, metric) for setting in SETTINGS for metric in METRICS
}
NAMES["seconds"] = ("class_il", "seconds")


class Verdict(NamedTuple):
    """A row of the second collection against its like in the first: the difference, signed as it is measured."""

    label: str
    on: str
    difference: float
    half_width: float | None  # of the 95 % interval; None where there are no two common seeds
    seeds: int  # common ones
    worse: bool


def metric(name: str) -> tuple[str, str]:
    """The setting and the metric of a name such as `acc`, `task_il.bwt` or `seconds`."""
    if name not in NAMES:
        raise unknown("metric", name, NAMES)
    return NAMES[name]


def judged(before: Collection, after: Collection, name: str) -> list[Verdict]:
    """Each row of `after` that has its like in `before`, and whether it is worse."""
    setting, of = metric(name)
    found = [
        verdict for row, like in _pairs(before, after) if (verdict := _verdict(row, like, setting, of)) is not None
    ]
    if not found:
        raise BadInput(f"no row of the one can be compared with a row of the other in {name}")
    return found


def gone(before: Collection, after: Collection) -> list[str]:
    """The rows of `before` that have no like in `after`."""
    there = {id(like) for _, like in _pairs(before, after)}
    return [row.label for row in before.rows if id(row) not in there]


def _pairs(before: Collection, after: Collection) -> list[tuple[Row, Row]]:
    if len(before.rows) == len(after.rows) == 1:
        return [(after.rows[0], before.rows[0])]
    by_key = {row.runs[0].key: row for row in before.rows}
    by_label = {row.label: row for row in before.rows}
    likes = [(row, by_key.get(row.runs[0].key) or by_label.get(row.label)) for row in after.rows]
    return [(row, like) for row, like in likes if like is not None]


def _verdict(row: Row, like: Row, setting: str, of: str) -> Verdict | None:
    gain, sign = row.gain(like, of, setting), 1 if HIGHER[of] else -1
    if gain is not None and gain.half_width is not None:
        worse = sign * gain.mean + gain.half_width < 0
        return Verdict(row.label, like.label, gain.mean, gain.half_width, gain.seeds, worse)
    ours, theirs = row.spread(of, setting), like.spread(of, setting)
    if ours is None or theirs is None:
        return None
    difference = ours["mean"] - theirs["mean"] if gain is None else gain.mean
    return Verdict(row.label, like.label, difference, None, gain.seeds if gain else 0, sign * difference < 0)
