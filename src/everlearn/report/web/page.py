"""The page about many runs, as one HTML file that needs nothing else."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from everlearn.collection import chosen, collect
from everlearn.report.page import TEMPLATES
from everlearn.report.svg import TEMPLATES as FOLDER
from everlearn.report.web.data import Block, block
from everlearn.version import __version__

EXTRA = ("altair", "vl_convert")
CHARTLESS = "the page has tables and no charts; those need two more packages: pip install 'everlearn[report]'"
SCRIPTS = ("web.js", "web-tables.js", "web-charts.js")


def page(paths: Sequence[str], only: Sequence[str] = (), edited: bool = False) -> str:
    """What is under these paths as one page; `only` rows whose label has one of these."""
    return rendered(of_paths(paths, only, edited))


def of_paths(paths: Sequence[str], only: Sequence[str] = (), edited: bool = False) -> Block:
    """The data block of what is under these paths."""
    return block(chosen(collect(paths, edited=edited), only), paths)


def rendered(data: Mapping[str, Any], live: int = 0) -> str:
    """The page of a data block. `live` says after how many milliseconds it asks for its data again; 0 is never."""
    drawing = charts()
    return TEMPLATES.get_template("web.html.jinja").render(
        title="Results",
        version=__version__,
        live=live,
        charts=drawing,
        data=embedded(data),
        specs=embedded(_specs() if drawing else {}),
        bundle=Markup(_bundle() if drawing else ""),
        style=Markup((FOLDER / "web.css").read_text(encoding="utf-8")),
        script=Markup("\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)),
    )


def charts() -> bool:
    """Are the packages installed that charts are made with?"""
    return all(importlib.util.find_spec(name) is not None for name in EXTRA)


def embedded(value: Any) -> Markup:
    """JSON for a script element: with every `<` written as a number no word in it ends the element."""
    words = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    words = words.encode("utf-8", "replace").decode()  # a lone surrogate cannot be encoded
    return Markup(words.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


@functools.cache
def _specs() -> dict[str, Any]:
    from everlearn.report.web.charts import specs

    return specs()


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed, as vl-convert carries them."""
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # its types do not say that the snippet may be left out
    return bundle().replace("</script", "<\\/script")
