"""What a relational run learned: the weights over training, how the Relation Replay Net answers, and which classes disturb which.

`read` turns a run's folder into plain data; `show` prints them in the terminal, `page` writes them as one HTML page.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.columns import Columns
from rich.console import Console
from rich.table import Table
from rich.text import Text
from safetensors import SafetensorError
from safetensors.torch import load_file

from everlearn.errors import BadInput
from everlearn.weightings.net import RelationReplayNet
from everlearn.weightings.diagnostics import QUANTILES
from everlearn.report import svg, tables
from everlearn.report.svg import Markup, tag
from everlearn.core.state import part
from everlearn.experiments.store import read_lines, read_result

CELLS = 20  # of a response surface, each way
ROWS = 10  # of a table in the terminal: beyond them the most telling ones

# The data -------------------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """A weight over the samples of an epoch: the mean, and the quantiles at 25 and 75 %."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Epoch:
    task: int  # from 0, as all numbers here
    number: int
    phase: str  # preset, warm-up or relation
    loss: dict[str, float]
    weights: dict[str, Spread]  # learned and in use; empty where the preset ones are
    proposed: dict[str, Spread]  # what the Relation Replay Net said on its update steps; empty where it had none


class Stretch(NamedTuple):
    """Epochs `start` to `stop`, counted over the run, in one phase of a task; `opens` the task or not."""

    phase: str
    start: int
    stop: int
    opens: bool


class Line(NamedTuple):
    """One term's weight over consecutive epochs from `start`; `kind` is preset, proposed or learned."""

    term: str
    kind: str
    start: int
    values: tuple[Spread, ...]


@dataclass(frozen=True)
class Surface:
    """The Relation Replay Net's weights over the losses of a new (`x`) and a memory sample (`y`), all else as it was last."""

    x: str
    y: str
    top: float  # both losses run from 0 to here
    losses: tuple[float, ...]  # at the cells' centres
    held: dict[str, float]  # losses of other terms
    norms: dict[str, float]
    weights: dict[str, list[list[float]]]  # by term: a row for each loss y, a column for each loss x

    @functools.cached_property
    def spans(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest weight of each term."""
        return {term: (min(map(min, grid)), max(map(max, grid))) for term, grid in self.weights.items()}

    def share(self, term: str, weight: float) -> float:
        """Where in its term's span a weight lies, 0 to 1."""
        low, high = self.spans[term]
        return (weight - low) / (high - low) if high > low else 0.5

    def decimals(self, term: str) -> int:
        """How many it takes to tell the weights of a term apart."""
        low, high = self.spans[term]
        return decimals(high - low, 2, 7)


@dataclass(frozen=True)
class Similarity:
    """Mean inner products of gradients: a row for each class in the memory, a column for each new class. Below 0: harm."""

    classes: tuple[int, ...]
    new: tuple[int, ...]
    G: tuple[tuple[float, ...], ...]

    def harms(self) -> list[tuple[float, int, int]]:
        """(G, old class, new class) wherever learning the new one harms the old one, worst first."""
        rows = ((old, row) for old, row in zip(self.classes, self.G) if old not in self.new)
        return sorted((g, old, new) for old, row in rows for new, g in zip(self.new, row) if g < 0)

    @functools.cached_property
    def scale(self) -> float:
        """The strongest similarity between an old and a new class, to measure the others by."""
        of = lambda keep: [abs(g) for c, row in zip(self.classes, self.G) if keep(c) for g in row if math.isfinite(g)]
        return max(of(lambda c: c not in self.new) or of(lambda c: True), default=0.0) or 1.0


@dataclass(frozen=True)
class Task:
    """What is known at the end of a task."""

    number: int
    by_class: dict[int, dict[str, Spread]]  # weights of the last epoch, by label and term
    proposed: bool  # they were proposed, not in use
    validation: dict[str, float]  # average weights on validation samples; empty where the net had learned nothing yet
    old: str  # where the old ones of these samples came from: validation or memory
    similarity: Similarity | None


@dataclass(frozen=True)
class Explanation:
    run: str
    method: str
    stream: str
    settings: dict[str, int]  # memory, epochs and seed
    accuracy: float  # ACC of Class-IL, in %
    terms: tuple[str, ...]  # new samples' first
    classes: tuple[str, ...]  # names by label
    preset: tuple[float, ...]
    epochs: tuple[Epoch, ...]
    tasks: tuple[Task, ...]
    surface: Surface | None
    notes: tuple[str, ...]  # what there is not to see, and why

    def name(self, label: int) -> str:
        return self.classes[label] if label < len(self.classes) else str(label)

    def colour(self, term: str) -> int:
        """0 for new samples, 1 for the memory, then the terms between them: the same in every figure."""
        at = self.terms.index(term)
        return 0 if at == 0 else 1 if at == len(self.terms) - 1 else 1 + at

    @functools.cached_property
    def stretches(self) -> list[Stretch]:
        found, start, task = [], 0, None
        for (of, phase), group in itertools.groupby(self.epochs, key=lambda epoch: (epoch.task, epoch.phase)):
            stop = start + len(list(group))
            found.append(Stretch(phase, start, stop, of != task))
            start, task = stop, of
        return found

    @functools.cached_property
    def ceiling(self) -> float:
        """No weight that is drawn is above it."""
        return max(1.0, *(max(value.mean, value.high) for line in self.lines for value in line.values))

    @functools.cached_property
    def lines(self) -> list[Line]:
        found = []
        for (phase, start, stop, _), (term, preset) in itertools.product(self.stretches, zip(self.terms, self.preset)):
            of = self.epochs[start:stop]
            if phase == "relation":
                found.append(Line(term, "learned", start, tuple(epoch.weights[term] for epoch in of)))
            else:
                found.append(Line(term, "preset", start, (Spread(preset, preset, preset),) * len(of)))
            if phase == "warm-up":
                found.append(Line(term, "proposed", start, tuple(epoch.proposed[term] for epoch in of)))
        return found


def read(folder: Path) -> Explanation:
    """A run's folder as plain data, or a sentence on why there is nothing to explain."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a run's folder: no folder is there")
    result = read_result(folder)
    with _blaming(folder / "result.json"):
        settings, measured = result["experiment"], result["class_il"]
        method, stream = _printable(settings["method"]), _printable(settings["stream"])
        numbers = {key: int(settings[key]) for key in ("memory", "epochs", "seed")}
        tasks, accuracy = len(measured["matrix"]), float(measured["acc"])
        classes = tuple(map(_printable, result.get("classes", ())))
        preset = tuple(map(float, settings["options"].get("weights", ())))
    with _blaming(folder / "metrics.jsonl"):
        records = read_lines(folder)
        epochs = [record for record in records if record["event"] == "epoch"]
        reviews = {record["task"]: record for record in records if record["event"] == "review"}
        if len(epochs) != tasks * numbers["epochs"]:
            raise ValueError("records are missing")
        if not any("phase" in epoch for epoch in epochs):
            raise BadInput(
                f"{folder.name} is a run of {method}, whose weights are not learned; "
                "only relational methods have weights to explain (everlearn run rer)"
            )
        terms = tuple(epochs[0]["loss"])
        known = tuple(map(_epoch, epochs))
        of_task = lambda number: [epoch for epoch in epochs if epoch["task"] == number]
        ends = tuple(_task(number, of_task(number), reviews.get(number, {})) for number in range(tasks))
        surface = _surface(folder, epochs, terms)
        found = Explanation(
            _printable(folder.resolve().name),
            method,
            stream,
            numbers,
            accuracy,
            terms,
            classes,
            preset or (1.0,) * len(terms),
            known,
            ends,
            surface,
            tuple(_notes(known, tasks, surface)),
        )
        found.lines  # worked out now, so that a weight that is not there shows here
    return found


@contextlib.contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Whatever does not add up inside is the fault of this file."""
    try:
        yield
    except BadInput:
        raise
    except (
        OSError,
        SafetensorError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        ValueError,
        OverflowError,
        RuntimeError,
    ):
        raise BadInput(f"{file} is missing or damaged; run the experiment again with --fresh") from None


def _epoch(record: dict) -> Epoch:
    spreads = lambda key: {term: _spread(of) for term, of in record.get(key, {}).items()}
    if record["phase"] not in STRIP:
        raise ValueError("no such phase")
    return Epoch(
        record["task"], record["epoch"], record["phase"], record["loss"], spreads("weights"), spreads("proposed")
    )


def _spread(record: dict) -> Spread:
    at = lambda quantile: record["quantiles"][QUANTILES.index(quantile)]
    return Spread(float(record["mean"]), float(at(0.25)), float(at(0.75)))


def _task(number: int, epochs: list[dict], review: dict) -> Task:
    last = epochs[-1]
    weights = last.get("weights") or last.get("proposed") or {}
    by_class: dict[int, dict[str, Spread]] = {}
    for term, of in weights.items():
        for label, record in of["classes"].items():
            by_class.setdefault(int(label), {})[term] = _spread(record)
    validation, found = review.get("validation") or {}, review.get("similarity")
    similarity = found and Similarity(
        tuple(found["classes"]), tuple(found["new"]), tuple(tuple(map(float, row)) for row in found["G"])
    )
    return Task(
        number,
        {label: by_class[label] for label in sorted(by_class) if label >= 0},
        "weights" not in last,
        validation.get("weights", {}),
        validation.get("old", ""),
        similarity,
    )


def _surface(folder: Path, epochs: list[dict], terms: tuple[str, ...]) -> Surface | None:
    """The net's answers over a grid of losses; None if no norms were written down to hold on to."""
    seen = [epoch for epoch in epochs if "norms" in epoch]
    if not seen:
        return None
    x, y, last = terms[0], terms[-1], seen[-1]
    highest = max(epoch["loss"][term] for epoch in seen for term in (x, y)) or 1.0
    step = svg.ticks(highest)[1]
    top = step * math.ceil(highest / step - 1e-9)
    centres = (torch.arange(CELLS) + 0.5) * (top / CELLS)
    losses = torch.tensor([last["loss"][term] for term in terms]).repeat(CELLS, CELLS, 1)  # [y, x, k]
    losses[..., 0], losses[..., -1] = centres, centres[:, None]
    norms = torch.tensor([last["norms"][term] for term in terms]).expand_as(losses)
    with torch.no_grad():
        weights = net(folder)(losses, norms)
    return Surface(
        x,
        y,
        top,
        tuple(centres.tolist()),
        {term: last["loss"][term] for term in terms[1:-1]},
        last["norms"],
        {term: weights[..., j].tolist() for j, term in enumerate(terms)},
    )


def net(folder: Path) -> RelationReplayNet:
    """The Relation Replay Net as the run left it."""
    file = Path(folder) / "weighting.safetensors"
    with _blaming(file):
        state = {name: tensor.float() for name, tensor in part(load_file(file), "rrn").items()}
        hidden, terms = state["losses.weight"].shape
        found = RelationReplayNet(terms, hidden)
        found.load_state_dict(state)
    return found


def _notes(epochs: Sequence[Epoch], tasks: int, surface: Surface | None) -> Iterator[str]:
    phases = {epoch.phase for epoch in epochs}
    if phases == {"preset"}:
        alone = "the run has one task only, and so no old one to relate to"
        why = alone if tasks == 1 else "no task was late enough for it (relation_from_task)"
        yield (
            f"The relation was never active: {why}. The preset weights were in use throughout, "
            "and the Relation Replay Net learned nothing."
        )
    elif "relation" not in phases:
        yield (
            "The warm-up lasted for all epochs of every task: the preset weights were in use throughout, "
            "and the learned ones are proposals."
        )
    elif tasks == 1:
        yield "The run has one task only: there are no old classes to disturb."
    if surface is None and phases != {"preset"}:
        yield "No logit norms were written down for this weighting, so there is nothing to hold on to for a response surface."


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in str(text))


# Words and numbers both forms share -----------------------------------------------------------------------------------

WEIGHTS = (
    "How much a new and a memory sample count in the training loss, epoch by epoch: 1 counts in full, 0 not at all."
)
RESPONSE = "What the Relation Replay Net, as it is at the end, answers to a pair of losses; each map's shades run over its own range."
SIMILARITY = (
    "Mean inner product of an old class's (row) and a new class's (column) gradients: "
    "below 0, learning the new class disturbs the old one."
)
BY_CLASS = "Mean weights of each class's samples in the last epoch of each task; a class has no weight as new once its task is over."
VALIDATION = "Average weights over samples not trained on, pairs of a new and an old task's, at the end of each task."
RECORDED = " Old samples are the memory's here: it alone has recorded logits."


def decimals(size: float, least: int = 0, most: int = 6) -> int:
    """How many decimals show three digits of a number of this size."""
    return most if size <= 0 else min(max(2 - math.floor(math.log10(size)), least), most)


def signed(value: float, places: int) -> str:
    return f"{value:+.{places}f}".replace("-", "−")


def series(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def heading(e: Explanation) -> str:
    return f"{e.method} on {e.stream}"


def subheading(e: Explanation) -> str:
    memory, epochs, seed = e.settings.values()
    return f"memory {memory}, {epochs} epoch{'' if epochs == 1 else 's'} a task, seed {seed}, Class-IL ACC {e.accuracy:.1f} %"


def ending(e: Explanation) -> str:
    """The weights in one sentence."""
    last = next((epoch for epoch in reversed(e.epochs) if epoch.weights or epoch.proposed), None)
    if last is None:
        return "Preset: " + series(f"{term} {weight:g}" for term, weight in zip(e.terms, e.preset)) + "."
    of = series(f"{value.mean:.4f} ({term})" for term, value in (last.weights or last.proposed).items())
    return f"At the end of task {last.task + 1} the mean weights {'are' if last.weights else 'proposed are'} {of}."


def holding(s: Surface) -> str:
    norms = series(f"{norm:.3g} ({term})" for term, norm in s.norms.items())
    losses = "".join(f", the {term} loss at {loss:.3g}" for term, loss in s.held.items())
    return f"Logit norms held at {norms}{losses}: their last means."


def disturbance(e: Explanation, s: Similarity) -> str:
    """The worst of a task in one sentence."""
    worst = s.harms()
    if not worst:
        return "No old class is disturbed." if set(s.classes) - set(s.new) else "No old class is in the memory."
    g, old, new = worst[0]
    return f"{e.name(new)} disturbs {e.name(old)} most ({signed(g, decimals(s.scale))})."


def validation(e: Explanation) -> str:
    return VALIDATION + (RECORDED if any(task.validation and task.old == "memory" for task in e.tasks) else "")


# In the terminal ------------------------------------------------------------------------------------------------------

INKS = ("color(166)", "color(33)", "color(134)", "color(64)")  # of terms, legible on light and dark
HARM, HELP = "color(162)", "color(30)"
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
SHADES = "·░▒▓█"
STRIP = {"preset": "·", "warm-up": "╌", "relation": "━"}


def show(folder: Path, console: Console) -> None:
    """Print a run's explanation."""
    e = read(folder)
    width = min(console.width, 110)
    say = lambda sentence, style="dim": console.print(Text(sentence, style=style), width=width)
    title = lambda words: console.print(Text("\n" + words, style="bold"))
    console.print(Text(heading(e), style="bold"), Text(subheading(e), style="dim"), sep="\n")
    for note in e.notes:
        say(note, "")
    title("Weights over training")
    say(WEIGHTS)
    console.print(_plot(e, width), no_wrap=True, crop=True)
    say(ending(e), "")
    if e.surface:
        title("Response of the Relation Replay Net")
        say(RESPONSE)
        console.print(Columns([_map(e, term) for term in e.terms], padding=(0, 1)), width=width)
        x, y = e.surface.x, e.surface.y
        say(
            f"Across: loss of the {x} sample; up: loss of the {y} sample; ◆: mean losses of the last epoch. {holding(e.surface)}"
        )
    if any(task.similarity for task in e.tasks):
        title("Which classes disturb which")
        say(SIMILARITY)
        console.print(
            Columns([_harm_table(e, task, width) for task in e.tasks if task.similarity], padding=(0, 3)), width=width
        )
    if any(task.by_class for task in e.tasks):
        title("Weights by class")
        say(BY_CLASS)
        console.print(
            Columns([_class_table(e, task) for task in e.tasks if task.by_class], padding=(0, 3)), width=width
        )
    if any(task.validation for task in e.tasks):
        title("Weights on validation samples")
        say(validation(e))
        table = tables.plain("after task", *e.terms, numbers=True)
        for task in e.tasks:
            if task.validation:
                table.add_row(
                    str(task.number + 1),
                    *(Text(f"{task.validation[term]:.4f}", style=INKS[e.colour(term)]) for term in e.terms),
                )
        console.print(table)


def _plot(e: Explanation, width: int, height: int = 11) -> Text:
    """Lines of braille dots, two a column and four a row; bands of quantiles as light shade."""
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
        words = f"task {task.number + 1}" if columns / len(e.tasks) > 8 else str(task.number + 1)
        names[first : first + len(words)] = words
    text.append(f"phase {''.join(strip)}\n      {''.join(names)[:columns]}\n      ", "dim")
    for term in e.terms:
        text.append(f"⠒⠒ {term}  ", INKS[e.colour(term)])
    text.append("  " + "  ".join(f"{sign} {phase}" for phase, sign in STRIP.items()) + "\n", "dim")
    return text.append("      bright: learned, in use; faint: preset, in use; faint dashes: proposed", "dim")


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


def _harm_table(e: Explanation, task: Task, width: int) -> Table:
    """Old classes by new classes; of too many, those with the strongest harm."""
    s = task.similarity
    places, room = decimals(s.scale), max(1, (width - 20) // 11)
    row = lambda c: dict(zip(s.new, s.G[s.classes.index(c)]))
    every = [c for c in s.classes if c not in s.new]
    old = sorted(sorted(every, key=lambda c: min(row(c).values()))[:ROWS])
    new = sorted(list(dict.fromkeys([*(c for *_, c in s.harms()), *s.new]))[:room])
    table = tables.plain("", *(_short(e.name(c), 9) for c in new), title=f"Task {task.number + 1}", numbers=True)
    for c in old:
        table.add_row(
            _short(e.name(c)), *(Text(signed(row(c)[n], places), style=HARM if row(c)[n] < 0 else HELP) for n in new)
        )
    missing = [f"{n} {kind}" for kind, n in {"old": len(every) - len(old), "new": len(s.new) - len(new)}.items() if n]
    table.caption = Text(disturbance(e, s) + (f" Not shown: {series(missing)}." if missing else ""), style="dim")
    table.caption_justify = "left"
    return table


def _class_table(e: Explanation, task: Task) -> Table:
    """Weights of old classes and, below them, of the new ones; of too many, the old ones with the most unusual weights."""
    first, last = e.terms[0], e.terms[-1]
    weight = {label: of[last].mean for label, of in task.by_class.items() if last in of}
    usual = float(np.median(list(weight.values()) or [0]))
    new = [label for label, of in task.by_class.items() if first in of][:ROWS]
    old = [label for label, of in task.by_class.items() if first not in of]
    old = sorted(sorted(old, key=lambda label: abs(weight.get(label, usual) - usual), reverse=True)[:ROWS])
    table = tables.plain(
        "", *e.terms, title=f"Task {task.number + 1}" + (", proposed" if task.proposed else ""), numbers=True
    )
    for label in old + new:
        of = task.by_class[label]
        cells = (Text(f"{of[term].mean:.4f}", style=INKS[e.colour(term)]) if term in of else "" for term in e.terms)
        table.add_row(_short(e.name(label)), *cells, end_section=old[-1:] == [label])
    if missing := len(task.by_class) - len(old) - len(new):
        table.caption = Text(f"{missing} classes not shown.", style="dim")
    return table


def _short(name: str, most: int = 14) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


# As a page ------------------------------------------------------------------------------------------------------------


def page(folder: Path) -> str:
    """A run's explanation as one HTML page that needs nothing else."""
    e = read(folder)
    parts: list[str] = [
        tag("h1", heading(e)),
        tag("p", subheading(e), class_="soft"),
        *(tag("p", note, class_="note") for note in e.notes),
    ]

    def section(title: str, lead: str, caption: str, *content: str) -> None:
        words = [tag("p", lead)] if lead else []
        parts.extend([tag("h2", title), *words, tag("figure", *content, tag("figcaption", caption))])

    section("Weights over training", ending(e), WEIGHTS, svg.legend(e), _box("Weights over training", svg.weights(e)))
    parts.append(_numbers(e))
    if e.surface:
        maps = (tag("div", svg.response(e, term), class_="scroll") for term in e.terms)
        caption = RESPONSE + " Dots: the mean losses of each epoch it learned in; ring: the last."
        section(
            "Response of the Relation Replay Net", holding(e.surface), caption, tag("div", *maps, class_="row maps")
        )
    if shown := [_harm_box(e, task) for task in e.tasks if task.similarity]:
        kinds = {"harm": "below 0: disturbs", "help": "above 0: helps"}
        key = tag(
            "div",
            *(tag("span", tag("i", class_=f"swatch {kind}"), words) for kind, words in kinds.items()),
            class_="legend",
        )
        caption = SIMILARITY + " Below the rule: the new classes themselves."
        section("Which classes disturb which", "", caption, key, tag("div", *shown, class_="row"))
    if shown := [_class_box(e, task) for task in e.tasks if task.by_class]:
        section("Weights by class", "", BY_CLASS, tag("div", *shown, class_="row"))
    if rows := [
        [str(task.number + 1), *(_bar(e, term, task.validation[term]) for term in e.terms)]
        for task in e.tasks
        if task.validation
    ]:
        box = _box("Weights on validation samples", _table(["after task", *_terms(e)], rows))
        section("Weights on validation samples", "", validation(e), tag("div", box, class_="row"))
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        tag("title", f"{heading(e)}: weights explained"),
        tag("style", Markup(svg.STYLE)),
    )
    body = tag("main", *parts, tag("footer", f"Run {e.run}", class_="soft"))
    return "<!DOCTYPE html>\n" + tag("html", tag("head", *head), tag("body", body), lang="en") + "\n"


def _box(label: str, content: Markup) -> Markup:
    """A frame that scrolls, by keyboard too, where the content is larger than the window."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: Markup | None = None, first_new: int = -1
) -> Markup:
    """Headings and cells that are `Markup` are elements already; row `first_new` has a rule above it."""
    whole = lambda cell, kind, **attributes: cell if isinstance(cell, Markup) else tag(kind, cell, **attributes)
    top = tag("thead", tag("tr", *(whole(cell, "th", scope="col") for cell in head)))
    ruled = lambda i: {"class_": "first-new"} if i == first_new else {}
    body = (
        tag("tr", tag("th", first, scope="row", title=first), *(whole(cell, "td") for cell in cells), **ruled(i))
        for i, (first, *cells) in enumerate(rows)
    )
    return tag("table", *([caption] if caption else []), top, tag("tbody", *body))


def _terms(e: Explanation) -> list[Markup]:
    return [tag("th", term, scope="col", class_=f"t t{e.colour(term)}") for term in e.terms]


def _bar(e: Explanation, term: str, weight: float, **more: str) -> Markup:
    return tag(
        "td",
        f"{weight:.4f}",
        class_=f"bar t{e.colour(term)}",
        style=f"--w: {100 * min(max(weight, 0), 1):.1f}%",
        **more,
    )


def _harm_box(e: Explanation, task: Task) -> Markup:
    s = task.similarity
    places = decimals(s.scale)
    alpha = lambda g: 0.06 + 0.49 * min(abs(g) / s.scale, 1) ** 0.5 if math.isfinite(g) else 0

    def cell(g: float, old: int, new: int) -> Markup:
        words = f"{e.name(old)} and {e.name(new)}: {signed(g, places + 2)}"
        return tag(
            "td", signed(g, places), class_="harm" if g < 0 else "help", style=f"--a: {alpha(g):.2f}", title=words
        )

    rows = [[e.name(c), *(cell(g, c, n) for n, g in zip(s.new, row))] for c, row in zip(s.classes, s.G)]
    first_new = next((i for i, c in enumerate(s.classes) if c in s.new), -1)
    named = ", ".join(map(e.name, s.new)) if len(s.new) < 5 else f"{len(s.new)} new classes"
    caption = tag("caption", f"Task {task.number + 1}: {named}", tag("small", disturbance(e, s)))
    return _box(
        f"Similarities of task {task.number + 1}", _table(["class", *map(e.name, s.new)], rows, caption, first_new)
    )


def _class_box(e: Explanation, task: Task) -> Markup:
    cell = lambda term, value: _bar(e, term, value.mean, title=f"25 to 75 %: {value.low:.4f} to {value.high:.4f}")
    rows = [
        [e.name(label), *(cell(term, of[term]) if term in of else "" for term in e.terms)]
        for label, of in task.by_class.items()
    ]
    first_new = next((i for i, of in enumerate(task.by_class.values()) if e.terms[0] in of), -1)
    aside = [tag("small", "proposed; the preset weights were in use")] if task.proposed else []
    table = _table(["class", *_terms(e)], rows, tag("caption", f"Task {task.number + 1}", *aside), first_new)
    return _box(f"Weights by class of task {task.number + 1}", table)


def _numbers(e: Explanation) -> Markup:
    """The figure's numbers, for those who would rather read them."""

    def word(epoch: Epoch, term: str) -> str:
        value = (epoch.weights or epoch.proposed).get(term)
        return (
            f"{value.mean:.4f} ({value.low:.4f} to {value.high:.4f})" if value else f"{e.preset[e.terms.index(term)]:g}"
        )

    rows = [
        [str(epoch.task + 1), str(epoch.number + 1), epoch.phase, *(word(epoch, term) for term in e.terms)]
        for epoch in e.epochs
    ]
    box = _box("Weights of each epoch", _table(["task", "epoch", "phase", *_terms(e)], rows))
    return tag("details", tag("summary", "The numbers: mean (25 to 75 %); proposed ones in a warm-up"), box)
