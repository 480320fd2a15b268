"""The mean weights that nets learned in a study's runs, and how well they knew the memory, as a record.

    python docs/weights.py STUDY RUNS PATTERN [SEEDS] > results/STUDY-weights.json

such as `alone-digits runs '.*new alone.*'`: RUNS is the folder in which `everlearn study` kept them, PATTERN matches
whole labels of rows. Means are over the epochs past the warm-up, of each task from the second on.
"""

import json
import re
import sys
from statistics import fmean

from everlearn.experiments import seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.results import read_lines
from everlearn.experiments.store import Store
from everlearn.experiments.studies import study


def learned(experiment: Experiment, store: Store) -> dict:
    """Of one run."""
    result = store.result(experiment)
    if result is None:
        sys.exit(f"{experiment.name} is not complete in {store.root}")
    past: dict[int, list[dict]] = {}
    for line in read_lines(store.path(experiment)):
        if line["event"] == "epoch" and line["task"] and line.get("phase") == "relation":
            past.setdefault(line["task"], []).append(line)
    weights = [
        {term: mean(of["weights"][term]["mean"] for of in task) for term in task[0]["weights"]}
        for task in past.values()
    ]
    loss = mean(of["loss"]["memory"] for task in past.values() for of in task)
    commit = result["provenance"]["commit"]
    return {
        "run": experiment.name,
        "seed": experiment.seed,
        "commit": commit,
        "weights": weights,
        "loss of the memory": loss,
    }


def mean(values) -> float:
    return float(f"{fmean(values):.4g}")


def main(name: str, runs: str, pattern: str, seeds: str | None = None) -> None:
    every = study(name, int(seeds) if seeds else None).rows
    rows = {label: row for label, row in every.items() if re.fullmatch(pattern, label)}
    document = {label: [learned(experiment, Store(runs)) for experiment in row] for label, row in rows.items()}
    print(json.dumps(seals.sealed(document), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) in (4, 5) else sys.exit(__doc__)
