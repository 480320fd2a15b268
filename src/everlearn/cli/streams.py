"""everlearn streams: what there is to learn from."""

from __future__ import annotations

from everlearn.cli.app import command
from everlearn.cli.options import Data


@command("Example: everlearn streams")
def app(data: Data = None) -> None:
    """List the streams, their tasks, and whether their data are here."""
    from everlearn.report import catalogue, console

    console().print(catalogue.streams(data))
