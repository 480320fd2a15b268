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


def means(curve: dict, task: int, digits: int = 3) -> str:
    """The mean weights in these epochs, in the order of the terms."""
    epochs = related(curve, task)
    return ", ".join(f"{fmean(of[i] for i in epochs):.{digits}f}" for of in curve["weights"].values())


def tasks(number: int) -> list[str]:
    """Those with weights of the RRN: all but the first."""
    return [f"task {task}" for task in range(2, number + 1)]


def found(*kind: str, number: int = 5) -> str:
    """The weights the RRN gave after the warm-up, task by task, averaged over these epochs, and the largest loss on the
    memory in any but the first of them."""
    rows = []
    for run, curve in curves():
        if named(run) != list(kind):
            continue
        cells = []
        for task in range(1, number):
            worst = max(curve["loss"]["memory"][i] for i in related(curve, task)[1:])
            cells.append(f"{means(curve, task)} ({worst:.3f})")
        rows.append([str(experiment(run).seed), *cells, f"{run['class_il']['acc']:.2f}"])
    return markdown(["seed", *tasks(number), "Class-IL ACC"], rows)


def beside(stream: str, number: int) -> str:
    """The same of all relational methods, without the loss."""
    rows = []
    for run, curve in curves(stream):
        label, memory, _, order = named(run)
        if order == "printed":
            cells = [means(curve, task, digits=2) for task in range(1, number)]
            rows.append([label, memory, str(experiment(run).seed), *cells, f"{run['class_il']['acc']:.2f}"])
    return markdown(["method", "memory", "seed", *tasks(number), "Class-IL ACC"], rows)


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


FOUND = {  # table: what `named` says of its runs
    "rer-weights": ("`rer`", "200", "1, 0.5", "printed"),
    "rer-weights-1-1": ("`rer`", "200", "1, 1", "printed"),
    "rer-weights-500": ("`rer`", "500", "1, 0.5", "printed"),
    "rer-weights-5120": ("`rer`", "5120", "1, 0.5", "printed"),
    "rer-ace-weights": ("`rer-ace`", "200", "1, 0.5", "printed"),
    "rer-ace-weights-500": ("`rer-ace`", "500", "1, 0.5", "printed"),
    "rder-weights-50": ("`rder`", "50", "1, 0.2, 0.5", "printed"),
    "rder-weights": ("`rder`", "200", "1, 0.2, 0.5", "printed"),
    "rder-weights-500": ("`rder`", "500", "1, 0.2, 0.5", "printed"),
    "rder-weights-5120": ("`rder`", "5120", "1, 0.2, 0.5", "printed"),
}
ALONE = ("alone-digits", "alone-fashion-mnist")
TABLES = {
    **{table: partial(found, *kind) for table, kind in FOUND.items()},
    "weights-cifar100": partial(beside, "cifar100", 10),
    "weights-moved": moved,
    "gains-by-weight": gains,
    "phase-cifar10-cnn-weights": partial(by_seed, "results/phase-cifar10-cnn-weights.json"),
    **{
        f"{name}-weights": partial(by_memory, f"results/{name}-weights.json")
        for name in ("outer-digits", "outer-cifar10-cnn", "outer-cifar100-cnn", *ALONE)
    },
}
