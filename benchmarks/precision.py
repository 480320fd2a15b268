"""Does speed cost accuracy? bfloat16, captured, compiled and packed, against float32 and eager, on the same seeds.

    python benchmarks/precision.py --data DIR [--method rer] [--epochs 2] [--seeds 5] [--json FILE]

CIFAR-10 at the published settings but for the number of epochs. The eager runs are processes of their own, together.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from records import keep_of_gpu, options

from everlearn import Experiment
from everlearn.experiments.experiment import load, settable
from everlearn.experiments.run import Run, finish
from everlearn.experiments.store import Store
from everlearn.launchers import perform


def experiment(method: str, epochs: int, seed: int, precision: str) -> Experiment:
    """With the published Interval, which would else follow the number of epochs."""
    interval = 5 if "interval" in settable(method) else None
    return Experiment.of(method, "cifar10", epochs=epochs, seed=seed, precision=precision, interval=interval)


def eager(method: str, epochs: int, seed: int, data: Path) -> float:
    """Class-IL accuracy in float32, an operation at a time."""
    e = experiment(method, epochs, seed, "float32")
    run = Run(e, load(e.stream, data), "cuda", capture=False, compile=False)
    return finish(run.steps())["class_il"]["acc"]


def main():
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--method", default="rer")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.one is not None:
        return print(eager(a.method, a.epochs, a.one, a.data))
    again = [sys.executable, __file__, "--data", a.data, "--method", a.method, "--epochs", str(a.epochs), "--one"]
    processes = [subprocess.Popen([*again, str(seed)], stdout=subprocess.PIPE, text=True) for seed in range(a.seeds)]
    slow = [float(process.communicate()[0].split()[-1]) for process in processes]
    experiments = [experiment(a.method, a.epochs, seed, "bfloat16") for seed in range(a.seeds)]
    with tempfile.TemporaryDirectory() as folder:
        results = perform(experiments, Store(folder), device="cuda", data=a.data, pack=a.seeds)
    fast = [result["class_il"]["acc"] for result in results]
    spread = lambda values: {"mean": statistics.fmean(values), "std": statistics.stdev(values), "values": values}
    record = {
        "method": a.method,
        "epochs": a.epochs,
        "float32, eager": spread(slow),
        "bfloat16, captured, compiled, packed": spread(fast),
        "difference": statistics.fmean(fast) - statistics.fmean(slow),
    }
    keep_of_gpu(record, a.json)


if __name__ == "__main__":
    main()
