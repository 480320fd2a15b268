"""The page's charts, each described once: for the page, and as figures for a paper.

A chart names the table of the data block it is of. What is shown of it is chosen by parameters that the page sets:
`rows` (short names of rows) or `row` (one of them), `setting` (class_il or task_il) and `term`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import altair as alt

SOME = "indexof(rows, datum.row) >= 0 && datum.setting == setting"
ONE = "datum.row == row"
PERCENT = alt.Scale(domain=[0, 100])
ROOMY = alt.Scale(zero=False, nice=False, padding=10)  # no point is cut at the edge
FEW = alt.Axis(tickCount=10)
WHOLE = alt.Axis(tickMinStep=1, format="d")
TASKS = alt.X("after:Q", title="after task", axis=WHOLE, scale=ROOMY)
HEIGHT = 260
_LEGEND = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=0)
MEAN = "mean accuracy so far, %"
WORDS = 12  # tasks whose accuracies are written into their cells

# For a figure the colour and shape of each label; a page, with None, has its own legend.
Legend = Mapping[str, tuple[str, str]] | None


def _params(*names: str) -> list[alt.Parameter]:
    return [alt.param(name=name, value=[] if name == "rows" else "") for name in names]


def _inks() -> list[alt.Parameter]:
    """Parameters: the colour of text on pale cells and on dark ones."""
    return [alt.param(name="weak", value="#1d2129"), alt.param(name="strong", value="#ffffff")]


def _zoom(legend: Legend) -> list[alt.Parameter]:
    """On the page, and in no figure: drag to move, the wheel with Shift to zoom, a double click to go back."""
    if legend is not None:
        return []
    return [alt.selection_interval(name="zoom", bind="scales", zoom="wheel![event.shiftKey]")]


def _colour(legend: Legend) -> alt.Color:
    if legend is None:
        return alt.Color("colour:N", scale=None)
    scale = alt.Scale(domain=list(legend), range=[colour for colour, _ in legend.values()])
    return alt.Color("label:N", scale=scale, legend=_LEGEND)


def _shape(legend: Legend) -> alt.Shape:
    if legend is None:
        return alt.Shape("shape:N", scale=None, legend=None)
    scale = alt.Scale(domain=list(legend), range=[shape for _, shape in legend.values()])
    return alt.Shape("label:N", scale=scale, legend=_LEGEND)


def _tip(field: str, title: str, places: str | None = None) -> alt.Tooltip:
    return alt.Tooltip(field, title=title, format=places or alt.Undefined)


def average(legend: Legend = None) -> Any:
    """Mean accuracy of the tasks learned so far, after each task; a line per row, a band of one deviation."""
    base = (
        alt.Chart(alt.NamedData("average"))
        .transform_filter(SOME)
        .transform_flatten(["after", "mean", "std"])
        .transform_calculate(
            low="datum.mean - (datum.std || 0)",
            high="datum.mean + (datum.std || 0)",
            spread="isValid(datum.std) ? format(datum.std, '.2f') : '–'",
        )
    )
    x, y = TASKS, alt.Y("mean:Q", title=MEAN, scale=ROOMY)
    tips = [_tip("label:N", "row"), _tip("after:Q", "after task"), _tip("mean:Q", "%", ".2f"), _tip("spread:N", "±")]
    colour, detail = _colour(legend), alt.Detail("row:N")
    band = base.mark_area(opacity=0.13).encode(x, alt.Y("low:Q", title=MEAN), alt.Y2("high:Q"), colour, detail)
    line = base.mark_line().encode(x, y, colour, alt.StrokeDash("dash:N", scale=None, legend=None), detail)
    points = base.mark_point(filled=True, size=45, opacity=1).encode(x, y, colour, _shape(legend), detail, tooltip=tips)
    chart = alt.layer(band, line, points.add_params(*_zoom(legend))).add_params(*_params("rows", "setting"))
    return chart.properties(height=340)


def _matrix() -> alt.Chart:
    """A record per cell of a row's accuracy matrix."""
    return (
        alt.Chart(alt.NamedData("matrix"))
        .transform_filter(f"{ONE} && datum.setting == setting")
        .transform_calculate(tasks="length(datum.task)")
        .transform_flatten(["after", "mean"])
        .transform_flatten(["task", "mean"])
        .transform_filter("isValid(datum.mean)")
    )


def stream(legend: Legend = None) -> Any:
    """The accuracy of each task over the stream, from when it was learned; a line per task of one row."""
    base = _matrix().transform_filter("datum.task <= datum.after")
    x, y = TASKS, alt.Y("mean:Q", title="accuracy of each task, %", scale=alt.Scale(domain=[0, 100], padding=6))
    colour = alt.Color("task:O", title="task", legend=alt.Legend(orient="bottom", columns=10))
    tips = [_tip("task:Q", "task"), _tip("after:Q", "after task"), _tip("mean:Q", "%", ".2f")]
    points = base.mark_point(filled=True, size=45, opacity=1).encode(x, y, colour, tooltip=tips)
    line = base.mark_line().encode(x, y, colour).add_params(*_zoom(legend))
    return alt.layer(line, points).add_params(*_params("row", "setting")).properties(height=HEIGHT)


def matrix(legend: Legend = None) -> Any:
    """The accuracy matrix of one row: a line per task learned, a column per task tested."""
    base = _matrix()
    x = alt.X("task:O", title="accuracy on task", axis=alt.Axis(labelAngle=0, orient="bottom"))
    y = alt.Y("after:O", title="after task")
    shade = alt.Color("mean:Q", title="%", scale=PERCENT, legend=None)
    tips = [_tip("task:Q", "task"), _tip("after:Q", "after task"), _tip("mean:Q", "%", ".2f")]
    cells = base.mark_rect().encode(x, y, shade, tooltip=tips)
    ink = {"condition": {"test": "datum.mean > 55", "value": {"expr": "strong"}}, "value": {"expr": "weak"}}
    words = base.transform_filter(f"datum.tasks <= {WORDS}").mark_text(fontSize=11)
    words = words.encode(x, y, alt.Text("mean:Q", format=".0f"))
    chart = alt.layer(cells, words).add_params(*_params("row", "setting"), *_inks()).properties(height=HEIGHT)
    return _inked(chart, 1, ink)


def _inked(chart: Any, layer: int, ink: dict[str, Any]) -> dict[str, Any]:
    """A chart as data with words on its cells that can be read whatever the shade."""
    found = chart.to_dict()
    found["layer"][layer]["encoding"]["color"] = ink
    return found


def confusion(legend: Legend = None) -> Any:
    """Which class (line) was taken for which (column) at the end, in percent of the class's test samples."""
    base = (
        alt.Chart(alt.NamedData("confusion"))
        .transform_filter(ONE)
        .transform_flatten(["true", "predicted", "share"])
        .transform_calculate(this="datum.names[datum.true]", that="datum.names[datum.predicted]")
    )
    x = alt.X(
        "predicted:O",
        title="taken for",
        axis=alt.Axis(labelExpr="names[datum.value]", labelLimit=90, labelOverlap=True),
    )
    y = alt.Y("true:O", title="class", axis=alt.Axis(labelExpr="names[datum.value]", labelLimit=90, labelOverlap=True))
    shade = alt.Color("share:Q", scale=PERCENT, legend=None)
    tips = [_tip("this:N", "class"), _tip("that:N", "taken for"), _tip("share:Q", "% of its samples", ".2f")]
    names = alt.param(name="names", value=[])
    return base.mark_rect().encode(x, y, shade, tooltip=tips).add_params(*_params("row"), names).properties(height=320)


def classes(legend: Legend = None) -> Any:
    """The accuracy of each class: a ring where it was best, a dot at the end."""
    base = alt.Chart(alt.NamedData("classes")).transform_filter(ONE).transform_flatten(["name", "best", "when", "last"])
    y = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=110))
    x = alt.X("last:Q", title="accuracy, %", scale=PERCENT)
    tips = [
        _tip("name:N", "class"),
        _tip("best:Q", "best, %", ".2f"),
        _tip("when:Q", "after task"),
        _tip("last:Q", "at the end, %", ".2f"),
    ]
    rule = base.mark_rule(strokeWidth=2, opacity=0.6).encode(x, alt.X2("best:Q"), y, tooltip=tips)
    best = base.mark_point(filled=False, size=60).encode(alt.X("best:Q"), y, tooltip=tips)
    last = base.mark_point(filled=True, size=70, opacity=1).encode(x, y, tooltip=tips)
    return alt.layer(rule, best, last).add_params(*_params("row")).properties(height=HEIGHT)


def memory(legend: Legend = None) -> Any:
    """How many samples of each class the memory of one row holds after each task."""
    base = alt.Chart(alt.NamedData("memory")).transform_filter(ONE).transform_flatten(["place", "name", "count"])
    tips = [_tip("after:Q", "after task"), _tip("name:N", "class"), _tip("count:Q", "samples", ".1f")]
    return (
        base.mark_bar(stroke="#80808080", strokeWidth=0.5)
        .encode(
            alt.X("after:O", title="after task", axis=alt.Axis(labelAngle=0)),
            alt.Y("count:Q", title="samples in memory", stack=True),
            alt.Color("place:O", legend=None),
            alt.Order("place:Q"),
            tooltip=tips,
        )
        .add_params(*_params("row"))
        .properties(height=HEIGHT)
    )


def weights(legend: Legend = None) -> Any:
    """The learned weights of one row's terms over training: the mean, and the middle half as a band."""
    base = (
        alt.Chart(alt.NamedData("weights"))
        .transform_filter(ONE)
        .transform_flatten(["epoch", "task", "mean", "low", "high"])
    )
    x = alt.X("epoch:Q", title="epoch", axis=WHOLE, scale=ROOMY)
    colour = alt.Color("term:N", title="term", legend=alt.Legend(orient="bottom"))
    tips = [_tip("term:N", "term"), _tip("epoch:Q", "epoch"), _tip("mean:Q", "weight", ".4f")]
    band = base.mark_area(opacity=0.2).encode(
        x, alt.Y("low:Q", title="weight"), alt.Y2("high:Q"), colour, alt.Detail("task:N")
    )
    line = base.mark_line(point=alt.OverlayMarkDef(size=18)).encode(
        x, alt.Y("mean:Q", title="weight"), colour, alt.Detail("task:N"), tooltip=tips
    )
    return alt.layer(band, line.add_params(*_zoom(legend))).add_params(*_params("row")).properties(height=HEIGHT)


def surface(legend: Legend = None) -> Any:
    """How the Relation Replay Net of one row answers: one term's weight over the losses of a new and a memory sample.

    Dots: the mean losses of the epochs it learned in."""
    base = alt.Chart(alt.NamedData("surface")).transform_filter(f"{ONE} && datum.term == term")
    cells = (
        base.transform_flatten(["y", "weight"])
        .transform_flatten(["x", "weight"])
        .transform_calculate(
            left="datum.x - datum.half",
            low="datum.y - datum.half",  # and a little over the next one, so that no seam shows
            right="min(datum.x + 1.06 * datum.half, datum.top)",
            high="min(datum.y + 1.06 * datum.half, datum.top)",
        )
    )
    tight, few = alt.Scale(nice=False, zero=False), alt.Axis(grid=False, tickCount=4)
    x = alt.X("left:Q", title="loss of the new sample", scale=tight, axis=few)
    y = alt.Y("low:Q", title="loss of the memory sample", scale=tight, axis=few)
    shade = alt.Color("weight:Q", title=None, scale=tight, legend=alt.Legend(tickCount=4))
    tips = [_tip("x:Q", "loss of the new sample", ".3f"), _tip("y:Q", "loss of the memory sample", ".3f")]
    tips += [_tip("weight:Q", "weight", ".5f")]
    grid = cells.mark_rect().encode(x, alt.X2("right:Q"), y, alt.Y2("high:Q"), shade, tooltip=tips)
    dots = (
        base.transform_flatten(["seen_x", "seen_y"])
        .mark_point(filled=True, size=16, color="white", stroke="black", strokeWidth=0.7, opacity=1)
        .encode(alt.X("seen_x:Q"), alt.Y("seen_y:Q"))
    )
    return alt.layer(grid, dots).add_params(*_params("row", "term")).properties(height=HEIGHT)


def similarity(legend: Legend = None) -> Any:
    """The mean weights that new and old validation samples have at the end of a run; a point per run.

    Rows of all streams are in it: it is there to set similar tasks against others."""
    data = alt.Chart(alt.NamedData("runs")).transform_filter(f"{SOME} && isValid(datum.to_new)")
    scale = alt.Scale(domain=alt.DomainUnionWith(unionWith=[0, 1]), padding=8, nice=False)
    return (
        data.mark_point(filled=True, size=80, opacity=0.8)
        .encode(
            alt.X("to_new:Q", title="weight of new samples", scale=scale),
            alt.Y("to_old:Q", title="weight of old samples", scale=scale),
            alt.Color("full:N", legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=320)),
            alt.Shape("full:N"),
            tooltip=[
                _tip("full:N", "row"),
                _tip("seed:N", "seed"),
                _tip("to_new:Q", "new", ".4f"),
                _tip("to_old:Q", "old", ".4f"),
            ],
        )
        .add_params(*_params("rows", "setting"), *_zoom(legend))
        .properties(height=300)
    )


def tradeoff(legend: Legend = None) -> Any:
    """What runs learned of each task but the last, and what they kept of it: on the line nothing is forgotten."""
    data = alt.Chart(alt.NamedData("runs")).transform_filter(f"{SOME} && isValid(datum.kept)")
    x = alt.X("learned:Q", title="learned: right after the task, %", scale=ROOMY, axis=FEW)
    y = alt.Y("kept:Q", title="kept: at the end, %", scale=ROOMY)
    seeds = data.mark_point(filled=True, size=28, opacity=0.6).encode(
        x,
        y,
        _colour(legend),
        _shape(legend),
        tooltip=[
            _tip("label:N", "row"),
            _tip("seed:N", "seed"),
            _tip("learned:Q", "learned", ".2f"),
            _tip("kept:Q", "kept", ".2f"),
        ],
    )
    mean = data.transform_aggregate(
        learned="mean(learned)", kept="mean(kept)", groupby=["row", "label", "colour", "shape"]
    )
    means = mean.mark_point(filled=True, size=140, opacity=1).encode(
        x,
        y,
        _colour(legend),
        _shape(legend),
        tooltip=[_tip("label:N", "row"), _tip("learned:Q", "learned", ".2f"), _tip("kept:Q", "kept", ".2f")],
    )
    chart = alt.layer(seeds, means.add_params(*_zoom(legend))).add_params(*_params("rows", "setting"))
    return chart.properties(height=300)


def cost(legend: Legend = None) -> Any:
    """Accuracy against the minutes a run took; a point per row."""
    data = alt.Chart(alt.NamedData("runs")).transform_filter(f"{SOME} && isValid(datum.minutes)")
    mean = data.transform_aggregate(
        minutes="mean(minutes)", acc="mean(acc)", groupby=["row", "label", "colour", "shape"]
    )
    return (
        mean.mark_point(filled=True, size=120, opacity=1)
        .encode(
            alt.X("minutes:Q", title="minutes a run", scale=alt.Scale(padding=10, nice=False), axis=FEW),
            alt.Y("acc:Q", title="ACC, %", scale=ROOMY),
            _colour(legend),
            _shape(legend),
            tooltip=[_tip("label:N", "row"), _tip("minutes:Q", "minutes", ".2f"), _tip("acc:Q", "ACC, %", ".2f")],
        )
        .add_params(*_params("rows", "setting"), *_zoom(legend))
        .properties(height=HEIGHT)
    )


def live(legend: Legend = None) -> Any:
    """The losses of runs under way."""
    base = alt.Chart(alt.NamedData("live")).transform_flatten(["epoch", "loss"])
    x = alt.X("epoch:Q", title="epoch", axis=WHOLE)
    y = alt.Y("loss:Q", title="loss")
    colour = alt.Color("run:N", title=None, legend=alt.Legend(orient="bottom", columns=1, labelLimit=300))
    dashes = alt.Legend(orient="top", symbolType="stroke", symbolStrokeColor="#888888", symbolStrokeWidth=2)
    tips = [_tip("run:N", "run"), _tip("term:N", "term"), _tip("epoch:Q", "epoch"), _tip("loss:Q", "loss", ".4f")]
    line = base.mark_line().encode(x, y, colour, alt.StrokeDash("term:N", title="term", legend=dashes))
    points = base.mark_point(filled=True, size=22, opacity=1).encode(x, y, colour, alt.Detail("term:N"), tooltip=tips)
    return alt.layer(line, points).properties(height=HEIGHT)


CHARTS: dict[str, Callable[..., Any]] = {
    chart.__name__: chart
    for chart in (
        average,
        stream,
        matrix,
        confusion,
        classes,
        memory,
        weights,
        surface,
        similarity,
        tradeoff,
        cost,
        live,
    )
}


def spec(name: str, legend: Legend = None) -> dict[str, Any]:
    """A chart as a Vega-Lite document, which the caller may change."""
    return json.loads(_spec(name, None if legend is None else tuple(legend.items())))


@functools.cache  # Altair takes 50 ms to describe and check a chart, and figures of many rows have the same ones
def _spec(name: str, legend: tuple[tuple[str, tuple[str, str]], ...] | None) -> str:
    made = CHARTS[name](None if legend is None else dict(legend))
    found = made if isinstance(made, dict) else made.to_dict()
    return json.dumps({key: value for key, value in found.items() if key not in ("config", "datasets", "$schema")})


def specs() -> dict[str, dict[str, Any]]:
    """All charts as Vega-Lite documents, as wide as the room they have on the page."""
    return {
        name: spec(name) | {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        for name in CHARTS
    }
