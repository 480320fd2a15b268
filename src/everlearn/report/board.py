"""A collection as a leaderboard: one table for the terminal, CSV, Markdown and LaTeX, and a JSON document."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from everlearn.collection import Collection, Gain, Row
from everlearn.collection.model import SETTINGS
from everlearn.collection.rows import bases, shown
from everlearn.errors import plural, printable
from everlearn.experiments.published import Figure
from everlearn.metrics import METRICS
from everlearn.report import safe
from everlearn.report.sheet import Sheet
from everlearn.report.tables import cell, more, plain
from everlearn.training import Training

SIDE_BY_SIDE = 4  # rows whose settings stand beside each other; of more, each setting's values are listed
LONGEST = 5  # rows named for a value of a setting
EVERY = {field.name for field in fields(Training)}  # settings that every run has, in its document or not
NOTE = "Mean ± standard deviation over the runs, in %."
Gains = Mapping[str, tuple[str, Gain | None]]  # of each row: the row it is set against, and what it gains on it


@dataclass(frozen=True)
class Board:
    """The best row first. Cells are text; the first of a row is its label, as it was found."""

    heads: list[str]
    rows: list[list[str]]
    notes: list[str]


def gains(collection: Collection, against: str | None) -> Gains:
    """What each row gains on the one of this label, or on the one of this method and weighting most like it."""
    if against is None:
        return {}
    found = bases(collection.rows, against)
    return {row.label: (on.label, row.gain(on)) for row in collection.rows if (on := found.get(row.label))}


def ranked(collection: Collection) -> list[Row]:
    """Rows by their Class-IL ACC, or Task-IL ACC where there is no other."""
    mean = lambda row, setting: (row.spread("acc", setting) or {"mean": -1})["mean"]
    return sorted(collection.rows, key=lambda row: (-mean(row, "class_il"), -mean(row, "task_il")))


def board(collection: Collection, gained: Gains = {}) -> Board:
    """The leaderboard of a collection. Columns that no row has anything in are left out."""
    columns: dict[str, Callable[[Row], str]] = {
        "runs": lambda row: str(len(row.runs)),
        "run again,\nthe same": _again,
        "Class-IL\nACC": lambda row: cell(row.spread("acc")),
        "published\nClass-IL": lambda row: _figure(row, "class_il"),
        "Task-IL\nACC": lambda row: cell(row.spread("acc", "task_il")),
        "published\nTask-IL": lambda row: _figure(row, "task_il"),
        "forgetting": lambda row: cell(row.spread("forgetting")),
        "gain": lambda row: _gain(gained.get(row.label)),
        "ahead\non": lambda row: _ahead(gained.get(row.label)),
    }
    rows = ranked(collection)
    filled = {head: [of(row) for row in rows] for head, of in columns.items()}
    filled = {head: cells for head, cells in filled.items() if any(cell not in ("", "–") for cell in cells)}
    cells = [[row.label, *of] for row, *of in zip(rows, *filled.values())]
    return Board(["", *filled], cells, list(_notes(collection, gained)))


def _again(row: Row) -> str:
    again, alike = row.repeated
    return f"{alike} of {again}" if again else ""


def _figure(row: Row, setting: str) -> str:
    figure = (row.published or {}).get(setting, {}).get("acc")
    return "" if figure is None else cell(figure._asdict())


def _gain(found: tuple[str, Gain | None] | None) -> str:
    return more(found[1].mean, found[1].half_width) if found and found[1] else ""


def _ahead(found: tuple[str, Gain | None] | None) -> str:
    return f"{found[1].ahead} of {found[1].seeds}" if found and found[1] else ""


def _notes(collection: Collection, gained: Gains) -> Iterator[str]:
    yield NOTE
    if gained:
        on = list(dict.fromkeys(base for base, _ in gained.values()))
        named = "; ".join(on[:LONGEST]) + (f" and {len(on) - LONGEST} more" if len(on) > LONGEST else "")
        yield f"Gain: difference in Class-IL ACC on the same seeds, ± half of its 95 % interval, from {named}."
    tables = sorted({row.published_in for row in collection.rows if row.published and row.published_in})
    if tables:
        yield f"Published: as in {', '.join(tables)}."
    if any(row.repeated[0] for row in collection.rows):
        yield "Run again: of the runs that were, how many came out the same to the last digit."


# Forms ----------------------------------------------------------------------------------------------------------------


def sheet(made: Board) -> Sheet:
    """A leaderboard as a table for the terminal."""
    table = plain(*made.heads, numbers=True)
    for label, *cells in made.rows:
        table.add_row(printable(label), *cells)
    return table


def as_markdown(made: Board) -> str:
    heads = [head.replace("\n", " ") for head in made.heads]
    line = lambda cells: f"| {' | '.join(cells)} |"
    rule = line(["---", *["---:"] * (len(heads) - 1)])
    rows = [line([safe.markdown(label), *(of or "–" for of in cells)]) for label, *cells in made.rows]
    return "\n".join([line(heads), rule, *rows])


def as_latex(made: Board) -> str:
    """A table for a document that uses the package booktabs."""
    line = lambda cells: " & ".join(cells) + r" \\"
    heads = [f"{{{safe.latex(head.replace(chr(10), ' '))}}}" for head in made.heads]
    rows = [line([f"{{{safe.latex(label)}}}", *(safe.latex(of or "–") for of in cells)]) for label, *cells in made.rows]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            *(r"\toprule", line(heads), r"\midrule", *rows, r"\bottomrule"),
            r"\end{tabular}",
        ]
    )


def text(collection: Collection, gained: Gains, csv: bool, latex: bool) -> str:
    """The table for other programs: CSV, LaTeX, or else Markdown."""
    if csv:
        return as_csv(collection, gained)
    return (as_latex if latex else as_markdown)(board(collection, gained))


def as_csv(collection: Collection, gained: Gains = {}) -> str:
    """Every figure in a column of its own, in full, and the settings that differ."""
    told = collection.differences()
    measured = [(setting, metric) for setting in SETTINGS for metric in METRICS]
    heads = ["row", "runs", "seeds"]
    heads += [f"{setting} {metric} {what}" for setting, metric in measured for what in ("mean", "std")]
    heads += [f"published {setting} acc {what}" for setting in SETTINGS for what in ("mean", "std")]
    heads += ["against", "gain mean", "gain half width", "gain ahead", "gain seeds", "seconds mean"]
    heads += [safe.csv(key) for key in told]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for row in ranked(collection):
        seeds = " ".join(str(run.seed) for run in row.runs if run.seed is not None)
        figures = [_pair(row.spread(metric, setting)) for setting, metric in measured]
        printed = [(row.published or {}).get(setting, {}).get("acc") for setting in SETTINGS]
        base, gain = gained.get(row.label, ("", None))
        ahead = [""] * 4 if gain is None else [gain.mean, gain.half_width, gain.ahead, gain.seeds]
        writer.writerow(
            [
                *(safe.csv(row.label), len(row.runs), seeds),
                *(value for pair in figures for value in pair),
                *(value for figure in printed for value in figure or ("", "")),
                *(safe.csv(base), *ahead),
                _pair(row.spread("seconds"))[0],
                *(_setting(values.get(row.label)) for values in told.values()),
            ]
        )
    return text.getvalue().removesuffix("\n")


def _setting(value: Any) -> str:
    return "" if value is None else safe.csv(shown(value))


def _pair(spread: dict | None) -> tuple[Any, Any]:
    return ("", "") if spread is None else (spread["mean"], "" if spread["std"] is None else spread["std"])


def document(collection: Collection, gained: Gains = {}) -> dict[str, Any]:
    """The whole collection as plain data, for --json."""
    return {
        "rows": {row.label: _row(row, gained.get(row.label)) for row in ranked(collection)},
        "differences": collection.differences(),
        "unfinished": [
            {"name": run.name, "place": str(run.place), "epochs": run.done, "of": run.epochs, "goes_on": run.resumable}
            for run in collection.unfinished
        ],
        "problems": [{"kind": p.kind, "place": str(p.place), "why": p.why} for p in collection.problems],
    }


def _row(row: Row, gained: tuple[str, Gain | None] | None) -> dict[str, Any]:
    summary = {setting: {metric: row.spread(metric, setting) for metric in METRICS} for setting in SETTINGS}
    pair = lambda figure: None if figure is None else Figure(*figure)._asdict()
    printed = row.published and {s: {m: pair(of) for m, of in figures.items()} for s, figures in row.published.items()}
    return {
        "settings": row.settings,
        "runs": [
            {
                "name": run.name,
                "place": str(run.place),
                "seed": run.seed,
                "seconds": run.seconds,
                **run.figures,
                "again": [repeat._asdict() for repeat in run.repeats],
            }
            for run in row.runs
        ],
        "summary": summary,
        **({"published": printed, "published_in": row.published_in} if printed else {}),
        **({"gain": {"on": gained[0], **(gained[1]._asdict() if gained[1] else {})}} if gained else {}),
    }


# What else there is to say --------------------------------------------------------------------------------------------


def differences(collection: Collection) -> Sheet | None:
    """The settings in which rows differ: side by side of a few rows, else the values and which rows have them."""
    told = {key: values for key, values in collection.differences().items() if key not in ("method", "weighting")}
    rows = [row.label for row in ranked(collection)]
    if len(rows) <= SIDE_BY_SIDE:
        table = plain("setting", *map(printable, rows), title="Settings that differ")
        for key, values in told.items():
            table.add_row(printable(key), *(printable(shown(values.get(label))) for label in rows))
        return table if table.rows else None
    table = plain("setting", "value", "rows", title="Settings that differ")
    kinds = {row.label: (row.settings.get("method"), row.settings.get("weighting")) for row in collection.rows}
    for key, values in told.items():
        having: dict[str, list[str]] = {}
        for label, value in values.items():
            having.setdefault(shown(value), []).append(label)
        its = {kinds[label] for label in values}
        if without := [label for label in rows if label not in values and (key in EVERY or kinds[label] in its)]:
            having.setdefault(shown(None), []).extend(without)
        if len(having) > 1:  # else no other method or weighting has the setting, and all rows that have it agree
            for number, (value, labels) in enumerate(sorted(having.items(), key=lambda of: -len(of[1]))):
                table.add_row("" if number else printable(key), printable(value), printable(_listed(labels)))
    return table if table.rows else None


def _listed(labels: Sequence[str]) -> str:
    return "; ".join(labels) if len(labels) <= LONGEST else f"{len(labels)} rows"


def remarks(collection: Collection, now: float | None = None) -> Iterator[str]:
    """What is no complete run, a sentence each."""
    now = time.time() if now is None else now
    for run in collection.unfinished:
        far = f"{run.done} of {run.epochs} epochs" if run.epochs else plural(run.done, "epoch")
        goes_on = ", can go on from its checkpoint" if run.resumable else ""
        ago = max(0, round(now - run.touched))
        yield printable(f"not complete: {run.name}, {far}, last written {_span(ago)} ago{goes_on}")
    for problem in collection.problems:
        yield printable(f"{problem.kind}: {problem.place}: {problem.why}")
    runs = [run for row in collection.rows for run in row.runs if "imported" not in run.provenance]
    if bare := sum(not run.sealed for run in runs):
        yield f"{bare} of {len(runs)} runs have no checksum: whether they are as they were written cannot be told"


def _span(seconds: int) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return plural(seconds, "second")
