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
from everlearn.report.explain import Explanation, Task, read
from everlearn.report.rounding import decimals, signed

KINDS = {
    "learned": "learned, in use; band: 25 to 75 %",
    "proposed": "proposed, not in use yet",
    "preset": "preset, in use (shaded phases)",
}
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
    """Row `first_new` has a rule above it."""

    label: str  # for those who cannot see it
    heads: list[Cell]
    title: str = ""
    aside: str = ""
    rows: list[Row] = field(default_factory=list)
    first_new: int = -1


def page(folder: Path) -> str:
    """A run's explanation as one HTML page that needs nothing else."""
    e = read(folder)
    drawn = {line.kind for line in e.lines}
    return TEMPLATES.get_template("page.html.jinja").render(
        e=e,
        svg=svg,
        words=words,
        kinds=[(kind, text) for kind, text in KINDS.items() if kind in drawn],
        numbers=_numbers(e),
        similarities=list(_similarities(e)),
        by_class=[_by_class(e, task) for task in e.tasks if task.by_class],
        validation=_validation(e),
    )


def _heads(e: Explanation, *first: str) -> list[Cell]:
    return [*map(Cell, first), *(Cell(term, f"t t{e.colour(term)}") for term in e.terms)]


def _bar(e: Explanation, term: str, weight: float, title: str | None = None) -> Cell:
    return Cell(f"{weight:.4f}", f"bar t{e.colour(term)}", f"--w: {100 * min(max(weight, 0), 1):.1f}%", title)


def _numbers(e: Explanation) -> Table:
    """The figure's numbers, for those who would rather read them."""

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
