"""Studies: grids of experiments that answer a question, each a function returning rows of experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recollect.experiments import Experiment

Rows = Mapping[str, list[Experiment]]  # a table's row label: its experiments, one a seed

FAMILIES = {"er": "rer", "er-ace": "rer-ace", "der++": "rder"}  # a baseline and its relational version


LITERATURE = (  # bounds outside; regularisers, constraints, selections, rehearsal, relations
    *("finetune", "oewc", "si", "lwf", "agem", "gem", "icarl", "gss"),
    *("er", "rer", "er-ace", "rer-ace", "der++", "rder", "joint"),
)


def all_methods(seeds: int = 10, stream: str = "digits", **settings) -> Rows:
    """Every method of the literature beside the relational ones, each with its own defaults."""
    return {
        method: [Experiment.of(method, stream, seed=seed, **settings) for seed in range(seeds)] for method in LITERATURE
    }


def relation(
    seeds: int = 10, network: str = "mlp", memories: tuple[int, ...] = (20, 50, 100), epochs: int = 10
) -> Rows:
    """Does the relation help on Split-Digits? Baselines, both orders of update, the rule without a net, and the paper's other ways."""
    rows: dict[str, list[Experiment]] = {}
    for memory in memories:
        for base, relational in FAMILIES.items():
            preset = (1, 0.2, 0.5) if base == "der++" else (1, 1)
            for label, method, more in (
                (base, base, {}),
                (relational, relational, {}),
                (f"{relational} fresh", relational, dict(order="fresh")),
                *((f"{base}+{way}", f"{base}+{way}", {}) for way in ("consolidate", "split", "vanilla")),
            ):
                rows[f"{label}, M = {memory}"] = [
                    Experiment.of(
                        method,
                        "digits",
                        memory=memory,
                        epochs=epochs,
                        network=network,
                        weights=preset,
                        seed=seed,
                        **more,
                    )
                    for seed in range(seeds)
                ]
    return rows


# Two classes to learn first, then two that resemble them or two that do not. CIFAR-10's are the paper's.
SIMILARITY = {
    "cifar10": (("ship", "truck"), ("airplane", "automobile"), ("cat", "horse"), dict(memory=200, epochs=50)),
    "digits": (("3", "4"), ("8", "9"), ("0", "6"), dict(memory=20, epochs=10)),
    "fashion-mnist": (("Pullover", "Sneaker"), ("Coat", "Sandal"), ("Trouser", "Bag"), dict(memory=50, epochs=2)),
}


def similarity(stream: str, seeds: int = 10, methods: tuple[str, ...] = ("er", "rer", "er+consolidate")) -> Rows:
    """How does the likeness of tasks affect them? Setup 1: the second task is like the first. Setup 2: it is not."""
    first, like, unlike, settings = SIMILARITY[stream]
    return {
        f"{method}, setup {number} ({', '.join(second)} after {', '.join(first)})": [
            Experiment.of(method, stream, classes=first + second, tasks=2, seed=seed, weights=(1, 1), **settings)
            for seed in range(seeds)
        ]
        for method in methods
        for number, second in ((1, like), (2, unlike))
    }


STUDIES: dict[str, tuple[Callable[[int], Rows], str]] = {
    "digits": (lambda seeds: all_methods(seeds), "all fifteen methods on Split-Digits, memory 100, 5 epochs"),
    "relation-digits": (
        lambda seeds: relation(seeds),
        "relational methods on Split-Digits, MLP, memory 20, 50 and 100",
    ),
    "relation-digits-cnn": (lambda seeds: relation(seeds, "cnn"), "the same with a CNN"),
    **{
        f"similarity-{stream}": (
            lambda seeds, stream=stream: similarity(stream, seeds),
            f"does it matter whether tasks are alike? Two tasks of {stream}",
        )
        for stream in SIMILARITY
    },
}
