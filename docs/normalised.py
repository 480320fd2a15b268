"""What does it cost to test on images that are normalised otherwise than those trained on? The authors' released code
normalises CIFAR-100's test images by CIFAR-10's constants.

    python docs/normalised.py DATA > results/normalised-cifar100.json     # an hour and a half of two cores

A narrow ResNet-18 learns Split CIFAR-100, memory 500, two epochs per task; each trained network is tested both ways.
"""

import dataclasses
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from replayed import tell

from everlearn import load, metrics
from everlearn.data import STREAMS
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.run import Run, finish

METHODS, SEEDS, OTHERS = ("er-ace", "der++"), 3, STREAMS["cifar10"].pixels
SETTINGS = dict(memory=500, epochs=2, network={"name": "resnet18", "width": 16})


def tested_twice(method: str, seed: int, data: str) -> tuple[dict, dict]:
    """A run's document, and the same with the accuracies under the other constants."""
    stream = load("cifar100", data=data)
    run = Run(Experiment.of(method, "cifar100", seed=seed, data=data, **SETTINGS), stream, "cpu")
    document = finish(run.steps())
    run.learner.inputs = dataclasses.replace(stream.pixels, mean=OTHERS.mean, std=OTHERS.std)
    measured = run.learner.evaluate(stream)._asdict()
    last = {setting: metrics.summary([row], document[setting]["untrained"]) for setting, row in measured.items()}
    return document, document | last


def main(data: str) -> None:
    keys = [(method, seed, data) for method in METHODS for seed in range(SEEDS)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        pairs = list(pool.map(tested_twice, *zip(*keys)))
    rows = {}
    for (method, _, _), (own, other) in zip(keys, pairs):
        rows.setdefault(f"{method}, as trained", []).append(own)
        rows.setdefault(f"{method}, CIFAR-10's", []).append(other)
    tell("normalised-cifar100", rows)


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
