"""The weights the RRN gave, in the runs of the reproduction and in studies of our own."""

from functools import partial
from math import hypot, log
from statistics import fmean, median

import reproduce
from reproduce import experiment

from everlearn.experiments.studies import SIX
from tables.records import every_run, named, record, usual
from tables.text import markdown


def curves(stream: str = "cifar10") -> list[tuple[dict, dict]]:
    """The relational runs of which epochs were kept, and these."""
    epochs = sorted((reproduce.RESULTS / f"{stream}-epochs").glob("*.json"))
    return [(record(reproduce.RESULTS / stream / file.name), record(file)) for file in epochs]


def related(curve: dict, task: int) -> list[int]:
    """The epochs of a task in which the RRN's weights were used."""
    return [i for i, of in enumerate(curve["task"]) if of == task and curve["phase"][i] == "r"]


def means(curve: dict, task: int, digits: int) -> str:
    """The mean weights in these epochs, in the order of the terms."""
    epochs = related(curve, task)
    return ", ".join(f"{fmean(of[i] for i in epochs):.{digits}f}" for of in curve["weights"].values())


def loudest(curve: dict, task: int) -> str:
    """The largest mean loss on the memory in these epochs but the first."""
    return f" ({max(curve['loss']['memory'][i] for i in related(curve, task)[1:]):.3f})"


def tasks(number: int) -> list[str]:
    """Those with weights of the RRN: all but the first."""
    return [f"task {task}" for task in range(2, number + 1)]


def found(stream: str, number: int, digits: int, loss: bool) -> str:
    """The weights the RRN gave after the warm-up, task by task, averaged over these epochs; with `loss` the largest on
    the memory, too."""
    by_method = lambda e: (e.label, e.memory, str(e.weighting), e.seed)
    rows = []
    for run, curve in sorted(curves(stream), key=lambda pair: by_method(experiment(pair[0]))):
        *name, order = named(run)
        if order != "printed":
            continue
        cells = [means(curve, task, digits) + (loudest(curve, task) if loss else "") for task in range(1, number)]
        rows.append([*name, str(experiment(run).seed), *cells, f"{run['class_il']['acc']:.2f}"])
    return markdown(["method", "memory", "preset", "seed", *tasks(number), "Class-IL ACC"], rows)


def moved() -> str:
    """How far the mean weights go from the epoch before one to the epoch after, where the memory's loss in it is small
    and where it is large."""
    logit = lambda weight: log(max(weight, 1e-5) / max(1 - weight, 1e-5))
    seen: dict[str, list[tuple[float, float]]] = {}
    for run, curve in curves():
        if named(run)[-1] != "printed":
            continue
        for task in range(1, 5):
            for before, now, after in zip(*(related(curve, task)[start:] for start in range(3))):
                way = hypot(*(logit(of[after]) - logit(of[before]) for of in curve["weights"].values()))
                seen.setdefault(experiment(run).label, []).append((curve["loss"]["memory"][now], way))
    rows = []
    for method in filter(seen.get, SIX):
        epochs = sorted(seen[method])
        parts = epochs[: len(epochs) // 2], epochs[-(len(epochs) // 10) :]
        cells = [f"{median(of):.{digits}f}" for part in parts for of, digits in zip(zip(*part), (4, 2))]
        rows.append([f"`{method}`", str(len(epochs)), *cells])
    header = ["memory's loss, quiet half", "way", "memory's loss, loudest tenth", "way"]
    return markdown(["method", "epochs", *header], rows)


def gains() -> str:
    """What RER gained on ER's same seed, by the weight its net gave new samples in the last task."""
    baseline = {
        (e.memory, e.seed): run["class_il"]["acc"]
        for run in every_run()
        if (e := experiment(run)).label == "er" and e == usual(e)
    }
    rows = []
    for run, curve in curves():
        e = experiment(run)
        if e.label == "rer" and (e.memory, e.seed) in baseline:
            new = fmean(curve["weights"]["new"][i] for i in related(curve, 4))
            gain = run["class_il"]["acc"] - baseline[e.memory, e.seed]
            rows.append([f"{new:.4f}", *named(run)[1:], str(e.seed), f"{gain:+.2f}"])
    return markdown(["new samples' weight in task 5", "memory", "preset", "order", "seed", "gain on ER"], sorted(rows))


def by_seed(path: str) -> str:
    """Mean weights past the warm-up, seed by seed, of each task from the second on."""
    rows = [
        [f"`{method}`", str(run["seed"]), *(", ".join(f"{w:.2f}" for w in task.values()) for task in run["weights"])]
        for method, runs in record(path).items()
        for run in runs
    ]
    return markdown(["method", "seed", *tasks(5)], rows)


def by_memory(path: str) -> str:
    """The same, a mean over the seeds."""
    mean = lambda runs, task: ", ".join(
        f"{fmean(w):.2f}" for w in zip(*(run["weights"][task].values() for run in runs))
    )
    found = record(path)
    (number,) = {len(run["weights"]) for runs in found.values() for run in runs}
    rows = [[f"`{label}`", *(mean(runs, task) for task in range(number))] for label, runs in found.items()]
    return markdown(["new, logits, labels", *tasks(number + 1)], rows)


ALONE = ("alone-digits", "alone-fashion-mnist")
TABLES = {
    "weights-cifar10": partial(found, "cifar10", 5, digits=3, loss=True),
    "weights-cifar100": partial(found, "cifar100", 10, digits=2, loss=False),
    "weights-moved": moved,
    "gains-by-weight": gains,
    "phase-cifar10-cnn-weights": partial(by_seed, "results/phase-cifar10-cnn-weights.json"),
    **{
        f"{name}-weights": partial(by_memory, f"results/{name}-weights.json")
        for name in ("outer-digits", "outer-cifar10-cnn", "outer-cifar100-cnn", *ALONE)
    },
}
