"""What does RDER lose to the rule by? DER++ past the warm-up with RDER's mean weights of all terms, of the memory's
two, or of one alone.

    python docs/mixed.py DATA > results/mixed-cifar10-cnn.json     # about two hours of one core

Split CIFAR-10 and a small CNN, as in `everlearn study phase-cifar10-cnn`; the weights are those on record in
results/phase-cifar10-cnn-weights.json, of the same seed. The rest of a mixed row is the rule's: 0 for new samples,
the preset for the memory.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from replayed import replayed, tell

from everlearn.experiments.studies import OWN, study

BASE, NAMES = "der++", ("new", "dark", "memory")
RULE = dict(zip(NAMES, OWN[BASE])) | {"new": 0.0}
TAKEN = {  # from RDER
    "replayed": NAMES,
    "its memory": ("dark", "memory"),
    "its labels": ("memory",),
    "its logits": ("dark",),
    "its new": ("new",),
}
WEIGHTS = Path(__file__).parents[1] / "results" / "phase-cifar10-cnn-weights.json"


def schedule(found: list[dict], taken: tuple[str, ...]) -> list:
    """Two epochs per task: the preset weights, then, but for the first task, the mixed ones."""
    preset = list(OWN[BASE])
    past = [preset, *([(RULE | {name: of[name] for name in taken})[name] for name in NAMES] for of in found)]
    return [[preset, last] for last in past]


def main(data: str) -> None:
    ((er,),) = study("phase-cifar10-cnn", 1, ["er"]).rows.values()
    same = dict(stream="cifar10", memory=er.memory, epochs=er.training.epochs, network="cnn", data=data)
    found = {of["seed"]: of["weights"] for of in json.loads(WEIGHTS.read_text())["rder"]}
    settings = [same | {"seed": seed} for seed in found]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        rows = {
            f"{BASE}+{kind}, M = {er.memory}": pool.map(
                replayed, [BASE] * len(found), settings, [schedule(of, taken) for of in found.values()]
            )
            for kind, taken in TAKEN.items()
        }
        tell("mixed-cifar10-cnn", {label: list(runs) for label, runs in rows.items()})


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
