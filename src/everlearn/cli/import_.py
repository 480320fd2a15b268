"""everlearn import: others' results beside ours."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.errors import MALFORMED, BadInput, parsed, plural

EXAMPLES = """Examples:
  everlearn import mammoth mammoth/data/results
  everlearn import avalanche logs/er-seed0 logs/er-seed1 --out er.json
  everlearn compare runs mammoth.json --against er"""


class Source(StrEnum):
    mammoth, avalanche = "mammoth", "avalanche"


@command(EXAMPLES)
def app(
    source: Annotated[Source, typer.Argument(metavar="mammoth|avalanche", help="The library that wrote the results.")],
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOGS", help="Mammoth's logs.pyd, Avalanche's eval_results.csv, or folders that have these."
        ),
    ],
    out: Annotated[Optional[Path], typer.Option("--out", help="The file to write.  [default: mammoth.json, …]")] = None,
    setting: Annotated[
        str, typer.Option("--setting", help="What Avalanche's accuracies are: class_il or task_il.")
    ] = "class_il",
) -> None:
    """Read results of other libraries into a document that `everlearn compare` shows beside ours."""
    from everlearn.collection import avalanche, collect, mammoth
    from everlearn.report import board, console

    if source is Source.mammoth and setting != "class_il":
        raise BadInput("--setting is for avalanche; mammoth's folders say which it is")
    found = mammoth.read(logs) if source is Source.mammoth else avalanche.read(logs, setting)
    file = out or Path(f"{source.value}.json")
    if file.exists() and not _ours(file):
        raise BadInput(f"{file} exists and is not an import; choose another --out")
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    screen = console()
    screen.print(board.sheet(board.board(collect([file], index=False))))
    screen.print(f"{plural(len(found['runs']), 'run')} written to {file}", soft_wrap=True)


def _ours(file: Path) -> bool:
    """Is the file there one that an earlier import wrote?"""
    try:
        return "imported" in parsed(file.read_text(encoding="utf-8"))
    except (OSError, *MALFORMED):
        return False
