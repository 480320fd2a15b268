"""Markup that cannot be broken by what it is given, and the figures of an explanation drawn with it.

Every string that is not `Markup` is escaped. Colours are CSS variables, so one drawing serves light and dark pages.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlearn.report.explain import Explanation, Spread

STYLE = """
:root { color-scheme: light dark; --paper: #fdfcfa; --card: #fff; --ink: #1d2129; --soft: #59606e; --rule: #d9dbe0;
  --harm: 190 24 93; --help: 13 118 110 }
.t0 { --c: #c2500a } .t1 { --c: #0b62b0 } .t2 { --c: #8a3fa8 } .t3 { --c: #47750f }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14161b; --card: #1b1e25; --ink: #e8eaf0; --soft: #a3abba; --rule: #363b47; --harm: 244 94 160; --help: 45 195 175 }
  .t0 { --c: #ff9e64 } .t1 { --c: #79b8ff } .t2 { --c: #d3a0f0 } .t3 { --c: #9ad15c }
}
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }
main { max-width: 1120px; margin: 0 auto; padding: 2rem 1.25rem 3rem }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .2rem }
p { margin: .3rem 0; max-width: 75ch }
figure { margin: .8rem 0 0 }
figcaption { font-size: .9rem; max-width: 100ch; margin-top: .5rem; text-wrap: pretty }
footer { margin-top: 3rem; font-size: .85rem; overflow-wrap: anywhere }
details { margin-top: .6rem; font-size: .9rem }
summary { cursor: pointer }
details .scroll { margin-top: .4rem; max-height: 24rem }
.soft, figcaption, summary { color: var(--soft) }
.note { border-left: 3px solid var(--soft); padding-left: .8rem }
.scroll { overflow: auto; max-height: 36rem; padding: .6rem .8rem;
  background: var(--card); border: 1px solid var(--rule); border-radius: 8px }
.row { display: flex; flex-wrap: wrap; gap: .75rem; align-items: flex-start }
.row > .scroll { max-width: 100%; min-width: 14rem }
.row.maps > .scroll { flex: 1 1 320px; max-width: 420px }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .85rem; color: var(--soft); margin: .6rem 0 .5rem }
.legend svg { display: inline-block; vertical-align: middle; margin-right: .4rem }
.legend b { color: var(--c) }
.swatch { display: inline-block; width: 1em; height: 1em; vertical-align: -.15em; border-radius: 2px; margin-right: .4rem; --a: .5 }

svg { display: block }
svg text { font: 12px system-ui, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--soft); font-variant-numeric: tabular-nums }
svg .strong { fill: var(--ink); font-weight: 600 }
svg .named { fill: var(--c); font-weight: 600 }
.wide { width: 100%; min-width: 720px }
.map { width: 100% }
.axis { stroke: var(--soft); fill: none }
.grid { stroke: var(--rule) }
.edge { stroke: var(--soft) }
.edge.in { stroke-dasharray: 2 3 }
.preset { fill: var(--ink); fill-opacity: .09 }
.warm-up { fill: var(--ink); fill-opacity: .045 }
.relation { fill: none }
.band { fill: var(--c); fill-opacity: .22 }
.band.proposed { fill-opacity: .1 }
.line { fill: none; stroke: var(--c); stroke-width: 2.25; stroke-linejoin: round }
.line.preset { stroke-width: 1.25; stroke-opacity: .75 }
.line.proposed { stroke-width: 1.75; stroke-opacity: .75; stroke-dasharray: 5 4 }
.hit { fill: var(--ink); fill-opacity: 0 }
.hit:hover { fill-opacity: .07 }
.cell { fill: var(--c); shape-rendering: crispEdges }
.cell:hover { stroke: var(--ink) }
.dot { fill: var(--paper); stroke: var(--ink); stroke-width: .8 }
.dot:hover { fill: var(--ink) }
.point { fill: var(--c); fill-opacity: .75 }
.last { fill: none; stroke: var(--ink); stroke-width: 1.5; pointer-events: none }

table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem }
caption small { display: block; font-weight: 400; color: var(--soft) }
th { font-weight: 600; text-align: right; color: var(--soft); padding: .15rem .5rem; max-width: 10rem; overflow-wrap: break-word }
th:first-child { text-align: left; padding-left: 0 }
th.t { color: var(--c) }
thead th { box-shadow: 0 1px var(--rule); vertical-align: bottom; position: sticky; top: -.6rem; background: var(--card) }
tbody th { color: var(--ink); white-space: nowrap; overflow: hidden; text-overflow: ellipsis }
td { text-align: right; padding: .15rem .5rem; white-space: nowrap }
.first-new > * { border-top: 1px solid var(--soft) }
.harm { background: rgb(var(--harm) / var(--a)) }
.help { background: rgb(var(--help) / var(--a)) }
.bar { background: linear-gradient(color-mix(in srgb, var(--c) 26%, transparent) 0 0) left / var(--w) 100% no-repeat; min-width: 4.4rem }
"""
EMPTY = ("meta", "path")  # elements that never have content


class Markup(str):
    """Text that is markup already."""


def tag(name: str, /, *children: str, **attributes: str | float) -> Markup:
    """An element. An attribute's trailing underscore is dropped (`class_`), others become hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_written(value))}"' for key, value in attributes.items()
    )
    inner = "".join(child if isinstance(child, Markup) else html.escape(child) for child in children)
    return Markup(f"<{name}{written}/>" if name in EMPTY else f"<{name}{written}>{inner}</{name}>")


def _written(value: str | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def ticks(top: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to `top`, about so many steps."""
    power = 10 ** math.floor(math.log10(top / about))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if top / step <= about + 0.5)
    return [i * step for i in range(math.floor(top / step + 1e-9) + 1)]


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
        ends = lambda side: [getattr(value, side) for value in (run.values[0], *run.values, run.values[-1])]
        points = lambda side: [f"{x(epoch):.1f} {y(weight):.1f}" for epoch, weight in zip(across, ends(side))]
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
    for at, (term, weight) in zip(apart([y(weight) for weight in final.values()], 15), final.items()):
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


def legend(e: Explanation) -> Markup:
    sample = lambda *shapes: tag("svg", *shapes, width=30, height=12, aria_hidden="true")
    stroke = lambda kind: line(0, 6, 30, 6, f"line {kind}")
    items = [tag("span", sample(stroke("")), tag("b", term), class_=f"t{e.colour(term)}") for term in e.terms]
    kinds = {
        "learned": ("learned, in use; band: 25 to 75 %", tag("rect", width=30, height=12, class_="band"), stroke("")),
        "proposed": ("proposed, not in use yet", stroke("proposed")),
        "preset": ("preset, in use (shaded phases)", stroke("preset")),
    }
    drawn = {run.kind for run in e.lines}
    items += [
        tag("span", sample(*shapes), words, class_="t1") for kind, (words, *shapes) in kinds.items() if kind in drawn
    ]
    return tag("div", *items, class_="legend")


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
        words = f"task {epoch.task + 1}, epoch {epoch.number + 1}: mean losses {epoch.loss[s.x]:.3g} and {epoch.loss[s.y]:.3g}"
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


def scatter(key: str, title: str, across: str, up: str, groups: Mapping[str, Sequence[tuple[float, float]]]) -> Markup:
    """Pairs of weights between 0 and 1, a colour a group."""
    left, top, side = 52, 16, 300
    x, y = (lambda value: left + side * value), (lambda value: top + side * (1 - value))
    parts: list[str] = []
    for value in ticks(1.0):
        parts += [
            line(x(value), top, x(value), top + side, "grid"),
            line(left, y(value), left + side, y(value), "grid"),
            text(x(value), top + side + 17, f"{value:g}"),
            text(left - 7, y(value) + 4, f"{value:g}", "end"),
        ]
    for number, (name, pairs) in enumerate(groups.items()):
        dots = [
            tag("circle", tag("title", f"{a:.3f}, {b:.3f}"), cx=x(a), cy=y(b), r=4, class_="point") for a, b in pairs
        ]
        height = top + 12 + 20 * number
        label = text(left + side + 32, height + 4, name, "start", class_="named")
        mark = tag("circle", cx=left + side + 20, cy=height, r=4, class_="point")
        parts.append(tag("g", *dots, mark, label, class_=f"t{number}"))
    parts += [
        tag("path", d=f"M{left} {top}V{top + side}H{left + side}", class_="axis"),
        text(left + side / 2, top + side + 36, across),
        text(0, 0, up, transform=f"translate(13 {top + side / 2}) rotate(-90)"),
    ]
    means = [tuple(sum(values) / len(pairs) for values in zip(*pairs)) for pairs in groups.values()]
    words = "; ".join(f"{name}: on average {a:.2f} across, {b:.2f} up" for name, (a, b) in zip(groups, means))
    return drawing(key, 640, top + side + 46, "map", title, f"Scatter of points. {words}.", *parts)


def alone(figure: Markup, width: int) -> str:
    """The figure as a file of its own."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}"'
    return figure.replace("<svg", head, 1).replace("</title>", f"</title><style>{STYLE}</style>", 1) + "\n"


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Heights moved so that neighbours keep a distance, in the order given."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for above, below in zip(order, order[1:]):
        moved[below] = max(moved[below], moved[above] + least)
    return moved


def _spread(value: Spread) -> str:
    return f"{value.mean:.4f} (25 to 75 %: {value.low:.4f} to {value.high:.4f})"
