"""Milliseconds a step on a GPU at CIFAR-10 shapes: ResNet-18, batch 32 + 32 (+ 32), second task, past the warm-up.

    python benchmarks/gpu_step.py [--json FILE] [--quick]

Eager and captured, float32, tfloat32 and bfloat16, one run and five side by side; random images.
"""

import argparse
import json
import statistics

import torch

from recollect import Learner, Pixels
from recollect.experiments import RECIPES, defaults
from recollect.networks import build
from recollect.streams import STREAMS, Task

STEPS = 100


def measure(name: str, precision: str, capture: bool, together: int = 1) -> float:
    """Median milliseconds a step and run over the last epochs of a second task."""
    random = torch.Generator().manual_seed(0)
    part = lambda first: (
        torch.randint(0, 256, (32 * STEPS, 3, 32, 32), dtype=torch.uint8, generator=random).cuda(),
        (torch.randint(0, 2, (32 * STEPS,), generator=random) + first).cuda(),
    )
    tasks = [Task(part(0), part(0), (0, 1)), Task(part(2), part(2), (2, 3))]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.backends.cudnn.benchmark = True
    pixels: Pixels = STREAMS["cifar10"].pixels
    options = defaults(name, "cifar10") | (
        dict(interval=5, warmup=1) if RECIPES[name].weighting.__name__ == "Relation" else {}
    )
    learners = [
        Learner(
            RECIPES[name].build(options),
            build("resnet18", (3, 32, 32), 10, seed),
            classes=10,
            pixels=pixels,
            memory=200,
            epochs=4,
            batch=32,
            precision=precision,
            capture=capture,
            seed=seed,
            device="cuda",
        )
        for seed in range(together)
    ]
    torch.cuda.synchronize()
    seconds: list[list[float]] = [[] for _ in learners]

    def work(number: int):
        yield from learners[number].updating(tasks[0])
        yield from learners[number].updating(tasks[1], lambda record: seconds[number].append(record["seconds"]))

    running = [(work(number), torch.cuda.stream(torch.cuda.Stream())) for number in range(together)]
    while running:
        for pair in list(running):
            with pair[1]:
                if next(pair[0], running) is running:
                    running.remove(pair)
    return statistics.median(value for run in seconds for value in run[2:]) / STEPS * 1e3 / together


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true", help="bfloat16 only")
    arguments = parser.parse_args()
    rows = []
    for name in ("er", "rer", "der++", "rder"):
        for precision, capture, together in (
            ("tfloat32", False, 1),
            ("float32", True, 1),
            ("tfloat32", True, 1),
            ("bfloat16", True, 1),
            ("bfloat16", True, 5),
        ):
            if arguments.quick and precision != "bfloat16":
                continue
            ms = measure(name, precision, capture, together)
            rows.append(
                {
                    "method": name,
                    "precision": precision,
                    "captured": capture,
                    "together": together,
                    "milliseconds": round(ms, 3),
                }
            )
            print(
                f"{name:6} {precision:9} {'captured' if capture else 'eager':9} {together} together: {ms:7.2f} ms a step and run",
                flush=True,
            )
    record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
