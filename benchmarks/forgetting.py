"""What it costs to take samples out of the memory: the accuracy of a class that was forgotten on request.

    python benchmarks/forgetting.py [--json FILE]

Split-Digits, five tasks of two classes, an MLP, memory 100. After the fourth task the memory loses nothing, a tenth of
its samples at random, half of them, or all of class 3; then the fifth task is learned. Five seeds.
"""

from collections.abc import Callable
from statistics import fmean, stdev

import torch
from records import keep, options

import everlearn
from everlearn.networks import build

CLASS, SEEDS = 3, range(5)


def requests(seed: int) -> dict[str, Callable]:
    """What is asked to be forgotten."""
    lots = torch.Generator().manual_seed(seed)
    drawn = lambda share: lambda sample, label: float(torch.rand((), generator=lots)) < share
    return {
        "nothing": lambda sample, label: False,
        "a tenth": drawn(0.1),
        "half": drawn(0.5),
        f"all of class {CLASS}": lambda sample, label: label == CLASS,
    }


def measured(method: str, request: str, seed: int, stream: everlearn.Stream) -> dict[str, float]:
    """Accuracy in %, before the request, after it and after the fifth task: of the class, and of all learned so far."""
    network = build("mlp", stream.shape, 10, seed=seed)
    made = dict(classes=range(10), memory=100, epochs=5, batch=10, lr=0.1, inputs=stream.pixels, seed=seed)
    learner = everlearn.Learner(network, method, **made)
    *first, last = stream
    for task in first:
        learner.update(task)
    old = [torch.cat(part) for part in zip(*(task.test for task in first))]
    own = [part[old[1] == CLASS] for part in old]
    score = lambda of: 100 * learner.score(*of)
    before = score(own), score(old)
    gone = learner.forget(requests(seed)[request])
    at_once = score(own), score(old)
    learner.update(last)
    names = ("class before", "old before", "class at once", "old at once", "class after", "old after")
    return dict(zip(names, (*before, *at_once, score(own), score(old)))) | {"rows": sum(gone.values())}


def main() -> None:
    arguments = options(__doc__).parse_args()
    torch.set_num_threads(1)
    stream, rows = everlearn.load("digits"), {}
    for method in ("er", "der++"):
        for request in requests(0):
            runs = [measured(method, request, seed, stream) for seed in SEEDS]
            found = {key: {"mean": fmean(of), "std": stdev(of)} for key in runs[0] for of in [[r[key] for r in runs]]}
            rows[f"{method}, {request}"] = found
            shown = ", ".join(f"{key} {of['mean']:.1f} ± {of['std']:.1f}" for key, of in found.items())
            print(f"{method}, {request}: {shown}")
    keep({"rows": rows, "seeds": len(SEEDS), "torch": torch.__version__}, arguments.json)


if __name__ == "__main__":
    main()
