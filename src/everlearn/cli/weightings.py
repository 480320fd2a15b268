"""everlearn weightings: how the terms of a method can be weighed."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from everlearn.cli.app import command


@command("Examples: everlearn weightings, everlearn weightings relation")
def app(
    weighting: Annotated[
        Optional[str], typer.Argument(help="One weighting, to see its options and their defaults.")
    ] = None,
) -> None:
    """List the weightings, or show what one does and its options. Any goes with any method that rehearses."""
    from everlearn.report import catalogue, console

    for part in catalogue.weightings() if weighting is None else catalogue.weighting(weighting):
        console().print(part)
