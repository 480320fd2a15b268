"""everlearn study: a grid of experiments that answers a question."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Optional

import typer

from everlearn.cli.app import command
from everlearn.cli.options import (
    Against,
    AsJson,
    Data,
    Deterministic,
    Device,
    Edited,
    Fresh,
    Keep,
    Only,
    Out,
    Pack,
    Quiet,
    Where,
    assignments,
    print_json,
    print_record,
    report_failures,
)

EXAMPLES = """Examples:
  everlearn study                               a list of all studies
  everlearn study digits --seeds 3              fifteen methods on Split-Digits
  everlearn study relation-digits --against er  and what each row gains on ER
  everlearn study table1-cifar10 --only 'M = 200' --dry-run
  everlearn study mine.toml --on slurm --launcher-option partition=gpu

A study of your own is a TOML file with a question, seeds, and one or more
[[grid]]. The keys of a grid are settings, and every combination of its
lists is run:

\b
  method = ["er", "mine.py:Brier"]
  weighting = ["fixed", "relation", "consolidate"]
  memory = [50, 100]"""


@command(EXAMPLES)
def app(
    name: Annotated[
        Optional[str],
        typer.Argument(metavar="NAME|FILE", help="A study or a TOML file; without it, a list of studies."),
    ] = None,
    seeds: Annotated[
        Optional[int], typer.Option(help="Number of seeds of each row.  [default: the study's]", min=1)
    ] = None,
    only: Only = None,
    against: Against = None,
    settings: Annotated[
        Optional[list[str]],
        typer.Option("--set", metavar="KEY=VALUE", help="A setting for all runs of the study that have it."),
    ] = None,
    on: Annotated[
        str, typer.Option("--on", help="Where to run: local, ray, slurm, module:attr or file.py:attr.")
    ] = "local",
    options: Annotated[
        Optional[list[str]],
        typer.Option(
            "--launcher-option",
            metavar="KEY=VALUE",
            help="An option of the launcher: address=… for Ray, partition=… for Slurm.",
        ),
    ] = None,
    jobs: Annotated[
        Optional[int],
        typer.Option(help="Worker processes, or jobs on a cluster, at a time.  [default: one per core]", min=1),
    ] = None,
    out_dir: Out = Path("runs"),
    data: Data = None,
    device: Where = Device.auto,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and run nothing.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
    keep: Keep = False,
    pack: Pack = None,
    deterministic: Deterministic = False,
    edited: Edited = False,
    most: Annotated[
        Optional[int], typer.Option("--max-runs", help="Refuse more runs than this.  [default: 20000]", min=1)
    ] = None,
) -> None:
    """Run a grid of experiments and print its table. Finished runs are not repeated, so a stopped study continues."""
    from everlearn.collection import rows
    from everlearn.experiments import records, studies
    from everlearn.experiments.store import Store
    from everlearn.launchers import device_of
    from everlearn.report import catalogue, console, tables
    from everlearn.report.progress import watched

    out, store = console(), Store(out_dir, edited)
    if name is None:
        return out.print(catalogue.studies())
    number = lambda word: int(word) if word.isdecimal() and len(word) < 20 else word
    own = {key: number(word) for key, word in assignments(options or [], "--launcher-option").items()}
    given = (
        assignments(settings or []) | {"device": device_of(on, device.value, own)} | ({"data": data} if data else {})
    )
    chosen = studies.study(name, seeds, only or [], given, most or studies.MOST)
    bases = {label: on.label for label, on in rows.bases(rows.planned(chosen), against).items()} if against else {}
    experiments = [experiment for row in chosen.rows.values() for experiment in row]
    chosen = chosen.here(only or [], assignments(settings or []))
    if dry_run:
        done = set(store.done(experiments))
        counts = {label: {"runs": len(row), "done": len(done.intersection(row))} for label, row in chosen.rows.items()}
        return print_json({"study": chosen.name, "rows": counts}) if as_json else out.print(tables.plan(chosen, done))
    where = dict(on=on, options=own, jobs=jobs, device=device.value, data=data, pack=pack)
    where |= dict(deterministic=deterministic, keep=keep)
    gc.freeze()  # what the imports left need not be looked through again for every few hundred results
    of = dict(zip(experiments, watched(experiments, store, quiet, keep_going=True, fresh=fresh, **where)))
    documents = {label: list(runs.values()) for label, runs in records.complete(chosen, of).items()}
    gains = records.gains(documents, bases)
    if as_json:
        found = records.study(chosen, of, store)
        for label, (base, gain) in gains.items():
            found["rows"][label]["gain"] = {"on": base, **gain} if gain else None
        print_record(found)
    else:
        out.print(tables.study(chosen, documents))
        if gains:
            out.print(tables.gains(gains))
        for line in tables.study_notes(chosen, documents) if documents else ():
            out.print(line, style="dim")
    report_failures(of)
