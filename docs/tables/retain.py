"""`retain`: what was tried on held-out images, and the test."""

from functools import partial
from statistics import fmean

import candidates as tried
import flagship
from reproduce import experiment

from everlearn import metrics
from everlearn.report.tables import SHOWN, cell
from tables.methods import LARGE
from tables.records import as_usual, files, record
from tables.text import gained, markdown

SIZES = {name: LARGE[name] for name in ("CIFAR-10, 200", "CIFAR-10, 500", "CIFAR-100, 500")}  # of the test
PUBLISHED = {  # Class-IL ACC, as Liu et al. (2026) report them, of X-DER as Boschini et al. (2022) do, too
    "BFP+ID": ("71.99", "76.65", "48.53"),
    "BFP": ("68.64", "73.51", "46.70"),
    "X-DER": ("64.10", "67.42", "48.14"),
    "X-DER, its authors": ("–", "–", "49.93"),
    "DER++": ("62.19", "70.10", "37.69"),
}
HEADER = ["seeds", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC"]
WHOLE, SECOND = "retain", "retain, second form"
FIRST, REFRESHED = "retain, first form", "retain, first form, refreshed"
BEFORE = {WHOLE: FIRST, "retain, refreshed": REFRESHED}  # what docs/candidates.py calls them
TITLES = {"digits": "digits", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def figures(runs: list[dict]) -> list[str]:
    across = metrics.across(runs)
    return [str(len(runs)), *(cell(across[s][m], 2) for s, m in SHOWN[:3])]


def over(own: list[dict], others: list[dict]) -> str:
    """What `retain` gains on others over the seeds both have."""
    gain = metrics.gain(own, others, lambda run: run["experiment"]["seed"]) if own is not others else None
    return f"{gained(gain)} ({gain['ahead']} of {gain['seeds']})" if gain else ""


def screened(kind: str) -> str:
    """What was tried on held-out training images, best first, and what it changes in the first form; an ablation has
    the present form first, and each row changes the form it is of."""
    rows: dict[tuple[int, str], list[dict]] = {}
    for path in files(f"results/flagship/{kind}"):
        run = record(path)
        e = experiment(run)
        rows.setdefault((e.memory, flagship.row(e, kind)), []).append(run)
    later = lambda label: kind == "ablation" and "first form" in label
    rank = lambda key: (key[0], later(key[1]), -metrics.across(rows[key])["class_il"]["acc"]["mean"])
    whole = lambda memory, label: rows[memory, FIRST if later(label) or kind != "ablation" else WHOLE]
    return markdown(
        [
            "on held-out images",
            "memory",
            *HEADER,
            "gain of the complete form" if kind == "ablation" else f"`{FIRST}` gains on it",
        ],
        [
            [f"`{label}`", str(memory), *figures(rows[memory, label]), over(whole(memory, label), rows[memory, label])]
            for memory, label in sorted(rows, key=rank)
        ],
    )


def seed_by_seed() -> str:
    """Class-IL ACC of every run with ResNet-18 on held-out images."""
    rows: dict[tuple, dict[str, None]] = {}  # a run may stand in several comparisons
    for kind in ("screen", "ablation", "longer"):
        for path in files(f"results/flagship/{kind}"):
            run = record(path)
            e = experiment(run)
            named = f"`{flagship.row(e, kind)}`", TITLES[e.stream["of"]], e.memory, e.training.epochs
            rows.setdefault(named, {})[f"{run['class_il']['acc']:.1f} ({e.seed})"] = None
    cells = [
        [name, of, str(memory), str(epochs), ", ".join(values)] for (name, of, memory, epochs), values in rows.items()
    ]
    order = lambda line: (line[1], int(line[2]), int(line[3]), line[0])
    return markdown(["", "stream", "memory", "epochs", "Class-IL ACC (seed)"], sorted(cells, key=order))


def tested(stream: str, memory: int) -> str:
    """`retain` and what it gains on the others."""
    every, rows = as_usual(), []
    own = every[WHOLE, stream, memory]
    for label in (WHOLE, SECOND, REFRESHED, FIRST, "der+++consolidate", "der++", "rder", "er-ace", "er"):
        if (runs := every.get((label, stream, memory))) is None:
            continue
        rows.append([f"`{label}`", *figures(runs), over(own, runs)])
    return markdown(["", *HEADER, f"`{WHOLE}` gains on it"], rows)


def candidates() -> str:
    """What was tried at memory 500, each training tested as several averages: a row per stream and candidate."""
    names, mean = ("none", "0.999", "quarter", "half", "whole"), lambda ways: fmean(ways["head"])
    header = ["on held-out images", "", "no average", "0.999", "a quarter", "half", "a whole task", "means"]
    rows = []
    for run in map(record, files("results/flagship/candidates")):
        e, averages = experiment(run), run["averages"]
        values = [mean(averages[name]) for name in names]
        cells = [f"**{value:.1f}**" if value == max(values) else f"{value:.1f}" for value in values]
        nearest = f"{fmean(averages['0.999']['means']):.1f}"
        label = BEFORE.get(tried.label(e), tried.label(e))
        rows.append((e.stream["of"], -max(values), [f"`{label}`", TITLES[e.stream["of"]], *cells, nearest]))
    return markdown(header, [row for *_, row in sorted(rows)])


def longer() -> str:
    """What was tried on all four streams, best first. On CIFAR the first form, and it refreshed, has runs that were
    tested as several averages; these are of the usual one."""
    found = flagship.standing()
    for run in map(record, files("results/flagship/candidates")):
        if (label := BEFORE.get(tried.label(experiment(run)))) is not None:
            found[label][experiment(run).stream["of"]] = fmean(run["averages"]["0.999"]["head"])
    mean = {label: fmean(of.values()) for label, of in found.items() if of.keys() == TITLES.keys()}
    rows = [
        [f"`{label}`", *(f"{found[label][stream]:.1f}" for stream in TITLES), f"{mean[label]:.1f}"]
        for label in sorted(mean, key=lambda label: -mean[label])
    ]
    return markdown(["on held-out images", *TITLES.values(), "mean"], rows)


def beside() -> str:
    """Ours, and what others have published of theirs."""
    every = as_usual()
    shown = lambda runs: cell(metrics.across(runs)["class_il"]["acc"] if runs else None, 2)
    ours = {
        label: [shown(every.get((label, *size))) for size in SIZES.values()]
        for label in (WHOLE, SECOND, REFRESHED, FIRST, "der++")
    }
    rows = [[f"`{label}`, here", *cells] for label, cells in ours.items()]
    return markdown(["", *SIZES], rows + [[f"{label}, published", *cells] for label, cells in PUBLISHED.items()])


TABLES = {
    "beside-published": beside,
    "candidates": candidates,
    "longer": longer,
    "runs-resnet18": seed_by_seed,
    **{kind: partial(screened, kind) for kind in ("screen", "ablation")},
    **{f"tested-{stream}-{memory}": partial(tested, stream, memory) for stream, memory in SIZES.values()},
}
