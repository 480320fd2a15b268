"""everlearn predict: what a trained network takes files for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from everlearn.cli.app import command, fail, tell
from everlearn.cli.options import AsJson, Built, BuiltWith, Device, Trained, Where, assignments, print_json
from everlearn.errors import BadInput, plural

EXAMPLES = """Examples:
  everlearn predict runs/digits-er-m100-e5-s0-… scan.png
  everlearn predict MODEL photos/ --top 3         a folder, all in it
  everlearn predict MODEL *.jpg --csv > found.csv
  everlearn predict MODEL samples.npz --json      the array x, or samples
  everlearn predict MODEL x.png --network net.py:make --set width=64"""


@command(EXAMPLES)
def app(
    run: Trained,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Pictures of any size, folders of them, or .npz and .npy files of samples."
        ),
    ],
    top: Annotated[int, typer.Option(help="How many classes to name, the most likely first.", min=1)] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a file that cannot be read.")] = False,
    network: Built = None,
    options: BuiltWith = None,
    device: Where = Device.auto,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Lines of comma-separated values on stdout.")] = False,
) -> None:
    """Predict the classes of files with a trained network.

    Pictures are brought to the size and colour it was taught with. One that cannot be read is skipped, and the exit
    code is then 1.
    """
    from everlearn.experiments import kept, use
    from everlearn.report import console, known

    if as_json and as_csv:
        raise BadInput("--json and --csv are two forms of the same; give one of the two")
    learner = kept.opened(run, network, assignments(options or []), device.value)
    found = use.ask(learner, files, top, strict)
    if as_json:
        print_json(known.answers(str(run), found))
    elif as_csv:
        print(known.guesses_csv(found.guesses, min(top, learner.classes)), end="")
    elif found.guesses:
        console().print(known.guesses(found.guesses))
    for _, reason in found.skipped:
        tell(f"{reason}; skipped")
    if found.skipped:
        fail(f"{len(found.skipped)} of {plural(found.files, 'file')} could not be read", 1)
