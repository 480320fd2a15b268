"""everlearn report: many runs on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.cli.options import Edited

EXAMPLES = """Examples:
  everlearn report --html report.html                     of the runs in ./runs
  everlearn report results/cifar10 --html report.html
  everlearn report runs --only 'M = 200' --figures figures"""


@command(EXAMPLES)
def app(
    paths: Annotated[
        Optional[list[Path]],
        typer.Argument(metavar="[DIR]...", help="Folders of runs, studies' documents, records.  [default: runs]"),
    ] = None,
    html: Annotated[
        Optional[Path], typer.Option("--html", metavar="FILE", help="The page to write.  [default: report.html]")
    ] = None,
    figures: Annotated[
        Optional[Path],
        typer.Option("--figures", metavar="DIR", help="Write the charts as SVG and PDF, too, or alone without --html."),
    ] = None,
    only: Annotated[Optional[str], typer.Option("--only", help="Rows whose label has these words.")] = None,
    edited: Edited = False,
) -> None:
    """See many runs on one page that needs nothing else: leaderboard, what was forgotten, what it cost."""
    from everlearn.errors import printable
    from everlearn.report import console
    from everlearn.report.web.page import of_paths, rendered

    data, out = of_paths([str(path) for path in paths or [Path("runs")]], only, edited), console()
    if html is not None or figures is None:
        html, made = html or Path("report.html"), rendered(data)
        html.write_text(made, encoding="utf-8")
        out.print(f"written to {printable(html)} ({len(made.encode()) / 1e6:.1f} MB)", soft_wrap=True)
    if figures is not None:
        from everlearn.report.web.figures import write

        out.print(f"{len(write(data, figures))} files in {printable(figures)}", soft_wrap=True)
