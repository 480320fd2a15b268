"""The figures of the pages: those of the report, on the records."""

import json
import re
from functools import cache, partial

import vl_convert

from everlearn.experiments.studies import FAMILIES
from everlearn.report.web import figures
from everlearn.report.web.page import of_paths
from tables.records import ROOT
from tables.studies import ALIKE

FONT = "Liberation Sans, Arial, sans-serif"  # the converter has it: the same file on every machine


@cache
def charts(path: str, *only: str) -> dict[str, dict]:
    """The report's figures on a record or a stream's records."""
    return dict(figures.figures(of_paths([str(ROOT / "results" / path)], only)))


def drawn(spec: dict) -> str:
    return vl_convert.vegalite_to_svg(json.dumps(spec | {"config": figures.STYLE | {"font": FONT}})) + "\n"


def similarity(records: str) -> str:
    """The mean weights RER gives validation samples after the second task, a point a seed: the paper's Fig. 5b."""
    return drawn(charts(records, "rer")["similarity"])


def curves(stream: str, base: str, memory: int) -> str:
    """The paper's Fig. 4, and those of its appendix: each task's accuracy over the stream, a baseline beside its
    relational version."""
    start = re.compile(rf"pair-{re.escape(base)}-m{memory}\b.*-{FAMILIES[base]}-m{memory}(-weights-1-0.5)?-class$")
    (name,) = filter(start.match, charts(stream))
    return drawn(charts(stream)[name])


FIGURES = {
    **{f"docs/{name}.svg": partial(similarity, f"{name}.json") for name in ALIKE},
    "docs/similarity-cifar10.svg": partial(similarity, "similarity"),
    **{
        f"docs/curves-{stream}-{base}-{memory}.svg": partial(curves, stream, base, memory)
        for stream in ("cifar10", "cifar100")
        for base in FAMILIES
        for memory in (200, 500)
    },
}
