"""What each loss term costs: a step of DER++ with it, relative to a step of DER++.

    python benchmarks/term_cost.py [--device cuda] [--network resnet18] [--json FILE]

Images of 3×32×32, batch 32 and as many per memory draw, memory 200, the second task, so that there is a teacher. All
are timed in turn; the figures are medians over the rounds: on the CPU processor time, one thread; on a GPU, seconds.
"""

import argparse
import statistics
import time

import torch
from records import keep, options

from everlearn import Batch, DERpp, Draw, Learner, Pixels, Task, Term, cross_entropy, distance
from everlearn.core.capture import on_own_stream
from everlearn.methods import Retain
from everlearn.networks import CNN, ResNet18
from everlearn.terms import Adjusted, Decoupled, Distilled, Projected, agreement

NETWORKS = {"cnn": CNN, "resnet18": ResNet18}
CLASSES, BATCH = 4, 32


class WithDecoupled(DERpp):
    names = ("new", "apart", "dark", "memory")
    weights = preset = (1.0, 1.0, 0.1, 0.5)

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.decoupled = Decoupled()

    def learn(self, new: Batch) -> list[Term]:
        return self.decoupled(new)


class WithPrior(DERpp):
    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.adjusted = Adjusted()

    def learn(self, new: Batch) -> list[Term]:
        return [self.adjusted(new)]

    def rehearse(self, dark: Batch, labelled: Batch) -> list[Term]:
        return [distance(dark), self.adjusted(labelled)]


class WithDistilled(DERpp):
    names = ("new", "old heads", "dark", "memory")
    weights = preset = (1.0, 1.0, 0.1, 0.5)

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.distilled = Distilled()

    def learn(self, new: Batch) -> list[Term]:
        return [cross_entropy(new), self.distilled(new)]


class WithProjected(DERpp):
    names = ("new", "dark", "memory", "features")
    weights = preset = (1.0, 0.1, 0.5, 0.1)
    features = True

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.projected = Projected()

    def rehearse(self, dark: Batch, labelled: Batch) -> list[Term]:
        return [distance(dark), cross_entropy(labelled), self.projected(labelled)]


class WithAgreement(DERpp):
    """One draw in two views, where DER++ has two draws: the views share its terms, and are to agree."""

    names = ("new", "dark", "memory", "agree")
    weights = preset = (1.0, 0.1, 0.5, 0.1)
    draws = (Draw(views=(None, None)),)

    def rehearse(self, memory: Batch) -> list[Term]:
        return [distance(memory), cross_entropy(memory.others[0]), agreement(memory)]


WAYS = {
    "der++": (DERpp, {}),
    "decoupled": (WithDecoupled, {}),
    "prior-adjusted": (WithPrior, {}),
    "distilled": (WithDistilled, {}),
    "projected": (WithProjected, {}),
    "agreement": (WithAgreement, {}),
    "averaged": (DERpp, {"average": 0.999}),
    "retain": (Retain, {}),
}


def ready(name: str, network: str, device: str, steps: int) -> tuple[Learner, Task]:
    """A learner before its second task, of so many steps."""
    method, settings = WAYS[name]
    random = torch.Generator().manual_seed(0)
    task = lambda first, count: Task(
        (torch.randint(256, (count, 3, 32, 32), generator=random).to(torch.uint8), torch.arange(count) % 2 + first),
        classes=(first, first + 1),
    )
    torch.manual_seed(0)
    made = NETWORKS[network]((3, 32, 32), CLASSES)
    pixels = Pixels((0.5,) * 3, (0.25,) * 3, pad=4, flip=True)
    precision = "bfloat16" if device == "cuda" else "float32"
    common = dict(classes=range(CLASSES), inputs=pixels, memory=200, batch=BATCH, epochs=1, lr=1e-4, device=device)
    learner = Learner(made, method(), precision=precision, **common | settings)
    learner.update(task(0, 8 * BATCH))
    return learner, task(2, steps * BATCH)


def seconds(name: str, arguments: argparse.Namespace) -> float:
    """Of a step; the first ones, in which a GPU records it, are left out."""
    gpu = arguments.device == "cuda"
    first = 20 if gpu else 4
    learner, task = ready(name, arguments.network, arguments.device, arguments.steps + first)
    clock = time.perf_counter if gpu else time.process_time
    with on_own_stream():
        for number, _ in enumerate(learner.updating(task), 1):
            if number == first:
                torch.cuda.synchronize() if gpu else None
                start = clock()
        torch.cuda.synchronize() if gpu else None
    return (clock() - start) / arguments.steps


def main():
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", choices=list(NETWORKS), default="cnn")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    taken = {name: [] for name in WAYS}
    for _ in range(arguments.rounds):
        for name in WAYS:
            taken[name].append(seconds(name, arguments))
    median = {name: statistics.median(values) for name, values in taken.items()}
    rows = {
        name: {"ms": round(1e3 * value, 3), "of_derpp": round(value / median["der++"], 3)}
        for name, value in median.items()
    }
    for name, row in rows.items():
        print(f"{name:15} {row['ms']:8.2f} ms per step, {row['of_derpp']:.2f} of DER++'s")
    settings = {key: getattr(arguments, key) for key in ("device", "network", "rounds", "steps")}
    keep({"rows": rows, **settings, "torch": torch.__version__}, arguments.json)


if __name__ == "__main__":
    main()
