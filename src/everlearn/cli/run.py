"""everlearn run: one method over one stream."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from everlearn.cli.app import command
from everlearn.cli.options import (
    AsJson,
    Data,
    Deterministic,
    Device,
    Epochs,
    Fresh,
    Keep,
    Memory,
    Name,
    Network,
    OfStream,
    Out,
    Pack,
    Quiet,
    Seed,
    Seeds,
    Settings,
    Weighting,
    Where,
    folders,
    print_record,
    seeded,
)
from everlearn.errors import Notice

EXAMPLES = """Examples:
  everlearn run er                               the default stream, Split-Digits
  everlearn run der++ --weighting relation       weights learned by a relation
  everlearn run der++ --memory 50 --seeds 5      mean ± std of five seeds
  everlearn run er --stream cifar10 --memory 200 --device cuda
  everlearn run mine.py:Brier --set alpha=0.5    a method of your own
  everlearn run er --stream folder:photos --json > er.json"""


@command(EXAMPLES)
def app(
    method: Name,
    weighting: Weighting = None,
    stream: OfStream = "digits",
    network: Network = None,
    memory: Memory = None,
    epochs: Epochs = None,
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Settings = None,
    device: Where = Device.auto,
    out_dir: Out = Path("runs"),
    data: Data = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    fresh: Fresh = False,
    keep: Keep = True,
    pack: Pack = None,
    deterministic: Deterministic = False,
) -> None:
    """Run one method over one stream of tasks and measure what it remembers."""
    from everlearn.experiments import records
    from everlearn.experiments.experiment import Experiment
    from everlearn.experiments.store import Store
    from everlearn.report import console, tables
    from everlearn.report.progress import watched

    asked = dict(method=method, weighting=weighting, stream=stream, network=network, memory=memory, epochs=epochs)
    where: dict[str, Any] = dict(data=data, device=device.value)
    experiments = [Experiment.of(**one, **where) for one in seeded(seed, seeds, settings=settings, **asked)]
    if memory not in (None, "0") and not experiments[0].memory:
        warnings.warn(
            f"{experiments[0].label} keeps no memory; --memory {memory} changes nothing", Notice, stacklevel=1
        )
    store, out = Store(out_dir), console()
    how = dict(fresh=fresh, keep=keep, pack=pack, deterministic=deterministic)
    documents = watched(experiments, store, quiet, **how, **where)
    if as_json:
        return print_record(records.several(documents) if seeds else documents[0])
    if len(documents) == 1 and not quiet:
        out.print(tables.matrix(documents[0]["class_il"]["matrix"], "Class-IL accuracy on each task, in %"), crop=False)
    out.print(tables.settings(documents, title=f"{experiments[0].label} on {stream}, in %"))
    if not quiet:
        folders(experiments, store)
