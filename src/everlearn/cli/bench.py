"""everlearn bench: how fast it is here."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.cli.options import AsJson, Device, Quiet, Where, print_json


@command("Examples: everlearn bench, everlearn bench er rer --json")
def app(
    methods: Annotated[
        Optional[list[str]], typer.Argument(help="Methods to time.  [default: er rer der++ rder]")
    ] = None,
    device: Where = Device.auto,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed on this machine: milliseconds per step, images per second, peak memory.

    On a GPU: eager, captured as a CUDA graph, compiled, and with several runs at once.
    """
    from everlearn.experiments import bench
    from everlearn.experiments.run import choose
    from everlearn.report import console, tables

    out, log = console(), console(stderr=True, quiet=quiet)
    tell = lambda line: log.print(line, style="dim")
    document = bench.bench(choose(device.value), methods or bench.METHODS, tell)
    if as_json:
        return print_json(document)
    out.print(tables.bench(document))
    for line in tables.bench_notes(document):
        out.print(line)
