"""Is the net needed once its weights are known? RER and RDER, then ER and DER++ with their mean weights, epoch by
epoch, as a fixed schedule.

    python docs/replayed.py digits 10 > results/replayed-digits.json     # ten seeds

`…+replayed` follows the relational run of the same seed, `…+another's` that of the next seed.
"""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from everlearn import Weighting, metrics, run
from everlearn.core.terms import weighed
from everlearn.experiments import provenance, seals
from everlearn.experiments.studies import FAMILIES, OWN, study


class Replayed(Weighting):
    """Weights by task and epoch: `rows[task][epoch]` has one per term."""

    def __init__(self, rows: Sequence):
        self.rows = rows

    def begin(self, method, net, seed):
        self.row = torch.zeros(len(method.names)).to(net.theta)

    def begin_epoch(self, task, epoch, epochs):
        self.row.copy_(torch.tensor(self.rows[task][epoch]))

    def loss(self, method, step, terms):
        return weighed(terms.losses, self.row)


def watched(base: str, settings: dict) -> tuple[dict, list]:
    """A relational run and the mean weights of its epochs, task by task."""
    schedule: list = []

    def report(line: dict) -> None:
        if line["event"] == "epoch":
            means = [of["mean"] for of in line["weights"].values()] if "weights" in line else OWN[base]
            schedule.extend([[]] if line["epoch"] == 0 else [])
            schedule[-1].append(list(means))

    return run(FAMILIES[base], report=report, weights=OWN[base], **settings), schedule


def replayed(base: str, settings: dict, schedule: list) -> dict:
    return run(base, weighting=Replayed(schedule), **settings)


def tell(name: str, documents: dict[str, list[dict]]) -> None:
    """Print the rows in the form of a study's record."""
    kept = lambda d: {"seed": d["experiment"]["seed"], "class_il": {m: d["class_il"][m] for m in metrics.METRICS}}
    rows = {
        label: {"runs": [kept(d) for d in runs], "summary": metrics.across(runs)} for label, runs in documents.items()
    }
    made = provenance.merged([d["provenance"] for runs in documents.values() for d in runs])
    print(json.dumps(seals.sealed({"study": name, "rows": rows, "provenance": made}), indent=1))


def main(stream: str, seeds: int) -> None:
    documents = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for (er,) in study(f"phase-{stream}", 1, ["er"]).rows.values():  # as there, at each memory size
            memory, epochs, network = er.memory, er.training.epochs, er.network.name
            same = dict(stream=stream, memory=memory, epochs=epochs, network=network)
            for base in OWN:
                settings = [same | {"seed": seed} for seed in range(seeds)]
                relational, schedules = zip(*pool.map(watched, [base] * seeds, settings))
                own = pool.map(replayed, [base] * seeds, settings, schedules)
                anothers = pool.map(replayed, [base] * seeds, settings, schedules[1:] + schedules[:1])
                plain = [pool.submit(run, base, weights=OWN[base], **of) for of in settings]
                documents[f"{base}, M = {memory}"] = [future.result() for future in plain]
                documents[f"{FAMILIES[base]}, M = {memory}"] = relational
                documents[f"{base}+replayed, M = {memory}"] = list(own)
                documents[f"{base}+another's, M = {memory}"] = list(anothers)
    tell(f"replayed-{stream}", documents)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2])) if len(sys.argv) == 3 else sys.exit(__doc__)
