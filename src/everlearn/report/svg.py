"""The figures of an explanation, drawn as SVG, so that `explain` needs no more packages than a run does.

Colours are CSS variables, so one drawing serves light and dark pages. Every string that is not `Markup` is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from everlearn.report.rounding import ticks

if TYPE_CHECKING:
    from everlearn.collection.history import Spread
    from everlearn.report.explain import Explanation

TEMPLATES = Path(__file__).with_name("templates")


def tag(name: str, /, *children: str, **attributes: str | float) -> Markup:
    """An element. An attribute's trailing underscore is dropped (`class_`), others become hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_written(value))}"' for key, value in attributes.items()
    )
    inner = "".join(child if isinstance(child, Markup) else html.escape(child) for child in children)
    return Markup(f"<path{written}/>" if name == "path" else f"<{name}{written}>{inner}</{name}>")


def _written(value: str | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(x: float, y: float, words: str, anchor: str = "middle", **attributes: str | float) -> Markup:
    return tag("text", words, x=float(x), y=float(y), text_anchor=anchor, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("path", d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", class_=kind)


def drawing(key: str, width: int, height: int, kind: str, title: str, description: str, *children: str) -> Markup:
    """A figure that says what it is to those who cannot see it."""
    return tag(
        "svg",
        tag("title", title, id=f"{key}-title"),
        tag("desc", description, id=f"{key}-desc"),
        *children,
        viewBox=f"0 0 {width} {height}",
        class_=kind,
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
    )


def weights(e: Explanation) -> Markup:
    """The weight of each term over the epochs of all tasks."""
    left, top, wide, high = 52, 44, 760, 250
    ceiling, total = e.ceiling, len(e.epochs)
    x, y = (lambda epoch: left + wide * epoch / total), (lambda weight: top + high * (1 - weight / ceiling))
    parts: list[str] = []
    for stretch in e.stretches:
        x1, x2 = x(stretch.start), x(stretch.stop)
        parts.append(tag("rect", x=x1, y=top, width=x2 - x1, height=high, class_=stretch.phase))
        if x2 - x1 > 7 * len(stretch.phase):
            parts.append(text((x1 + x2) / 2, top - 6, stretch.phase))
        if stretch.start:
            parts.append(
                line(x1, top - 34 if stretch.opens else top, x1, top + high, "edge" if stretch.opens else "edge in")
            )
    for weight in ticks(ceiling):
        parts += [
            line(left, y(weight), left + wide, y(weight), "grid"),
            text(left - 8, y(weight) + 4, f"{weight:g}", "end"),
        ]
    step = max(1, round(ticks(total, 10)[1]))
    parts += [text(x(epoch), top + high + 18, str(epoch)) for epoch in range(0, total + 1, step)]
    room = wide / len(e.tasks)
    for task in e.tasks:
        starts = [i for i, epoch in enumerate(e.epochs) if epoch.task == task.number]
        if room > 24 or task.number % 2 == 0:
            words = f"task {task.number + 1}" if room > 48 else str(task.number + 1)
            parts.append(text(x(starts[0] + len(starts) / 2), top - 24, words, class_="strong"))
    for run in sorted(e.lines, key=lambda run: run.kind != "preset"):
        across = [run.start, *(run.start + i + 0.5 for i in range(len(run.values))), run.start + len(run.values)]
        values = (run.values[0], *run.values, run.values[-1])
        points = lambda side, across=across, values=values: [
            f"{x(epoch):.1f} {y(getattr(value, side)):.1f}" for epoch, value in zip(across, values)
        ]
        colour = f"t{e.colour(run.term)}"
        if run.kind != "preset":
            parts.append(
                tag("path", d=f"M{'L'.join(points('high') + points('low')[::-1])}Z", class_=f"{colour} band {run.kind}")
            )
        parts.append(tag("path", d="M" + "L".join(points("mean")), class_=f"{colour} line {run.kind}"))
    final = {
        run.term: run.values[-1].mean
        for run in e.lines
        if run.start + len(run.values) == total and run.kind != "proposed"
    }
    for at, (term, weight) in zip(spaced([y(weight) for weight in final.values()], 15), final.items()):
        parts.append(text(left + wide + 8, at + 4, f"{term} {weight:.4f}", "start", class_=f"t{e.colour(term)} named"))
    for i, epoch in enumerate(e.epochs):
        words = [f"task {epoch.task + 1}, epoch {epoch.number + 1}: {epoch.phase}"]
        for term, value in (epoch.weights or epoch.proposed).items():
            words.append(f"{term} {_spread(value)}{'' if epoch.weights else ' proposed'}")
        parts.append(
            tag("rect", tag("title", "\n".join(words)), x=x(i), y=top, width=wide / total, height=high, class_="hit")
        )
    parts += [
        line(left, top, left, top + high, "axis"),
        line(left, top + high, left + wide, top + high, "axis"),
        text(left + wide / 2, top + high + 38, "epochs since the start of the run"),
        text(0, 0, "weight in the training loss", transform=f"translate(13 {top + high / 2}) rotate(-90)"),
    ]
    ends = ", ".join(f"{term} {weight:.4f}" for term, weight in final.items())
    description = f"Lines of mean weights over epochs with bands from the 25 to the 75 % quantile; at the end: {ends}."
    return drawing("weights", left + wide + 118, top + high + 46, "wide", "Weights over training", description, *parts)


def sample(kind: str, band: bool = False) -> Markup:
    """A short line as the figure draws it, for a legend."""
    shapes = [tag("rect", width=30, height=12, class_="band")] * band + [line(0, 6, 30, 6, f"line {kind}")]
    return tag("svg", *shapes, width=30, height=12, aria_hidden="true")


def response(e: Explanation, term: str) -> Markup:
    """The Relation Replay Net's weight of one term over the losses of a new and a memory sample."""
    s = e.surface
    left, top, side = 46, 26, 220
    grid, (low, high), decimals = s.weights[term], s.spans[term], s.decimals(term)
    size, shade = side / len(s.losses), lambda share: 0.06 + 0.94 * share
    x, y = (lambda loss: left + side * loss / s.top), (lambda loss: top + side * (1 - loss / s.top))
    parts: list[str] = [text(left, 14, f"weight of {term}", "start", class_="named")]
    for i, (loss_y, row) in enumerate(zip(s.losses, grid)):
        for j, (loss_x, weight) in enumerate(zip(s.losses, row)):
            words = f"{s.x} loss {loss_x:.3g}, {s.y} loss {loss_y:.3g}: weight {weight:.{decimals}f}"
            parts.append(
                tag(
                    "rect",
                    tag("title", words),
                    x=left + j * size,
                    y=top + side - (i + 1) * size,
                    width=size,
                    height=size,
                    class_="cell",
                    fill_opacity=shade(s.share(term, weight)),
                )
            )
    seen = [epoch for epoch in e.epochs if epoch.proposed or epoch.weights]
    at = lambda epoch: {"cx": x(epoch.loss[s.x]), "cy": y(epoch.loss[s.y])}
    for epoch in seen:
        losses = f"{epoch.loss[s.x]:.3g} and {epoch.loss[s.y]:.3g}"
        words = f"task {epoch.task + 1}, epoch {epoch.number + 1}: mean losses {losses}"
        parts.append(tag("circle", tag("title", words), **at(epoch), r=2 if len(seen) < 100 else 1, class_="dot"))
    parts.append(tag("circle", **at(seen[-1]), r=5.5, class_="last"))
    for loss in ticks(s.top):
        parts += [
            text(x(loss), top + side + 17, f"{loss:g}"),
            text(left - 7, y(loss) + 4, f"{loss:g}", "end"),
            line(x(loss), top + side, x(loss), top + side + 4, "axis"),
            line(left - 4, y(loss), left, y(loss), "axis"),
        ]
    bar = left + side + 16
    for i in range(20):
        at_share = {"y": top + side * (1 - (i + 1) / 20), "fill_opacity": shade(i / 19)}
        parts.append(tag("rect", x=bar, width=12, height=side / 20, class_="cell", **at_share))
    parts += [
        text(bar + 17, top + 10, f"{high:.{decimals}f}", "start"),
        text(bar + 17, top + side, f"{low:.{decimals}f}", "start"),
        tag("path", d=f"M{left} {top}V{top + side}H{left + side}", class_="axis"),
        text(left + side / 2, top + side + 36, f"loss of the {s.x} sample"),
        text(0, 0, f"loss of the {s.y} sample", transform=f"translate(11 {top + side / 2}) rotate(-90)"),
    ]
    description = (
        f"Heat map from {low:.{decimals}f} (pale) to {high:.{decimals}f} (full colour) over losses from 0 to {s.top:g}."
    )
    key, kind = f"response-{e.terms.index(term)}", f"map t{e.colour(term)}"
    return drawing(key, 372, top + side + 44, kind, f"Weight of {term} by losses", description, *parts)


def spaced(heights: Sequence[float], least: float) -> list[float]:
    """Heights of labels, moved apart where two would be closer than `least`; in the order given."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + least)
    return moved


def _spread(value: Spread) -> str:
    return f"{value.mean:.4f} (25 to 75 %: {value.low:.4f} to {value.high:.4f})"
