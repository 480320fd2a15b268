"""The paper's figures and ours."""

from functools import partial
from statistics import fmean, stdev

import reproduce
from reproduce import experiment

from everlearn import metrics
from everlearn.experiments.published import published
from everlearn.experiments.studies import FAMILIES, SIX, STUDIES
from everlearn.report.tables import SHOWN, compared
from tables.records import as_published, every_run, files, groups, named, record
from tables.text import gained, markdown, short

NAMED = ["method", "memory", "weights"]


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


def of_the_paper() -> str:
    """Of each table of the paper: how much of it is run, how near it is, what it cost and will cost."""
    runs = reproduce.recorded()
    spent = reproduce.gpu_minutes(runs)
    lacking = {e: minutes for _, _, of in reproduce.progress() for e, minutes in of.items()}
    rows = []
    for table, study in reproduce.TABLES.items():
        cells = reproduce.cells(study)
        there = {label: found for label, row in cells.items() if (found := [e for e in row if e in runs])}
        acc = {label: fmean(runs[e]["class_il"]["acc"] for e in found) for label, found in there.items()}
        known = {label: published(study, label)["class_il"]["acc"] for label in there}
        near = sum(abs(acc[label] - of.mean) <= 2 * of.std for label, of in known.items() if of)
        seeds = sorted(len(found) for found in there.values())
        every = {e for row in cells.values() for e in row}
        rows.append(
            [
                table,
                f"{len(there)} / {len(cells)}",
                f"{seeds[0]} – {seeds[-1]}" if seeds else "–",
                f"{near} of {len(there)}" if there else "–",
                *(f"{sum(of.get(e, 0) for e in every):.0f}" for of in (spent, lacking)),
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
    return markdown(["run", "device", "precision", "deterministic", "then", "now", "same"], rows)


TABLES = {
    "reproduction": accuracies,
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
}
