"""An explanation in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from everlearn.collection.history import PHASES
from everlearn.report import tables, words
from everlearn.report.classes import Classes
from everlearn.report.explain import Explanation, Similarity, Task, read
from everlearn.report.rounding import decimals, signed
from everlearn.report.sheet import Sheet
from everlearn.report.surface import CELLS

WIDEST = 110  # columns of a plot, however wide the screen is
ROWS = 10  # of a table: beyond them the most telling ones
INKS = ("color(166)", "color(33)", "color(134)", "color(64)")  # of terms, legible on light and dark
HARM, HELP = "color(162)", "color(30)"
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
SHADES = "·░▒▓█"
STRIP: dict[str, str] = dict(zip(PHASES, "·╌━"))
KINDS = {"bright": "learned, in use", "faint": "preset, in use", "faint dashes": "proposed"}


def show(folder: Path, console: Console, edited: bool = False) -> None:
    """Print a run's explanation."""
    e = read(folder, edited)
    width = min(console.width, WIDEST)
    say = lambda sentence, style="dim": console.print(Text(sentence, style=style), width=width)
    title = lambda name: console.print(Text("\n" + name, style="bold"))
    beside = lambda parts, gap: console.print(Columns(parts, padding=(0, gap)), width=width)
    console.print(Text(words.heading(e), style="bold"), Text(words.subheading(e), style="dim"), sep="\n")
    for note in e.notes:
        say(note, "")
    title("Accuracy on each task")
    console.print(tables.matrix(e.matrix, ""), width=width)
    if e.remembered:
        _show_classes(e, e.remembered, say, title, lambda table: console.print(table, width=width))
    if not e.relational:
        return
    title("Weights over training")
    say(words.WEIGHTS)
    console.print(_plot(e, width), no_wrap=True)
    console.print(_key(e, width), no_wrap=True)
    say(words.ending(e), "")
    if e.surface:
        title("Response of the Relation Replay Net")
        say(words.RESPONSE)
        beside([_map(e, term) for term in e.surface.weights], 1)
        axes = f"Across: loss of the {e.surface.x} sample; up: loss of the {e.surface.y} sample"
        say(f"{axes}; ◆: mean losses of the last epoch. {words.holding(e.surface)}")
    if any(task.similarity for task in e.tasks):
        title("Which classes disturb which")
        say(words.SIMILARITY)
        beside([_harms(e, task, task.similarity) for task in e.tasks if task.similarity], 3)
    if any(task.by_class for task in e.tasks):
        title("Weights by class")
        say(words.BY_CLASS)
        beside([_by_class(e, task) for task in e.tasks if task.by_class], 3)
    if any(task.validation for task in e.tasks):
        title("Weights on validation samples")
        say(words.validation(e))
        table = tables.plain("after task", *e.terms, numbers=True)
        for task in e.tasks:
            if task.validation:
                table.add_row(str(task.number + 1), *(_weight(e, term, task.validation[term]) for term in e.terms))
        console.print(table, width=width)


def _show_classes(e: Explanation, of: Classes, say: Callable, title: Callable, show: Callable) -> None:
    """What became of each class."""
    title("Accuracy of each class")
    say(words.BY_TASK)
    say(words.forgotten(e), "")
    show(_by_task(e, of))
    if of.lost:
        title("What was forgotten, and to what")
        say(words.LOST)
        show(_lost(e, of))
    if of.memory:
        many = len(of.accuracy) > 2 * ROWS
        title("What the memory holds")
        say(words.MEMORY_BY_TASK if many else words.MEMORY)
        show(_memory(e, of, many))


def _after(e: Explanation, *first: str) -> Sheet:
    """A table with a column for each task that was learned."""
    return tables.plain(*first, *(f"after\n{task + 1}" for task in range(len(e.matrix))), numbers=True)


def _by_task(e: Explanation, of: Classes) -> Sheet:
    """Accuracy of each class; of too many, those that lost most."""
    kept = sorted(sorted(of.accuracy, key=of.loss, reverse=True)[: 2 * ROWS])
    table = _after(e, "class", "learned\nin")
    for label in kept:
        since = of.learned.get(label, len(e.matrix))
        values = (Text(f"{v:.1f}", "" if task >= since else "dim") for task, v in enumerate(of.accuracy[label]))
        table.add_row(e.name(label), str(since + 1) if label in of.learned else "–", *values)
    if missing := len(of.accuracy) - len(kept):
        table.caption = Text(f"{missing} classes not shown: they lost less.", "dim")
    return table


def _lost(e: Explanation, of: Classes) -> Sheet:
    table = tables.plain("class", "taken for", "then", "now", "", numbers=True, labels=2)
    for lost in of.lost[:ROWS]:
        change = Text(signed(lost.now - lost.then, 1), HARM)
        table.add_row(e.name(lost.old), e.name(lost.new), f"{lost.then:.1f}", f"{lost.now:.1f}", change)
    if missing := len(of.lost) - len(table.rows):
        table.caption = Text(f"{missing} smaller ones not shown.", "dim")
    return table


def _memory(e: Explanation, of: Classes, many: bool) -> Sheet:
    """By class, or of too many by the task they were learned in."""
    table = _after(e, "classes" if many else "class")
    if many:
        for task, counts in of.kept_by_task().items():
            table.add_row(f"of task {task + 1}", *map(str, counts))
    else:
        for label in range(max(map(len, of.memory))):
            table.add_row(e.name(label), *(str(counts[label]) if label < len(counts) else "0" for counts in of.memory))
    return table


def _plot(e: Explanation, width: int, height: int = 11) -> Text:
    """Lines of braille dots, two per column and four per row; bands of quantiles as light shade."""
    columns, total, top = max(width - 7, 20), len(e.epochs), e.ceiling
    place = lambda weight: min(max(round((1 - weight / top) * (4 * height - 1)), 0), 4 * height - 1)  # row of dots
    cells: dict[tuple[int, int], tuple[int, str]] = {}
    bands: dict[tuple[int, int], str] = {}
    for run in sorted(e.lines, key=lambda run: ("preset", "proposed", "learned").index(run.kind)):
        faint = f"dim {INKS[e.colour(run.term)]}"
        ink = INKS[e.colour(run.term)] if run.kind == "learned" else faint
        middles = [run.start + i + 0.5 for i in range(len(run.values))]
        first, stop = (2 * round(columns * epoch / total) for epoch in (run.start, run.start + len(run.values)))
        before = place(run.values[0].mean)
        for column in range(first, stop):
            mean, low, high = (
                np.interp((column + 0.5) / (2 * columns) * total, middles, side) for side in zip(*run.values)
            )
            at = place(mean)
            if run.kind != "proposed" or column % 4 < 2:
                for dot in range(min(at, before), max(at, before) + 1) if run.kind == "learned" else (at,):
                    bits, _ = cells.get((dot // 4, column // 2), (0, ""))
                    cells[dot // 4, column // 2] = bits | BRAILLE[dot % 4][column % 2], ink
            before = at
            if run.kind == "learned":
                bands |= {
                    (row, column // 2): faint for row in range(height) if place(high) <= 4 * row + 2 <= place(low)
                }
    edges = {
        round(columns * stretch.start / total): "│" if stretch.opens else "┊"
        for stretch in e.stretches
        if stretch.start
    }
    text = Text()
    for row in range(height):
        label = {0: f"{top:g}", height // 2: f"{top / 2:g}", height - 1: "0"}.get(row, "")
        text.append(f"{label:>4} {'┤' if label else '│'}", "dim")
        for column in range(columns):
            if (row, column) in cells:
                bits, ink = cells[row, column]
                text.append(chr(0x2800 | bits), ink)
            elif (row, column) in bands:
                text.append("░", bands[row, column])
            else:
                text.append(edges.get(column, " "), "dim")
        text.append("\n")
    strip, names = ["╌"] * columns, [" "] * columns
    for stretch in e.stretches:
        first, stop = (round(columns * epoch / total) for epoch in stretch[1:3])
        strip[first:stop] = STRIP[stretch.phase] * (stop - first)
    for task in e.tasks:
        first = round(columns * next(i for i, epoch in enumerate(e.epochs) if epoch.task == task.number) / total)
        name = f"task {task.number + 1}" if columns / len(e.tasks) > 8 else str(task.number + 1)
        names[first : first + len(name)] = name
    return text.append(f"phase {''.join(strip)}\n      {''.join(names)[:columns]}", "dim")


def _key(e: Explanation, width: int) -> Text:
    """What the plot's lines and signs mean, as many to a line as fit."""
    groups = (
        [Text(f"⠒⠒ {term}", INKS[e.colour(term)]) for term in e.terms],
        [Text(f"{sign} {phase}", "dim") for phase, sign in STRIP.items()],
        [Text(f"{ink}: {kind}", "dim") for ink, kind in KINDS.items()],
    )
    lines: list[Text] = []
    for group in groups:
        for number, part in enumerate(group):
            if number and len(lines[-1]) + 2 + len(part) <= width:
                lines[-1].append("  ").append_text(part)
            else:
                lines.append(Text("      ").append_text(part))
    return Text("\n").join(lines)


def _map(e: Explanation, term: str) -> Text:
    """A heat map in five shades, two rows of cells to a line."""
    s, ink, places = e.surface, INKS[e.colour(term)], e.surface.decimals(term)
    low, high = s.spans[term]
    last = next(epoch for epoch in reversed(e.epochs) if epoch.weights or epoch.proposed).loss
    cell = lambda loss, cells: min(int(loss / s.top * cells), cells - 1)
    here = cell(last[s.y], CELLS // 2), cell(last[s.x], CELLS)
    top, margin = f"{s.top:g}", " " * len(f"{s.top:g}")
    text = Text().append(f"{margin} weight of {term}\n", f"bold {ink}")
    for row in reversed(range(CELLS // 2)):
        label = top if row == CELLS // 2 - 1 else "0" if row == 0 else ""
        text.append(f"{label:>{len(top)}}│", "dim")
        for column in range(CELLS):
            weight = (s.weights[term][2 * row][column] + s.weights[term][2 * row + 1][column]) / 2
            shade = SHADES[min(int(s.share(term, weight) * len(SHADES)), len(SHADES) - 1)]
            text.append("◆" if (row, column) == here else shade, "bold" if (row, column) == here else ink)
        text.append("\n")
    text.append(f"{margin}└{'─' * CELLS}\n{margin} 0{f'loss of {s.x}':^{CELLS - 1 - len(top)}}{top}\n", "dim")
    return text.append(f"{margin} · {low:.{places}f}\n{margin} █ {high:.{places}f}\n", ink)


def _harms(e: Explanation, task: Task, s: Similarity) -> Sheet:
    """Old classes by new classes; of too many, those with the strongest harm."""
    places = decimals(s.scale)
    row = lambda c: dict(zip(s.new, s.G[s.classes.index(c)]))
    every = [c for c in s.classes if c not in s.new]
    old = sorted(sorted(every, key=lambda c: min(row(c).values()))[:ROWS])
    new = sorted(list(dict.fromkeys([*(c for *_, c in s.harms()), *s.new]))[:ROWS])
    table = tables.plain("", *map(e.name, new), title=f"Task {task.number + 1}", numbers=True)
    for c in old:
        found = row(c)
        table.add_row(e.name(c), *(Text(signed(found[n], places), HARM if found[n] < 0 else HELP) for n in new))
    missing = [f"{n} {kind}" for kind, n in {"old": len(every) - len(old), "new": len(s.new) - len(new)}.items() if n]
    without = f" Not shown: {words.series(missing)}." if missing else ""
    table.caption = Text(words.disturbance(e, s) + without, "dim")
    return table


def _by_class(e: Explanation, task: Task) -> Sheet:
    """Weights of old classes and, below them, of new ones; of too many, the old ones with the most unusual weights."""
    first, last = e.terms[0], e.terms[-1]
    weight = {label: of[last].mean for label, of in task.by_class.items() if last in of}
    usual = float(np.median(list(weight.values()) or [0]))
    new = [label for label, of in task.by_class.items() if first in of][:ROWS]
    old = [label for label, of in task.by_class.items() if first not in of]
    old = sorted(sorted(old, key=lambda label: abs(weight.get(label, usual) - usual), reverse=True)[:ROWS])
    title = f"Task {task.number + 1}" + (", proposed" if task.proposed else "")
    table = tables.plain("", *e.terms, title=title, numbers=True)
    for label in old + new:
        of = task.by_class[label]
        cells = (_weight(e, term, of[term].mean) if term in of else "" for term in e.terms)
        table.add_row(e.name(label), *cells, end_section=old[-1:] == [label])
    if missing := len(task.by_class) - len(old) - len(new):
        table.caption = Text(f"{missing} classes not shown.", "dim")
    return table


def _weight(e: Explanation, term: str, weight: float) -> Text:
    return Text(f"{weight:.4f}", INKS[e.colour(term)])
