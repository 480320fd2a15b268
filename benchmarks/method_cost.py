"""Seconds an epoch of every method on the CPU, relative to fine-tuning, and beside avalanche-lib where it has it.

    python benchmarks/method_cost.py [--peer PYTHON SCRIPT] [--json FILE]

Split-Digits, MLP 64-100-10, batch 10 (+ 10), memory 100, 5 epochs a task, one thread. Every method is timed once a
round, in turn; the figures are medians over the rounds, processor time as the peer's own. PYTHON is an interpreter with
avalanche-lib, SCRIPT a program that takes a method's name and prints “… X ms an iteration …” for the same setting.
"""

import re
import statistics
import subprocess
import time

import torch
from records import keep, options

import everlearn
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.run import Run
from everlearn.experiments.studies import LITERATURE

PEERS = {  # what avalanche-lib calls them
    "finetune": "naive",
    "oewc": "ewc",
    "si": "si",
    "lwf": "lwf",
    "agem": "agem",
    "gem": "gem",
    "gss": "gss",
    "er": "er",
    "er-ace": "erace",
    "der++": "der",
}


def seconds(name: str, stream) -> float:
    """Processor seconds an epoch of 136 steps, what happens between tasks included."""
    e = Experiment.of(name)
    learner = Run(e, stream, "cpu").learner
    start = time.process_time()
    for task in [stream.merged()] if learner.method.merges else stream:
        learner.update(task)
    return (time.process_time() - start) / e.training.epochs


def peer(command: list[str], name: str) -> float:
    said = subprocess.run([*command, PEERS[name]], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"([\d.]+) ms an iteration", said)[1]) * 136 / 1e3


def version(command: list[str] | None) -> str | None:
    if command:
        ask = "import importlib.metadata as m; print('avalanche-lib', m.version('avalanche-lib'))"
        return subprocess.run([command[0], "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def main():
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", nargs=2, metavar=("PYTHON", "SCRIPT"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stream = everlearn.load("digits")
    ours = {name: [] for name in LITERATURE}
    theirs = {name: [] for name in LITERATURE if name in PEERS and arguments.peer}
    for _ in range(arguments.rounds):
        for name in LITERATURE:
            ours[name].append(seconds(name, stream))
            if name in theirs:
                theirs[name].append(peer(arguments.peer, name))
    median = {name: statistics.median(values) for name, values in ours.items()}
    rows = {
        name: {
            "seconds": round(median[name], 4),
            "of_finetune": round(median[name] / median["finetune"], 2),
            "of_peer": round(median[name] / statistics.median(theirs[name]), 2) if name in theirs else None,
        }
        for name in LITERATURE
    }
    for name, row in rows.items():
        beside = "" if row["of_peer"] is None else f", {row['of_peer']:.2f} of avalanche-lib's"
        print(f"{name:9} {row['seconds']:.3f} s an epoch, {row['of_finetune']:.2f} of fine-tuning{beside}")
    record = {"rows": rows, "rounds": arguments.rounds, "torch": torch.__version__, "peer": version(arguments.peer)}
    keep(record, arguments.json)


if __name__ == "__main__":
    main()
