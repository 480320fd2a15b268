"""everlearn watch: the page of many runs while they are under way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.cli.options import Edited

EXAMPLES = """Examples:
  everlearn watch                  of the runs in ./runs
  everlearn watch study --port 8000"""


@command(EXAMPLES)
def app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of runs.")] = Path("runs"),
    port: Annotated[
        Optional[int],
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port of the page's address; 0 takes any free one.  [default: 8787 if it is free]",
        ),
    ] = None,
    edited: Edited = False,
) -> None:
    """Watch the runs of a folder on a page that updates itself. Only this machine can open it."""
    from everlearn.errors import printable
    from everlearn.report.web.watch import HERE, serve

    server = serve(str(folder), port, edited)
    try:
        print(f"watching {printable(folder)} at http://{HERE}:{server.port}/ until Ctrl-C", flush=True)
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print("no longer watching")
    finally:
        server.server_close()
