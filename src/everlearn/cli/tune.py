"""everlearn tune: the best fixed weights, beside the learned ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from everlearn.cli.app import command
from everlearn.cli.options import (
    AsJson,
    Data,
    Device,
    Epochs,
    Fresh,
    Memory,
    Name,
    Network,
    OfStream,
    Out,
    Quiet,
    Seed,
    Seeds,
    Settings,
    Where,
    print_record,
    report_failures,
    seeded,
)


@command("Examples: everlearn tune er --memory 20, everlearn tune der++ --trials 50 --json")
def app(
    method: Name,
    stream: OfStream = "digits",
    network: Network = None,
    trials: Annotated[int, typer.Option(help="Number of trials, earlier ones included.", min=1, max=10_000)] = 20,
    memory: Memory = None,
    epochs: Epochs = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Settings = None,
    holdout: Annotated[float, typer.Option(help="Share of each class's training images that is held out.")] = 0.1,
    device: Where = Device.auto,
    out_dir: Out = Path("runs"),
    data: Data = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
) -> None:
    """Search the fixed weights of a method's loss terms on held-out training images.

    The best are compared with the defaults and with `relation`.
    """
    from everlearn.experiments import records, tune
    from everlearn.experiments.store import Store
    from everlearn.experiments.studies import Study
    from everlearn.report import console, tables
    from everlearn.report.progress import watched

    asked = dict(method=method, stream=stream, network=network, memory=memory, epochs=epochs)
    where: dict[str, Any] = dict(device=device.value, data=data)
    rivals = tune.rivals([one | where for one in seeded(seed, seeds, settings=settings, **asked)])
    store, out, log = Store(out_dir), console(), console(stderr=True, quiet=quiet)
    say = lambda line: log.print(line, style="dim", soft_wrap=True)
    label, own = next(iter(rivals.items()))
    found = tune.search(own, store, trials, holdout=holdout, fresh=fresh, tell=say, **where)
    tuned = [tune.weighed(experiment, found["best"]["weights"]) for experiment in own]
    rows = {f"{label}, tuned weights": tuned, f"{label}, default weights": rivals.pop(label), **rivals}
    each = list(dict.fromkeys(experiment for row in rows.values() for experiment in row))  # tuned may be the default
    results = dict(zip(each, watched(each, store, quiet, keep_going=True, fresh=fresh, **where)))
    study = Study(f"tune {label}", "", rows)
    if as_json:
        print_record({"search": found, **records.study(study, results, store)})
    else:
        there = records.complete(study, results)
        documents = {label: [*there.get(label, {}).values()] for label in rows}
        for table in tables.tuning(found, documents, f"{label} on {stream}"):
            out.print(table)
    report_failures(results)
