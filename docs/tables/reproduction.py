"""The paper's figures and ours."""

from functools import partial
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import reproduce
from reproduce import experiment
from scipy.special import stdtr

from everlearn import metrics
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import Figure, published
from everlearn.experiments.studies import FAMILIES, SIX, STUDIES
from everlearn.report.tables import SHOWN, compared
from tables.records import OF_STREAM, as_published, as_usual, every_run, files, groups, named, record
from tables.retain import PUBLISHED, SIZES, TITLES
from tables.text import gained, markdown, short, wrapped

NAMED = ["method", "memory", "weights"]
STREAMS = {stream: TITLES[stream] for stream in ("cifar10", "cifar100")}
PUBLISHED_SEEDS = 5  # of a published mean and deviation
LOWER_TOO = "open; [others are lower, too](#what-do-others-have-at-these-settings)"
WHY = {  # rows beyond two published deviations of which something is known; the others are open
    (
        "table1-cifar10",
        "rer, M = 200",
    ): "one seed of three: [RER's differ much](#what-does-each-relational-method-gain)",
    (
        "table1-cifar10",
        "der++, M = 200",
    ): "[its authors have our value](#why-is-der-above-its-published-value-at-memory-200)",
    ("table1-cifar10", "er, M = 500"): "[high by chance?](#why-is-er-below-its-published-value-at-memory-500)",
    ("table1-cifar10", "er, M = 5120"): LOWER_TOO,
    ("table2-cifar100", "er, M = 500"): LOWER_TOO,
    **dict.fromkeys(
        (
            *(("table2-cifar100", f"{method}, M = 200") for method in ("rer", "er-ace", "rer-ace")),
            *(("table1-cifar10", row) for row in ("rer, M = 5120", "er-ace, M = 5120")),
            ("table5-small-memory", "rer, M = 50"),
        ),
        "open; [the released code differs](#what-does-the-released-code-do-otherwise)",
    ),
}
# What others have published of the same methods, and where: by method, stream and memory.
DER, XDER, IDER = "Buzzega et al. (2020)", "Boschini et al. (2022)", "Liu et al. (2026)"
ELSEWHERE = (
    ("er", "cifar10", 5120, "82.47 ± 0.52", DER),
    ("der++", "cifar10", 200, "64.88 ± 1.17", DER),
    ("der++", "cifar10", 500, "72.70 ± 1.36", DER),
    ("der++", "cifar10", 5120, "85.24 ± 0.49", DER),
    ("er", "cifar100", 500, "22.10", XDER),
    ("er-ace", "cifar100", 500, "38.75", XDER),
    ("der++", "cifar100", 500, "38.25", XDER),
    *(("der++", *size, figure, IDER) for size, figure in zip(SIZES.values(), PUBLISHED["DER++"])),
)


def told(name: list[str]) -> list[str]:
    """What names a row, the order of update beside the method where it is not the usual one."""
    method, *more, order = name
    return [method if order in ("–", "printed") else f"{method}, {order}", *more]


def accuracies(stream: str = "cifar10") -> str:
    """Class-IL ACC, published and ours: a row a method, memory, weights and order."""
    rows = []
    for name, runs, row in groups(stream):
        cells = compared(metrics.across(runs)["class_il"]["acc"], row and row["class_il"]["acc"])
        rows.append([*told(name), str(len(runs)), *(of.replace("*", "\\*") for of in cells)])
    return markdown([*NAMED, "seeds", "published", "here", "difference"], rows)


def more(stream: str = "cifar10") -> str:
    """The same of what was forgotten and of Task-IL, and what the runs took."""
    spent, rows = reproduce.gpu_minutes(reproduce.recorded()), []
    for name, runs, row in groups(stream):
        ours, figures = metrics.across(runs), (("class_il", "bwt"), ("task_il", "acc"))
        pairs = [compared(ours[s][m], row and row[s][m])[:2] for s, m in figures]
        minutes = f"{sum(spent[experiment(run)] for run in runs):.1f}"
        rows.append([*told(name), *pairs[0], *pairs[1], minutes])
    header = ["BWT, published", "here", "Task-IL, published", "here", "GPU minutes"]
    return markdown([*NAMED, *header], rows)


class Cell(NamedTuple):
    """Of a table of the paper, with what was published of it and our runs."""

    table: str
    study: str
    label: str
    published: Figure
    runs: list[dict]

    @property
    def apart(self) -> float:
        """Our mean is so many published deviations above the published one."""
        return (fmean(run["class_il"]["acc"] for run in self.runs) - self.published.mean) / self.published.std

    @property
    def by_chance(self) -> float:
        """How probably it were more than two, if both means were of the same: a deviation that five runs are known by
        makes Student's t of them."""
        return 2 * stdtr(PUBLISHED_SEEDS - 1, -2 / sqrt(1 / len(self.runs) + 1 / PUBLISHED_SEEDS))


def cells(table: str) -> list[Cell]:
    """Those of a table that are run."""
    study, runs = reproduce.TABLES[table], reproduce.recorded()
    return [
        Cell(table, study, label, published(study, label)["class_il"]["acc"], found)
        for label, row in reproduce.cells(study).items()
        if (found := [runs[e] for e in row if e in runs])
    ]


def rows_run() -> dict[Experiment, Cell]:
    """Those of all tables, by their first runs: tables share rows."""
    every = [cell for table in reproduce.TABLES for cell in cells(table)]
    return {experiment(cell.runs[0]): cell for cell in reversed(every)}


def near() -> str:
    """How many rows are within two published deviations, and how many would be beyond by chance."""
    lines = []
    for stream, name in STREAMS.items():
        of = [cell for e, cell in rows_run().items() if e.stream.name == stream]
        within = sum(abs(cell.apart) <= 2 for cell in of)
        expected = len(of) - sum(cell.by_chance for cell in of)
        lines.append(
            f"- **On {name} {within} of the {len(of)} rows run are within two published standard deviations.** If "
            f"they differed from the published ones by chance alone, {expected:.0f} would be."
        )
    return "\n".join(map(wrapped, lines))


def beyond() -> str:
    """The rows that are not within two published deviations, and what is known of it."""
    found = [cell for cell in rows_run().values() if abs(cell.apart) > 2]
    rows = []
    for cell in sorted(found, key=lambda cell: -abs(cell.apart)):
        method, _, rest = cell.label.partition(", ")
        theirs, ours, _ = compared(metrics.across(cell.runs)["class_il"]["acc"], cell.published)
        why = WHY.get((cell.study, cell.label), "open")
        rows.append([f"`{method}`, {rest}", cell.table, str(len(cell.runs)), theirs, ours, f"{cell.apart:+.1f}", why])
    return markdown(["row", "table", "seeds", "published", "here", "deviations apart", "why"], rows)


def elsewhere() -> str:
    """What others have published of the same methods, between the paper's figure and ours."""
    ours = as_usual()
    rows = []
    size = lambda row: (row[1], row[2])
    for method, stream, memory, figure, source in sorted(ELSEWHERE, key=size):
        of = published(OF_STREAM[stream], f"{method}, M = {memory}")
        runs = ours[method, stream, memory]
        theirs, here, _ = compared(metrics.across(runs)["class_il"]["acc"], of and of["class_il"]["acc"])
        rows.append(
            [f"`{method}`", f"{STREAMS[stream]}, {memory}", theirs, f"{figure}, {source}", here, str(len(runs))]
        )
    return markdown(["method", "data, memory", "the paper", "others", "here", "seeds"], rows)


def of_the_paper() -> str:
    """Of each table of the paper: how much of it is run, how near it is, what it cost and will cost."""
    spent = reproduce.gpu_minutes(reproduce.recorded())
    lacking = {e: minutes for _, _, of in reproduce.progress() for e, minutes in of.items()}
    rows = []
    for table, study in reproduce.TABLES.items():
        every, there = reproduce.cells(study), cells(table)
        seeds = sorted(len(cell.runs) for cell in there)
        minutes = {e for row in every.values() for e in row}
        rows.append(
            [
                table,
                f"{len(there)} / {len(every)}",
                f"{seeds[0]} – {seeds[-1]}" if seeds else "–",
                f"{sum(abs(cell.apart) <= 2 for cell in there)} of {len(there)}" if there else "–",
                *(f"{sum(of.get(e, 0) for e in minutes):.0f}" for of in (spent, lacking)),
            ]
        )
    header = ["table", "cells run", "seeds", "within two deviations", "GPU minutes spent", "to go"]
    return markdown(header, rows)


def learned() -> str:
    """The accuracy on a task right after it was learned, a mean over the tasks: ACC − (T − 1) / T · BWT, T = 5."""
    rows = []
    for name, runs, row in groups():
        known = row and row["class_il"]["bwt"]
        few = len(runs) == 1 and not known
        if few or experiment(runs[0]).label not in SIX or experiment(runs[0]).stream["tasks"] != 5:
            continue
        ours = [run["class_il"]["acc"] - 0.8 * run["class_il"]["bwt"] for run in runs]
        spread = f" ± {stdev(ours):.2f}" if ours[1:] else ""
        theirs = apart = "–"
        if known:
            mean = row["class_il"]["acc"].mean - 0.8 * known.mean
            theirs, apart = f"{mean:.2f}", f"{fmean(ours) - mean:+.2f}"
        rows.append([*told(name), str(len(runs)), theirs, f"{fmean(ours):.2f}{spread}", apart])
    return markdown([*NAMED, "seeds", "published", "here", "difference"], rows)


def gains(stream: str = "cifar10") -> str:
    """What each relational method gains on its baseline, over the seeds both have."""
    at = {
        (experiment(runs[0]).label, name[1]): (runs, row["class_il"]["acc"]) for name, runs, row in as_published(stream)
    }
    rows = []
    for (base, memory), (fixed, published_base) in at.items():
        relational = FAMILIES.get(base)
        if (relational, memory) not in at:
            continue
        runs, published_own = at[relational, memory]
        if not (gain := metrics.gain(runs, fixed, lambda run: run["experiment"]["seed"])):
            continue
        theirs, ahead = published_own.mean - published_base.mean, f"{gain['ahead']} of {gain['seeds']}"
        rows.append([f"`{relational}` on `{base}`", memory, f"{theirs:+.2f}", gained(gain), ahead])
    return markdown(["gain in Class-IL ACC", "memory", "published", "here", "seeds ahead"], rows)


def similarity() -> str:
    """Two tasks, alike and not (the table within Fig. 5): Class-IL ACC, published and ours."""
    runs, rows, setups = reproduce.recorded(), {}, {}
    for label, of in reproduce.rows("similarity", ".*", STUDIES["similarity"][0]).items():
        method, _, setup = label.partition(", ")
        found, known = [runs[e] for e in of if e in runs], published("similarity", label)
        acc = metrics.across(found)["class_il"]["acc"] if found else None
        cells = [*compared(acc, known and known["class_il"]["acc"])[:2], str(len(found))]
        rows.setdefault(method, [f"`{method}`"]).extend(cells)
        setups[setup.partition(" (")[0]] = None
    header = [f"{setup}, {what}" for setup in setups for what in ("published", "here", "seeds")]
    return markdown(["method", *header], list(rows.values()))


def each(stream: str = "cifar10") -> str:
    """A row a run. A device that all of them ran on is said once, under the table."""
    runs, rows = every_run(stream), []
    device = lambda run: run["provenance"]["device"].removeprefix("cuda: ")
    devices = sorted({*map(device, runs)})
    for run in runs:
        figures = [run[setting][metric] for setting, metric in SHOWN]
        cells = ["–" if number is None else f"{number:.2f}" for number in figures]
        commit = str(run["provenance"]["commit"])
        cells += [f"{run['seconds']:.0f}", device(run) if devices[1:] else "", short(commit)]
        rows.append([*told(named(run)), str(experiment(run).seed), *cells])
    header = [*NAMED, "seed", "Class-IL ACC", "BWT", "Task-IL ACC", "BWT", "seconds", "device", "commit"]
    under = "" if devices[1:] else f"\n\nAll of them ran on the same kind of device: {devices[0]}."
    return markdown(header, rows) + under


def again() -> str:
    """Runs and their repetitions from their own records, as `everlearn again --json` has them."""
    rows = []
    for path in files("results/again"):
        for name, pair in record(path).items():
            then, now = pair["then"], pair["now"]
            device, kind = now["provenance"]["device"].partition(": ")[::2]
            how = [
                kind or device,
                experiment(now).training.precision,
                "always" if device == "cpu" else "asked for" if now["provenance"]["deterministic"] else "no",
            ]
            accuracies = [f"{run['class_il']['acc']:.2f}" for run in (then, now)]
            rows.append([f"`{name}`", *how, *accuracies, "{} of {}".format(*metrics.agreeing(then, now))])
    return markdown(["run", "device", "precision", "deterministic", "first", "again", "same"], rows)


TABLES = {
    "reproduction": accuracies,
    "reproduction-near": near,
    "reproduction-beyond": beyond,
    "reproduction-cifar100": partial(accuracies, "cifar100"),
    "reproduction-more": more,
    "reproduction-more-cifar100": partial(more, "cifar100"),
    "reproduction-runs": each,
    "reproduction-runs-cifar100": partial(each, "cifar100"),
    "reproduction-learned": learned,
    "reproduction-gains": gains,
    "reproduction-gains-cifar100": partial(gains, "cifar100"),
    "reproduction-similarity": similarity,
    "reproduction-again": again,
    "reproduction-tables": of_the_paper,
    "reproduction-elsewhere": elsewhere,
}
