"""everlearn methods: what there is, and what can be set."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.cli.options import Weighting


@command("Examples: everlearn methods der++, everlearn methods er --weighting relation")
def app(
    method: Annotated[
        Optional[str], typer.Argument(help="One method, to see its equation, settings and their defaults.")
    ] = None,
    weighting: Weighting = None,
) -> None:
    """List the methods, or show one method's equation, settings and defaults."""
    from everlearn.report import catalogue, console

    for part in catalogue.methods() if method is None else catalogue.method(method, weighting):
        console().print(part)
