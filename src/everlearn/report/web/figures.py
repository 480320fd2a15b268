"""The page's charts as figures for a paper: SVG and PDF, made without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlearn.errors import BadInput, printable
from everlearn.report.tables import SETTINGS
from everlearn.report.web.data import COLOURS, Block
from everlearn.report.web.page import charts

if TYPE_CHECKING:
    from everlearn.report.web.charts import Legend

SOME = {"average": "average", "tradeoff": "runs", "cost": "runs"}  # of all rows, and the table each is of
ONE = {"stream": "matrix", "matrix": "matrix", "confusion": "confusion", "classes": "classes"}
ONE |= {"memory": "memory", "weights": "weights", "surface": "surface"}  # of one row
BOTH = {"average", "tradeoff", "cost", "stream", "matrix"}  # once for each setting
SQUARE = ("surface", "similarity")
WIDTH, HEIGHT = 340, 220
STYLE: dict[str, Any] = {
    "background": "white",
    "font": "Liberation Serif, Times New Roman, serif",
    "view": {"stroke": "#888888"},
    "axis": {
        **dict(labelColor="black", titleColor="black", titleFontWeight="normal", gridColor="#e4e4e4"),
        **dict(labelFontSize=11, titleFontSize=12),
    },
    "axisBand": {"grid": False},
    "legend": dict(titleFontWeight="normal", labelFontSize=11, titleFontSize=12, symbolOpacity=1),
    "title": dict(fontSize=12, fontWeight="normal", anchor="start"),
    "range": {
        "category": [*COLOURS],
        "ordinal": {"scheme": "viridis", "extent": [0, 0.8]},
        "ramp": ["#f3f6fb", "#a9c9ea", "#3f86c4", "#08386e"],
        "heatmap": ["#f3f6fb", "#a9c9ea", "#3f86c4", "#08386e"],
    },
}


def write(data: Block, folder: Path) -> list[str]:
    """All figures of a data block into a folder; the names of their files."""
    if not charts():
        raise BadInput("figures need two more packages: pip install 'everlearn[report]'")
    import vl_convert

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, spec in figures(shown(data)):
        drawn = vl_convert.vegalite_to_svg(json.dumps(spec))
        (folder / f"{name}.svg").write_text(drawn, encoding="utf-8")
        (folder / f"{name}.pdf").write_bytes(vl_convert.svg_to_pdf(drawn))
        written += [f"{name}.svg", f"{name}.pdf"]
    return written


def shown(value: Any) -> Any:
    """The data with visible characters alone: others are no XML, at which a converter may abort the whole process."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [shown(of) for of in value]
    return {key: shown(of) for key, of in value.items()} if isinstance(value, dict) else value


def figures(data: Block) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name and a chart for each figure there is something to see in."""
    rows = {row["id"]: row for row in data["rows"]}
    names = dict(zip(rows, file_names([row["label"] for row in data["rows"]])))
    for stream in dict.fromkeys(row["stream"] for row in data["rows"]):
        of = [row for row in data["rows"] if row["stream"] == stream]
        beside = f"-{file_names([stream])[0]}" if len({row["stream"] for row in data["rows"]}) > 1 else ""
        for chart in SOME:
            for setting in SETTINGS:
                if (spec := _of_rows(chart, data, of, setting)) is not None:
                    yield f"{chart}{beside}-{_short(setting)}", spec
    if weighed := [of for of in data["sets"]["runs"] if "to_new" in of and of["setting"] == "class_il"]:
        params = {"rows": [*rows], "setting": "class_il"}
        yield "similarity", _figure("similarity", "runs", weighed, params, {}, "")
    for base, other in data["pairs"]:
        for setting in SETTINGS:
            sides = [_of_row("stream", data, rows[name], setting) for name in (base, other)]
            if None not in sides:
                yield f"pair-{names[base]}-{names[other]}-{_short(setting)}", _beside(sides)
    for name, row in rows.items():
        for chart in ONE:
            for setting in SETTINGS if chart in BOTH else ("",):
                for term in _terms(data, row) if chart == "surface" else ("",):
                    if (spec := _of_row(chart, data, row, setting, term)) is not None:
                        words = (chart, names[name], _short(setting), term and file_names([term])[0])
                        yield "-".join(filter(None, words)), spec


def file_names(labels: Sequence[str]) -> list[str]:
    """Labels as names of files, each another one."""
    found: list[str] = []
    for label in labels:
        plain = re.sub(r"[^a-z0-9+.]+", "-", label.lower().replace("m = ", "m")).strip("-.")[:60] or "row"
        taken = sum(name == plain or name.startswith(f"{plain}_") for name in found)
        found.append(f"{plain}_{taken + 1}" if taken else plain)
    return found


def _short(setting: str) -> str:
    return setting.removesuffix("_il")


def _of_rows(chart: str, data: Block, rows: Sequence[Block], setting: str) -> dict[str, Any] | None:
    """A chart of several rows, with a legend."""
    ids, needed = {row["id"] for row in rows}, {"tradeoff": "kept", "cost": "minutes"}.get(chart)
    records = [of for of in data["sets"][SOME[chart]] if of["row"] in ids and of["setting"] == setting]
    if not any(needed is None or of.get(needed) is not None for of in records):
        return None
    legend = {
        row["label"]: (row["colour"], row["shape"]) for row in rows if any(of["row"] == row["id"] for of in records)
    }
    params = {"rows": sorted(ids), "setting": setting}
    return _figure(chart, SOME[chart], records, params, legend, SETTINGS[setting])


def _terms(data: Block, row: Block) -> list[str]:
    return [of["term"] for of in data["sets"]["surface"] if of["row"] == row["id"]]


def _of_row(chart: str, data: Block, row: Block, setting: str, term: str = "") -> dict[str, Any] | None:
    """A chart of one row, under its label."""
    records = [of for of in data["sets"][ONE[chart]] if of["row"] == row["id"] and of.get("setting", "") == setting]
    if not records:
        return None
    params = {"row": row["id"], "setting": setting, "term": term, "names": records[0].get("names", [])}
    title = ", ".join(filter(None, (row["label"], SETTINGS.get(setting), term and f"weight of {term}")))
    return _figure(chart, ONE[chart], records, params, {}, title)


def _figure(
    chart: str, table: str, records: Sequence[Block], params: Mapping[str, Any], legend: Legend, title: str
) -> dict[str, Any]:
    from everlearn.report.web.charts import spec

    made = spec(chart, legend)
    for param in made.get("params", []):
        param["value"] = params.get(param["name"], param.get("value"))
    if chart == "stream" and max(len(of["task"]) for of in records) <= len(STYLE["range"]["category"]):
        for layer in made["layer"]:
            layer["encoding"]["color"]["type"] = "nominal"
    size = {"width": WIDTH, "height": HEIGHT}
    if chart == "classes":
        size["height"] = max(60, 13 * len(records[0]["name"]))
    if chart in SQUARE:
        size["width"] = size["height"]
    return made | size | {"datasets": {table: list(records)}, "config": STYLE, "title": title}


def _beside(sides: Sequence[Any]) -> dict[str, Any]:
    """Two charts of one kind next to each other, on the same scales."""
    first, second = ({k: v for k, v in side.items() if k not in ("config", "datasets", "params")} for side in sides)
    records = [record for side in sides for record in side["datasets"]["matrix"]]
    parts = []
    for part, side in zip((first, second), sides):
        row = json.dumps(next(param["value"] for param in side["params"] if param["name"] == "row"))
        parts.append(json.loads(json.dumps(part).replace("datum.row == row", f"datum.row == {row}".replace('"', "'"))))
    params = [param for param in sides[0]["params"] if param["name"] == "setting"]
    return {"hconcat": parts, "params": params, "datasets": {"matrix": records}, "config": STYLE}
