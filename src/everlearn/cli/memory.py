"""everlearn memory: what a learner keeps of the past."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.cli.options import AsJson, Built, BuiltWith, Force, Trained, assignments, print_json
from everlearn.errors import BadInput, plural

EXAMPLES = """Examples:
  everlearn memory runs/digits-er-m100-e5-s0-…
  everlearn memory MODEL --html memory.html       its images, by class
  everlearn memory MODEL --forget anna --out LESS without those of anna"""


@command(EXAMPLES)
def app(
    run: Trained,
    html: Annotated[Optional[Path], typer.Option("--html", help="Write a self-contained page of its images.")] = None,
    forget: Annotated[
        Optional[list[str]],
        typer.Option(metavar="CLASS", help="Remove all samples of a class; may be repeated; needs --out."),
    ] = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="MODEL", help="Folder for the learner that has forgotten.")
    ] = None,
    force: Force = False,
    network: Built = None,
    options: BuiltWith = None,
    as_json: AsJson = False,
) -> None:
    """See which samples a learner keeps to rehearse, or make it forget some of them.

    Forgetting changes the memory alone: the network keeps what it learned from the samples.
    """
    from everlearn.experiments import kept, use
    from everlearn.report import console, memory

    if bool(forget) != (out is not None):
        raise BadInput(
            "--forget CLASS and --out MODEL go together: what is left is saved there, and RUN stays as it is"
        )
    screen = console()
    with contextlib.nullcontext() if out is None else kept.room(out, run, force):
        learner = kept.opened(run, network, assignments(options or []))
        if not learner.capacity:
            raise BadInput(f"the learner in {run} has no memory: {type(learner.method).__name__} keeps none")
        gone = use.forget(learner, forget or [])
        if out is not None:
            learner.save(out)
    if html is not None:
        html.write_text(memory.page(learner, run.resolve().name), encoding="utf-8")
    if as_json:
        more = {"forgotten": [{"class": name, "samples": count} for name, count in gone.items()]} if forget else {}
        return print_json({"learner": str(run), **memory.document(learner), **more})
    if html is None or forget:
        screen.print(memory.table(learner))
    for name, count in gone.items():
        screen.print(f"Forgotten: {name}, {plural(count, 'sample')}")
    for file in filter(None, (html, out)):
        screen.print(f"written to {file}", soft_wrap=True)
