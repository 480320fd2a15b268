"""everlearn teach: go on from a trained network with data of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command, fail
from everlearn.cli.options import (
    AsJson,
    Built,
    BuiltWith,
    Device,
    Force,
    Model,
    Quiet,
    Trained,
    Where,
    assignments,
    print_json,
)

EXAMPLES = """Examples:
  everlearn teach runs/digits-er-m100-e5-s0-… photos/monday --out MODEL
  everlearn teach MODEL photos/tuesday --out MODEL2 --epochs 3
  everlearn teach MODEL photos/tuesday --out MODEL --force     in place
  everlearn teach MODEL more.npz --validation 0.1   arrays x and y
  everlearn teach MODEL photos --network net.py:make --set width=64"""


@command(EXAMPLES)
def app(
    run: Trained,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A folder with a folder per class, or an .npz file with x and y.")
    ],
    out: Model = None,
    force: Force = False,
    epochs: Annotated[Optional[int], typer.Option("--epochs", help="Number of epochs.  [default: the run's]")] = None,
    validation: Annotated[
        Optional[float],
        typer.Option(metavar="SHARE", help="Share of the data to hold out, and to test on after each epoch."),
    ] = None,
    network: Built = None,
    options: BuiltWith = None,
    device: Where = Device.auto,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Teach a trained network more, and keep what it learned before.

    RUN is not changed. The new learner is saved to a folder of its own, which can be taught again. A new class gets an
    output of its own.
    """
    from everlearn.experiments import kept, use
    from everlearn.report import console, known

    try:
        with kept.room(out, run, force) as model:
            learner = kept.opened(run, network, assignments(options or []), device.value)
            lesson = use.teach(learner, data, epochs, validation, quiet)
            learner.save(model)
    except KeyboardInterrupt:
        fail(f"stopped; {run} is as it was, and nothing was saved", 130)
    if as_json:
        return print_json(
            {"learner": str(run), "data": str(data), "model": str(model), **known.lesson_document(lesson)}
        )
    screen = console()
    screen.print(known.lesson(lesson, f"{data}: {100 * lesson.right:.1f} % right"))
    if lesson.validation is not None and not quiet:
        screen.print(f"Right of the {lesson.held_out} samples held out: {100 * lesson.validation:.1f} %")
    if others := known.others(lesson):
        screen.print(others)
    if lost := [str(known.name) for known in lesson.classes if known.samples and not known.kept and learner.capacity]:
        words = f"The memory has room for none of {', '.join(lost)}, which may be forgotten; a run with"
        screen.print(f"{words} --memory balanced:{learner.capacity} keeps as many of each class.", style="dim")
    if not quiet:
        screen.print(f"Saved to {model}", soft_wrap=True)
