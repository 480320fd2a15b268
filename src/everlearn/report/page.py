"""An explanation as one HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from everlearn.collection.history import Epoch
from everlearn.report import svg, words
from everlearn.report.classes import Classes
from everlearn.report.explain import Explanation, Task, read
from everlearn.report.rounding import decimals, signed

KINDS = {
    "learned": "learned, in use; band: 25 to 75 %",
    "proposed": "proposed, not in use yet",
    "preset": "preset, in use (shaded phases)",
}
MOST = 60  # rows in the table of what was forgotten
TEMPLATES = Environment(
    loader=FileSystemLoader(svg.TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class Cell(NamedTuple):
    """A text and the attributes of the element around it; None where it has none."""

    text: str
    kind: str | None = None
    style: str | None = None
    title: str | None = None


class Row(NamedTuple):
    name: str
    cells: list[Cell]


@dataclass
class Table:
    """A table of the page. There is a line above row `first_new`."""

    label: str  # for those who cannot see it
    heads: list[Cell]
    title: str = ""
    aside: str = ""
    rows: list[Row] = field(default_factory=list)
    first_new: int = -1


def page(folder: Path, edited: bool = False) -> str:
    """A run's explanation as one HTML page that needs nothing else."""
    e = read(folder, edited)
    of = e.remembered
    drawn = {line.kind for line in e.lines}
    return TEMPLATES.get_template("page.html.jinja").render(
        e=e,
        svg=svg,
        words=words,
        kinds=[(kind, text) for kind, text in KINDS.items() if kind in drawn],
        matrix=_matrix(e),
        by_task=_by_task(e, of) if of else None,
        lost=_lost(e, of) if of and of.lost else None,
        memory=_memory(e, of) if of and of.memory else None,
        numbers=_numbers(e),
        similarities=list(_similarities(e)),
        by_class=[_by_class(e, task) for task in e.tasks if task.by_class],
        validation=_validation(e),
    )


def _shade(value: float, of: float = 100) -> str:
    """How strong a cell's colour is, by how much of the whole it has."""
    return f"--a: {0.6 * min(max(value / of, 0), 1) if of else 0:.2f}"


def _after(e: Explanation, label: str, *first: str) -> Table:
    """A table with a column for each task that was learned."""
    return Table(label, [*map(Cell, first), *(Cell(f"after task {task + 1}") for task in range(len(e.matrix)))])


def _matrix(e: Explanation) -> Table:
    heads = [Cell("after task"), *(Cell(f"task {task + 1}") for task in range(len(e.matrix[0])))]
    table = Table("Accuracy on each task", heads)
    for number, row in enumerate(e.matrix):
        learned = lambda task, number=number: len(e.matrix) == 1 or task <= number
        cells = [Cell(f"{v:.1f}", "heat" if learned(task) else "soft", _shade(v)) for task, v in enumerate(row)]
        table.rows.append(Row(str(number + 1) if len(e.matrix) > 1 else "all", cells))
    return table


def _by_task(e: Explanation, of: Classes) -> Table:
    table = _after(e, "Accuracy of each class", "class", "learned in task")
    for label, values in of.accuracy.items():
        since = of.learned.get(label, len(e.matrix))
        cells = [Cell(f"{v:.1f}", "heat" if task >= since else "soft", _shade(v)) for task, v in enumerate(values)]
        table.rows.append(Row(e.name(label), [Cell(str(since + 1) if label in of.learned else "–"), *cells]))
    return table


def _lost(e: Explanation, of: Classes) -> Table:
    heads = ("class", "taken for", "when learned", "at the end", "more")
    table = Table("What was forgotten, and to what", [*map(Cell, heads)])
    for lost in of.lost[:MOST]:
        change = lost.now - lost.then
        cells = [Cell(f"{lost.then:.1f}"), Cell(f"{lost.now:.1f}"), Cell(signed(change, 1), "lost", _shade(change))]
        table.rows.append(Row(e.name(lost.old), [Cell(e.name(lost.new)), *cells]))
    if missing := len(of.lost) - len(table.rows):
        table.title, table.aside = "The largest", f"{missing} smaller ones are not shown"
    return table


def _memory(e: Explanation, of: Classes) -> Table:
    table = _after(e, "What the memory holds", "class")
    most = max(map(max, of.memory), default=0)
    for label in range(max(map(len, of.memory))):
        counts = [counts[label] if label < len(counts) else 0 for counts in of.memory]
        table.rows.append(Row(e.name(label), [Cell(str(count), "heat", _shade(count, most)) for count in counts]))
    return table


def _heads(e: Explanation, *first: str) -> list[Cell]:
    return [*map(Cell, first), *(Cell(term, f"t t{e.colour(term)}") for term in e.terms)]


def _bar(e: Explanation, term: str, weight: float, title: str | None = None) -> Cell:
    return Cell(f"{weight:.4f}", f"bar t{e.colour(term)}", f"--w: {100 * min(max(weight, 0), 1):.1f}%", title)


def _numbers(e: Explanation) -> Table:
    """The weights of each epoch, which the figure draws, as numbers."""

    def cell(epoch: Epoch, term: str) -> Cell:
        value = (epoch.weights or epoch.proposed).get(term)
        if value is None:
            return Cell(f"{e.preset[e.terms.index(term)]:g}")
        return Cell(f"{value.mean:.4f} ({value.low:.4f} to {value.high:.4f})")

    table = Table("Weights of each epoch", _heads(e, "task", "epoch", "phase"))
    for epoch in e.epochs:
        cells = [Cell(str(epoch.number + 1)), Cell(epoch.phase), *(cell(epoch, term) for term in e.terms)]
        table.rows.append(Row(str(epoch.task + 1), cells))
    return table


def _similarities(e: Explanation) -> Iterator[Table]:
    for task in e.tasks:
        if (s := task.similarity) is None:
            continue
        places = decimals(s.scale)
        alpha = lambda g: 0.06 + 0.49 * min(abs(g) / s.scale, 1) ** 0.5 if math.isfinite(g) else 0
        named = ", ".join(map(e.name, s.new)) if len(s.new) < 5 else f"{len(s.new)} new classes"
        table = Table(f"Similarities of task {task.number + 1}", [Cell("class"), *(Cell(e.name(c)) for c in s.new)])
        table.title, table.aside = f"Task {task.number + 1}: {named}", words.disturbance(e, s)
        table.first_new = next((i for i, c in enumerate(s.classes) if c in s.new), -1)
        for old, row in zip(s.classes, s.G):
            cells = [
                Cell(
                    signed(g, places),
                    "harm" if g < 0 else "help",
                    f"--a: {alpha(g):.2f}",
                    f"{e.name(old)} and {e.name(new)}: {signed(g, places + 2)}",
                )
                for new, g in zip(s.new, row)
            ]
            table.rows.append(Row(e.name(old), cells))
        yield table


def _by_class(e: Explanation, task: Task) -> Table:
    table = Table(f"Weights by class of task {task.number + 1}", _heads(e, "class"), f"Task {task.number + 1}")
    if task.proposed:
        table.aside = "proposed; the preset weights were in use"
    table.first_new = next((i for i, of in enumerate(task.by_class.values()) if e.terms[0] in of), -1)
    for label, of in task.by_class.items():
        between = {term: f"25 to 75 %: {value.low:.4f} to {value.high:.4f}" for term, value in of.items()}
        cells = [_bar(e, term, of[term].mean, between[term]) if term in of else Cell("") for term in e.terms]
        table.rows.append(Row(e.name(label), cells))
    return table


def _validation(e: Explanation) -> Table:
    table = Table("Weights on validation samples", _heads(e, "after task"))
    for task in e.tasks:
        if task.validation:
            cells = [_bar(e, term, task.validation[term]) for term in e.terms]
            table.rows.append(Row(str(task.number + 1), cells))
    return table
