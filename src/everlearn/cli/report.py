"""everlearn report: many runs on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command, tell
from everlearn.cli.options import AsCsv, AsLatex, AsMarkdown, Edited, Only, Paths
from everlearn.errors import BadInput, printable

EXAMPLES = """Examples:
  everlearn report --html report.html                     of the runs in ./runs
  everlearn report results/cifar10 --html report.html
  everlearn report runs --only 'M = 200' --figures figures
  everlearn report runs --markdown                        its leaderboard as a table"""


@command(EXAMPLES)
def app(
    paths: Paths = None,
    html: Annotated[
        Optional[Path], typer.Option("--html", metavar="FILE", help="The page to write.  [default: report.html]")
    ] = None,
    figures: Annotated[
        Optional[Path],
        typer.Option("--figures", metavar="DIR", help="Write the charts as SVG and PDF; the page, too, with --html."),
    ] = None,
    as_csv: AsCsv = False,
    as_markdown: AsMarkdown = False,
    as_latex: AsLatex = False,
    only: Only = None,
    edited: Edited = False,
) -> None:
    """Write one self-contained page about many runs: leaderboard, what was forgotten, what it cost."""
    from everlearn.collection import chosen, collect
    from everlearn.report import board
    from everlearn.report.web.data import block
    from everlearn.report.web.page import CHARTLESS, charts, rendered

    if as_csv + as_markdown + as_latex > 1:
        raise BadInput("--csv, --markdown and --latex are one table each; give one of them")
    places = [str(path) for path in paths or [Path("runs")]]
    found = collect(places, edited=edited)
    remarks = list(board.remarks(found))
    found = chosen(found, only or [])
    for sentence in remarks:
        tell(sentence)
    table = as_csv or as_markdown or as_latex
    if table:
        print(board.text(found, {}, as_csv, as_latex))
        if html is None and figures is None:
            return
    data, say = block(found, places), tell if table else lambda words: print(printable(words))
    if html is not None or figures is None:
        html, made = html or Path("report.html"), rendered(data)
        html.write_text(made, encoding="utf-8")
        runs, size = sum(len(row.runs) for row in found.rows), max(0.1, len(made.encode()) / 1e6)
        say(f"written to {html} ({size:.1f} MB, {runs or 'no'} complete run{'s' * (runs != 1)})")
        if not charts():
            tell(CHARTLESS)
        if not runs and not remarks:
            tell(f"there is no complete run in {', '.join(places)}; `everlearn run er --out {places[0]}` makes one")
    if figures is not None:
        from everlearn.report.web.figures import write

        say(f"{len(write(data, figures))} files in {figures}")
