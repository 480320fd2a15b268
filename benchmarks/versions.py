"""Is a step as fast as it was? Two states of the code on a GPU, measured in turn.

    python benchmarks/versions.py NAME=FOLDER:MODULE NAME=FOLDER:MODULE [--processes 2] [--rounds 2] [--json FILE]

FOLDER holds the sources, MODULE is their bench: `before=old/src:everlearn.experiments.bench`. Each of the two has a
process of its own, and while one measures the other waits. A round is every method in every way, first by one and then
by the other; the next round begins with the other. `--processes` starts both anew, for what libraries choose at their
start may differ. Steps are those of `everlearn bench`.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

from records import keep_of_gpu, options

METHODS = ("er", "der++", "rder")
WAYS = {  # steps an epoch, precision, captured, compiled
    "captured + compiled": (100, "bfloat16", True, True),
    "captured, float32": (20, "float32", True, False),
    "eager, float32": (10, "float32", False, False),
}


def measure(bench, method: str, name: str, device: str = "cuda") -> float:
    """Milliseconds per step, a median over the last two epochs of a second task."""
    steps, precision, *how = WAYS[name]
    learner = bench.learner_of(method, device, bench.Way(name, precision, *how))
    first, second = bench.tasks_of(bench.SHAPES[device]._replace(steps=steps), device)
    seconds = []
    with bench.arithmetic(learner, precision), bench.own_stream():
        learner.update(first)
        learner.update(second, lambda record: seconds.append(record["seconds"]))
    return statistics.median(seconds[2:]) / steps * 1e3


def answer(module: str) -> None:
    """Measure what is asked for, a line each."""
    bench = importlib.import_module(module)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(bench, *json.loads(line))), flush=True)


class Worker:
    """A state of the code, waiting in a process of its own."""

    def __init__(self, place: str):
        folder, _, module = place.rpartition(":")
        command, environment = [sys.executable, __file__, "--answer", module], os.environ | {"PYTHONPATH": folder}
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process = subprocess.Popen(command, env=environment, **pipes)

    def read(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, *words: str) -> float:
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("versions", nargs="*", metavar="NAME=FOLDER:MODULE")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.answer:
        return answer(a.answer)
    places = dict(version.split("=", 1) for version in a.versions)
    names, start = list(places), time.perf_counter()
    times = {way: {method: {name: [] for name in names} for method in METHODS} for way in WAYS}
    for _ in range(a.processes):
        workers = {name: Worker(place) for name, place in places.items()}
        for worker in workers.values():
            worker.read()
        for number in range(a.rounds):
            for way in WAYS:
                for method in METHODS:
                    for name in names[:: 1 if number % 2 == 0 else -1]:
                        times[way][method][name].append(round(workers[name].ask(method, way), 3))
                    print(f"{time.perf_counter() - start:.0f} s: {way}, {method}: {times[way][method]}", flush=True)
        for worker in workers.values():
            worker.end()
    middle = {
        way: {method: {name: round(statistics.median(of[name]), 3) for name in names} for method, of in methods.items()}
        for way, methods in times.items()
    }
    old, new = names
    ratio = {way: {m: round(of[new] / of[old], 3) for m, of in methods.items()} for way, methods in middle.items()}
    command = f"python benchmarks/versions.py {' '.join(a.versions)} --processes {a.processes} --rounds {a.rounds}"
    record = {"command": command, f"{new} / {old}": ratio, "medians": middle, "milliseconds": times}
    keep_of_gpu(record, a.json)


if __name__ == "__main__":
    main()
