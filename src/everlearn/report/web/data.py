"""What the page shows, as one block of plain data: rows, what is no complete run, and the tables the charts are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from everlearn.collection import Collection, Row, Run
from everlearn.collection.model import SETTINGS
from everlearn.collection.rows import ALWAYS, labels, shown, usual
from everlearn.metrics import METRICS, spread
from everlearn.report.rounding import rounded
from everlearn.report.web import classes, progress, relation

Block = dict[str, Any]
# Okabe and Ito's colours, four of them darker so that each has a contrast of 3 on white and on a dark page.
COLOURS = ("#0072B2", "#D55E00", "#009178", "#C0639A", "#A87400", "#2F8FCB", "#767676")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond")
CELLS = 60_000  # of accuracy matrices on one page


def block(collection: Collection, paths: Sequence[str], memo: dict[Any, Any] | None = None) -> Block:
    """The page's data. `memo` keeps for the next time what was read of complete rows and which runs were under way."""
    from scipy.special import stdtrit  # Student's t; scipy.stats takes half a second to import

    streams = _streams(collection.rows)
    rows = sorted(collection.rows, key=lambda row: (streams[row.label], *_rank(row)))
    names, short = _names(rows), _labels(rows, streams)
    memo = {} if memo is None else memo
    names_of_sets = ("average", "matrix", "runs", *classes.SETS, *relation.SETS)
    sets: dict[str, list[Block]] = {name: [] for name in names_of_sets}
    own = [streams[row.label] for row in rows]
    looks = [look(own[:place].count(stream)) for place, stream in enumerate(own)]
    for row, name, drawn in zip(rows, names, looks):
        key = (len(rows), *((str(run.place), run.name, str(run.provenance.get("finished"))) for run in row.runs))
        if key not in memo:
            memo[key] = _tables(row, len(rows))
        mark = {"row": name, "label": short[row.label], **drawn}
        for of, records in memo[key].items():
            sets[of] += [{**mark, **record} for record in records]
    full = {name: row.label for row, name in zip(rows, names)}
    for record in sets["runs"]:
        if "to_new" in record:
            record["full"] = full[record["row"]]  # it is set against rows of other streams, too
    ours = memo.setdefault("ours", set())
    locked = progress.locked() if collection.unfinished else None
    seeds = max((len(row.runs) for row in rows), default=1)
    return {
        "paths": list(paths),
        "rows": [
            {"id": name, "label": short[row.label], "full": row.label, "stream": streams[row.label]} | drawn | _row(row)
            for row, name, drawn in zip(rows, names, looks)
        ],
        "pairs": _pairs(rows, names),
        "t": [float(stdtrit(free, 0.975)) for free in range(1, max(2, seeds))],  # by degrees of freedom
        "unfinished": [progress.described(run, locked, ours) for run in collection.unfinished],
        "problems": [{"kind": p.kind, "place": str(p.place), "why": p.why} for p in collection.problems],
        "notes": _notes(rows, sets),
        "sets": sets | {"live": [record for run in collection.unfinished for record in progress.losses(run)]},
    }


def look(place: int) -> Block:
    """How the row in this place of its stream is drawn: seven colours, then other dashes and shapes."""
    kind = place // len(COLOURS) % len(DASHES)
    return {"colour": COLOURS[place % len(COLOURS)], "dash": DASHES[kind], "shape": SHAPES[kind]}


def _rank(row: Row) -> tuple[bool, float]:
    """The key by which rows are sorted, the most accurate first."""
    acc = row.spread()
    return acc is None, -acc["mean"] if acc else 0.0


def _streams(rows: Sequence[Row]) -> dict[str, str]:
    """What each row, by its label, learned: only rows that learned the same are set against each other."""
    of = lambda row, key: row.settings.get(key)
    kinds: dict[Any, set[str]] = {}
    for row in rows:
        kinds.setdefault(of(row, "stream"), set()).add(repr((of(row, "tasks"), of(row, "classes"))))
    found = {}
    for row in rows:
        words = [str(of(row, "stream") or "not known")]
        if len(kinds[of(row, "stream")]) > 1:
            words += [f"{of(row, 'tasks')} tasks"] if of(row, "tasks") else []
            words += [f"classes {shown(of(row, 'classes'))}"] if of(row, "classes") else []
        found[row.label] = ", ".join(words)
    return found


def _labels(rows: Sequence[Row], streams: Mapping[str, str]) -> dict[str, str]:
    """Labels that tell rows from the others of their stream."""
    found = {}
    for stream in dict.fromkeys(streams.values()):
        own = [row for row in rows if streams[row.label] == stream]
        short = labels([row.runs for row in own])
        found |= {row.label: label for row, label in zip(own, short)}
    return found


def _names(rows: Sequence[Row]) -> list[str]:
    """A short name for each row that is the same on the next page, for links."""
    found: list[str] = []
    for row in rows:
        key = row.runs[0].key[:8]
        found.append(key if key not in found else f"{key}-{sum(name.startswith(key) for name in found) + 1}")
    return found


def _row(row: Row) -> Block:
    again, alike = row.repeated
    devices = dict.fromkeys(str(run.provenance["device"]) for run in row.runs if run.provenance.get("device"))
    return {
        "figures": {s: {m: rounded(row.spread(m, s), 6) for m in METRICS} for s in SETTINGS},
        "seconds": rounded(row.spread("seconds"), 1),
        "runs": [_run(run) for run in row.runs],
        "published": _published(row),
        "table": row.published_in,
        "again": [again, alike],
        "devices": list(devices),
        "settings": {key: shown(value) for key, value in row.settings.items()},
    }


def _run(run: Run) -> Block:
    figures = {s: rounded({m: run.value(m, s) for m in METRICS}, 6) for s in SETTINGS}
    seconds = None if run.seconds is None else round(run.seconds, 1)
    return {"name": run.name, "seed": run.seed, "place": str(run.place), "seconds": seconds, **figures}


def _published(row: Row) -> Block | None:
    """Mean and deviation as they were printed, by setting and metric."""
    if row.published is None:
        return None
    return {s: {m: None if f is None else list(f) for m, f in of.items()} for s, of in row.published.items()}


def _pairs(rows: Sequence[Row], names: Sequence[str]) -> list[list[str]]:
    """Each row whose weighting is not fixed, after the one that has the same method and settings with fixed weights."""
    found = []
    for row, name in zip(rows, names):
        if row.settings.get("weighting", "fixed") == "fixed":
            continue
        alike = {of: other.settings for other, of in zip(rows, names) if _baseline(other.settings, row.settings)}
        if alike:
            found.append([_nearest(alike, row.settings), name])
    relational = {name for row, name in zip(rows, names) if row.settings.get("weighting") == "relation"}
    return sorted(found, key=lambda pair: pair[1] not in relational)


def _baseline(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    same = all(one.get(key) == other.get(key) for key in ("method", *ALWAYS))
    return same and one.get("weighting") == "fixed"


def _nearest(alike: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    """The name with the most settings in common; of several the one nearest to what the method has by default."""
    default = usual(next(iter(alike.values()))) if len(alike) > 1 else {}
    return max(alike, key=lambda name: (_shared(alike[name], settings), _shared(alike[name], default)))


def _shared(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    return sum(one[key] == other[key] for key in one if key in other)


def _tables(row: Row, rows: int) -> dict[str, list[Block]]:
    """The records of a row in each table that the charts are made of."""
    runs = [run for run in row.runs if run.matrices]
    relational = relation.relational(row)
    found: dict[str, list[Block]] = {"runs": [record for run in row.runs for record in _points(run, relational)]}
    found["average"] = [record for setting in SETTINGS for record in _average(runs, setting)]
    found["matrix"] = [record for setting in SETTINGS for record in _matrix(runs, setting, CELLS // rows)]
    return found | classes.tables(row.runs, rows) | relation.tables(row, rows)


def _mean(cells: Iterable[float | None]) -> float | None:
    """The mean of accuracies; None where one is not known, as in some results of other libraries."""
    known = list(cells)
    return None if None in known else fmean([cell for cell in known if cell is not None])


def _alike(runs: Sequence[Run], setting: str) -> list[list[list[float | None]]]:
    """The runs' matrices that have the shape of the first."""
    all_of = [run.matrices[setting] for run in runs if setting in run.matrices]
    shape = lambda matrix: (len(matrix), len(matrix[0]))
    return [matrix for matrix in all_of if shape(matrix) == shape(all_of[0])]


def _after(matrix: Sequence[Sequence[Any]]) -> list[int]:
    """After how many tasks each row of a matrix was measured; all at once is after the last."""
    return [len(matrix[0])] if len(matrix) == 1 else list(range(1, len(matrix) + 1))


def _average(runs: Sequence[Run], setting: str) -> list[Block]:
    """Mean accuracy over the tasks learned so far, after each task; over the runs its mean and deviation."""
    if not (matrices := _alike(runs, setting)):
        return []
    after = _after(matrices[0])
    means = [[_mean(matrix[i][:t]) for matrix in matrices] for i, t in enumerate(after)]
    seen = [
        (t, spread(of)) for t, values in zip(after, means) if (of := [value for value in values if value is not None])
    ]
    if not seen:
        return []
    mean, std = [of["mean"] for _, of in seen], [of["std"] for _, of in seen]
    return [{"setting": setting, "after": [t for t, _ in seen], "mean": rounded(mean, 3), "std": rounded(std, 3)}]


def _matrix(runs: Sequence[Run], setting: str, most: int) -> list[Block]:
    """The mean accuracy of each task after each task."""
    matrices = _alike(runs, setting)
    if not matrices or len(SETTINGS) * len(matrices[0]) * len(matrices[0][0]) > most:
        return []
    mean = [[_mean(cells) for cells in zip(*rows)] for rows in zip(*matrices)]
    tasks = list(range(1, len(mean[0]) + 1))
    return [{"setting": setting, "after": _after(mean), "task": tasks, "mean": rounded(mean, 2)}]


def _points(run: Run, relational: bool) -> list[Block]:
    """A run's figures in each setting, with what it had learned and what it kept of all tasks but the last, and with
    the mean weights of new and of old validation samples at the end, if it has learned weights."""
    weights = relation.validated(run) if relational else {}
    minutes = None if run.seconds is None else round(run.seconds / 60, 3)
    found = []
    for setting in SETTINGS:
        matrix, figures = run.matrices.get(setting), {m: run.value(m, setting) for m in METRICS}
        if matrix and len(matrix) == len(matrix[0]) > 1:
            old = range(len(matrix) - 1)
            figures |= {"learned": _mean(matrix[i][i] for i in old), "kept": _mean(matrix[-1][i] for i in old)}
        found.append({"setting": setting, "seed": run.seed, "minutes": minutes, **rounded(figures, 3), **weights})
    return found


def _notes(rows: Sequence[Row], sets: Mapping[str, Sequence[Block]]) -> list[str]:
    """What the page leaves out, and why."""
    there, averaged = ({record["row"] for record in sets[name]} for name in ("matrix", "average"))
    found = []
    if missing := len(averaged - there):
        found.append(f"{missing} rows have more tasks than fit on a page of so many rows: fewer rows show them all.")
    if bare := len(rows) - len(averaged):
        found.append(f"{bare} of {len(rows)} rows have no accuracy matrix on record.")
    return found
