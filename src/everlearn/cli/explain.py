"""everlearn explain: what a run learned and forgot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.cli.options import Edited


@command("Examples: everlearn explain runs/digits-er-…, everlearn explain RUN --html page.html")
def app(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    html: Annotated[
        Optional[Path], typer.Option("--html", help="Write a self-contained page instead of printing.")
    ] = None,
    edited: Edited = False,
) -> None:
    """See what a run learned and forgot: accuracy of each class over the tasks, and which it was taken for. Also what
    the memory holds. For a run with `relation` also the weights over training, the net's answers, and which classes
    disturb which."""
    from everlearn.report import console
    from everlearn.report.page import page
    from everlearn.report.terminal import show

    out = console()
    if html is None:
        show(run, out, edited)
    else:
        html.write_text(page(run, edited), encoding="utf-8")
        out.print(f"written to {html}", soft_wrap=True)
