"""everlearn again: do the numbers come out the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from everlearn.cli.app import command, fail
from everlearn.cli.options import (
    AsJson,
    Data,
    Deterministic,
    Device,
    Edited,
    Fresh,
    Out,
    Pack,
    Quiet,
    Where,
    print_json,
    print_record,
    report_failures,
)
from everlearn.errors import BadInput, plural

EXAMPLES = """Examples:
  everlearn again runs/digits-er-m100-e5-s0-…
  everlearn again results/cifar10/*.json --device cuda
  everlearn again results/cifar10/*.json --dry-run     can they be run again?"""


@command(EXAMPLES)
def app(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RECORD", help="Folders of runs, or files with what `run --json` printed.")
    ],
    device: Where = Device.auto,
    out_dir: Out = Path("again"),
    data: Data = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read the records, say what would run, and run nothing.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
    pack: Pack = None,
    deterministic: Deterministic = False,
    edited: Edited = False,
) -> None:
    """Repeat runs from their records, and see whether the numbers come out the same."""
    from everlearn.experiments import provenance, records
    from everlearn.experiments.run import choose
    from everlearn.experiments.store import Store
    from everlearn.report import console, tables
    from everlearn.report.progress import watched

    then, store, out = {}, Store(out_dir, edited), console()
    for path in paths:
        for experiment, document in records.read(path, data, edited):
            if experiment in then:
                raise BadInput(f"{path} is a second record of {experiment.name}; compare one at a time")
            if store.path(experiment).resolve() in (path.resolve(), path.resolve().parent):
                raise BadInput(f"--out {out_dir} is where {path} itself is; choose another folder")
            precision = experiment.training.precision
            if not dry_run and choose(device.value) == "cpu" and precision != "float32":
                raise BadInput(f"{path} is of a run in {precision}, which needs a GPU")
            then[experiment] = document
    if dry_run:
        if as_json:
            return print_json({experiment.name: experiment.document() for experiment in then})
        return out.print(tables.listed(then))
    deterministic = deterministic or all(d.get("provenance", {}).get("deterministic") for d in then.values())
    here = provenance.here(choose(device.value)) | {"deterministic": deterministic}
    for experiment in [] if fresh else filter(store.has, then):
        # A repetition that is there already speaks for the code, versions and device it was made with.
        if not provenance.same(here, store.result(experiment)["provenance"]):
            store.forget(experiment)
    chosen: dict[str, Any] = dict(device=device.value, data=data, fresh=fresh, pack=pack, deterministic=deterministic)
    outcomes = dict(zip(then, watched(list(then), store, quiet, keep_going=True, **chosen)))
    pairs = {e.name: (then[e], now) for e, now in outcomes.items() if isinstance(now, dict)}
    if as_json:
        print_record({n: {"then": pair[0], "now": pair[1], "same": records.same(*pair)} for n, pair in pairs.items()})
    elif pairs:
        out.print(tables.again(pairs))
        out.print("In %. same: accuracies, of a task after a task, that are equal to the last digit.", style="dim")
    report_failures(outcomes)
    if others := sum(not records.same(*pair) for pair in pairs.values()):
        fail(f"{others} of {plural(len(pairs), 'run')} came out otherwise", 1)
