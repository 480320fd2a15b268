"""BatchNorm and small lessons: new samples and memory normalised apart (`forward=separate`), or together (`joint`).

    python benchmarks/lessons.py [--json FILE]

Digits, a network with a BatchNorm layer, memory 200: taught one class at a time, two, or a few samples at a time.
Accuracy on all classes at the end, five seeds.
"""

from collections.abc import Iterator
from statistics import fmean, stdev

import torch
from records import keep, options
from torch import Tensor, nn

import everlearn

SEEDS, METHODS, WAYS = range(5), ("er", "er-ace", "der++", "retain"), ("separate", "joint")
Lesson = tuple[Tensor, Tensor]


def by_class(x: Tensor, y: Tensor, classes: int) -> Iterator[Lesson]:
    """So many classes in each lesson."""
    for first in range(0, 10, classes):
        chosen = (y >= first) & (y < first + classes)
        yield x[chosen], y[chosen]


def few(x: Tensor, y: Tensor, samples: int) -> Iterator[Lesson]:
    """Half of all at once, then so many in each lesson, sorted by class."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    half, rest = order[: len(y) // 2], order[len(y) // 2 :]
    yield x[half], y[half]
    for part in rest[y[rest].argsort()].split(samples):
        yield x[part], y[part]


LESSONS = {
    "one class": lambda x, y: by_class(x, y, 1),
    "two classes": lambda x, y: by_class(x, y, 2),
    "8 samples of a class": lambda x, y: few(x, y, 8),
}


def score(method: str, forward: str, lessons: str, seed: int, stream: everlearn.Stream) -> float:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 10))
    made = dict(memory=200, epochs=5, batch=32, lr=0.1, inputs=stream.pixels, seed=seed, forward=forward)
    learner = everlearn.Learner(network, method, **made)
    whole = stream.merged()
    for lesson in LESSONS[lessons](*whole.train):
        learner.update(*lesson, progress=False)
    return 100 * learner.score(*whole.test)


def main() -> None:
    arguments = options(__doc__).parse_args()
    torch.set_num_threads(1)
    stream, rows = everlearn.load("digits"), {}
    for lessons in LESSONS:
        for method in METHODS:
            for forward in WAYS:
                found = [score(method, forward, lessons, seed, stream) for seed in SEEDS]
                rows[f"{lessons}, {method}, {forward}"] = {"mean": fmean(found), "std": stdev(found)}
                print(f"{lessons}, {method}, {forward}: {fmean(found):.1f} ± {stdev(found):.1f}", flush=True)
    keep({"rows": rows, "seeds": len(SEEDS), "torch": torch.__version__}, arguments.json)


if __name__ == "__main__":
    main()
