"""everlearn demo: forgetting and its cure, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from everlearn.cli.app import command
from everlearn.cli.options import AsJson, Device, Fresh, Out, Quiet, Where, folders, print_record
from everlearn.errors import plural


@command("Example: everlearn demo")
def app(
    out_dir: Out = Path("runs"),
    seeds: Annotated[int, typer.Option(help="Runs of each method.", min=1, max=1000)] = 3,
    device: Where = Device.auto,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
) -> None:
    """See forgetting and its cure on Split-Digits: five tasks of two digits, a memory of 20 images, about a minute."""
    from everlearn.experiments import records, studies
    from everlearn.experiments.store import Store
    from everlearn.report import console, tables
    from everlearn.report.progress import watched

    rows, store, out = studies.demo(seeds), Store(out_dir), console()
    experiments = [experiment for row in rows.values() for experiment in row]
    found = dict(zip(experiments, watched(experiments, store, quiet, device=device.value, fresh=fresh)))
    by_method = {label: [found[experiment] for experiment in row] for label, row in rows.items()}
    if as_json:
        return print_record({label: records.several(runs) for label, runs in by_method.items()})
    title = f"Split-Digits, memory 20, 10 epochs per task, {plural(seeds, 'seed')}, in %"
    out.print(tables.results(by_method, title=title))
    out.print(
        "ACC: accuracy over all tasks at the end. BWT: what learning later tasks did to earlier ones. "
        "Class-IL: among all ten digits; Task-IL: among the task's two.",
        style="dim",
    )
    folders(experiments, store)
