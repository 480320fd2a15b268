"""everlearn data: fetch data sets and see what is there."""

from __future__ import annotations

from typing import Annotated

import typer

from everlearn.cli.app import Listed, answered
from everlearn.cli.options import Data, Quiet
from everlearn.errors import BadInput

app = typer.Typer(
    cls=Listed,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="Download data sets, and check those that are here.",
)


@app.command(name="get", epilog="Example: everlearn data get cifar10")
@answered
def get(
    name: Annotated[str, typer.Argument(help="A data set; `everlearn streams` lists them.")],
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Download a data set, or the rest of one, and verify its published checksum."""
    from everlearn.data.download import get as fetch
    from everlearn.report import console
    from everlearn.report.progress import download_bar

    with download_bar(name, quiet) as progress:
        folder = fetch(name, data, progress)
    here = "comes with scikit-learn, nothing to fetch" if name == "digits" else f"here and verified, in {folder}"
    console().print(f"{name}: {here}", soft_wrap=True)


@app.command(name="check", epilog="Example: everlearn data check cifar10")
@answered
def check(
    name: Annotated[str, typer.Argument(help="A data set, npz:FILE or folder:DIR.")],
    data: Data = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a folder with files that cannot be read.")] = False,
) -> None:
    """Count the images of a data set, compare each file with its published checksum, and list caches."""
    from everlearn.data import sources
    from everlearn.report import catalogue, console

    statuses = sources.check(name, data, strict)
    for table in catalogue.files(name, statuses):
        console().print(table)
    if unread := [status for status in statuses if status.state == "unreadable" and sources.own(name)]:
        raise BadInput(f"{name} has files that cannot be read, {len(unread)} of them; repair or remove them")
    if any(status.state not in ("ok", "present", "skipped", "cache") for status in statuses):
        if own := sources.own(name):
            raise BadInput(f"there is no {'folder' if own[0] == 'folder' else 'file'} {own[1]}")
        command = sources.getting(name, data)
        raise BadInput(f"{name} is incomplete; {command} fetches it, or put the files named above in their place")
