"""Write the tables and figures of README.md, docs/ and benchmarks/ from records in results/ and benchmarks/results/.

    python docs/generate.py          write them
    python docs/generate.py --check  say whether they are what the records say

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; nothing between them is written by hand. Figures are
files of their own.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache, partial
from itertools import groupby
from math import hypot, log
from pathlib import Path
from statistics import fmean, median, stdev

import flagship
import reproduce
import vl_convert
from reproduce import experiment

from everlearn import metrics
from everlearn.experiments import seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import published
from everlearn.experiments.studies import FAMILIES, LITERATURE, SIX
from everlearn.report.tables import cell, compared
from everlearn.report.web import figures
from everlearn.report.web.page import of_paths

ROOT = Path(__file__).parents[1]
FONT = "Liberation Sans, Arial, sans-serif"  # the converter has it: the same file on every machine
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md"]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_site" not in page.parts]


def record(path: str) -> dict:
    return seals.opened(json.loads((ROOT / path).read_text())).document


def markdown(header: list[str], rows: list[list[str]]) -> str:
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(header), line(["---"] + ["---:"] * (len(header) - 1)), *map(line, rows)])


def summaries(rows: dict[str, dict]) -> str:
    cells = lambda s: [cell(s[setting][metric], 1) for setting in ("class_il", "task_il") for metric in ("acc", "bwt")]
    return markdown(
        ["method", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC", "Task-IL BWT"],
        [[f"`{method}`", *cells(row["summary"])] for method, row in rows.items()],
    )


def demo() -> str:
    return summaries(record("results/demo.json"))


def wrapped(sentence: str) -> str:
    """In lines that can be read; those of a list are set in."""
    indent = "  " if sentence.startswith("- ") else ""
    return textwrap.fill(sentence, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def provenance(document: dict) -> str:
    p = document["provenance"]
    every = lambda key: p[key] if isinstance(p[key], list) else [p[key]]
    versions = (", ".join(f"{name} {version}" for name, version in of.items()) for of in every("versions"))
    commits = " and ".join(commit[:10] for commit in every("commit") if commit) or "not noted"
    parts = [f"commit {commits}", *every("device"), *versions]
    return f"Record: {document['study']}, {', '.join(parts)}, {p['finished'][:10]}."


def variants(path: str) -> str:
    """Baselines as they are, the rest also as the difference from the baseline on the same seeds."""
    document = record(path)
    runs = {label: row["runs"] for label, row in document["rows"].items()}
    names, memories = (list(dict.fromkeys(label.split(", M = ")[i] for label in runs)) for i in (0, 1))
    bases = {relational: base for base, relational in FAMILIES.items()}
    base = lambda name: bases.get(
        name.removesuffix(" fresh"), name.rpartition("+")[0] if name not in FAMILIES else name
    )
    rows = []
    for name in sorted(names, key=lambda name: list(FAMILIES).index(base(name))):
        cells = []
        for memory in memories:
            label = f"{name}, M = {memory}"
            if label not in runs:
                cells.append("–")
                continue
            summary = document["rows"][label]["summary"]["class_il"]
            gain = metrics.gain(runs[label], runs[f"{base(name)}, M = {memory}"], lambda run: run["seed"])
            gained = f" ({gain['mean']:+.1f} ± {gain['half_width']:.1f})" if name != base(name) else ""
            cells.append(f"{summary['acc']['mean']:.1f} / {summary['bwt']['mean']:.1f}{gained}")
        rows.append([f"`{name}`", *cells])
    header = ["ACC / BWT (gain in ACC)", *(f"M = {memory}" for memory in memories)]
    return markdown(header, rows) + "\n\n" + provenance(document)


def mixed() -> str:
    """The rule, RDER, and DER++ with some of RDER's weights in place of the rule's: what changes on the same seeds."""
    document, rule = record("results/mixed-cifar10-cnn.json"), "der+++consolidate, M = 200"
    there = record("results/phase-cifar10-cnn.json")["rows"]
    rows = {label: there[label] for label in (rule, "rder, M = 200")} | document["rows"]
    lines = []
    for label, row in rows.items():
        of, gain = row["summary"]["class_il"], metrics.gain(row["runs"], rows[rule]["runs"], lambda run: run["seed"])
        against = "–" if label == rule else f"{gain['mean']:+.1f} ± {gain['half_width']:.1f}"
        lines.append([f"`{label.split(',')[0]}`", f"{of['acc']['mean']:.1f}", f"{of['bwt']['mean']:.1f}", against])
    return markdown(["DER++", "ACC", "BWT", "gain on the rule"], lines) + "\n\n" + provenance(document)


def weights_of_terms(path: str) -> str:
    """Mean weights past the warm-up, seed by seed, of each task from the second on."""
    rows = [
        [f"`{method}`", str(run["seed"]), *(", ".join(f"{w:.2f}" for w in task.values()) for task in run["weights"])]
        for method, runs in record(path).items()
        for run in runs
    ]
    return markdown(["method", "seed", *(f"task {task}" for task in range(2, 6))], rows)


def weights_by_memory(path: str) -> str:
    """The same, a mean over the seeds."""
    mean = lambda runs, task: ", ".join(
        f"{fmean(w):.2f}" for w in zip(*(run["weights"][task].values() for run in runs))
    )
    rows = [[f"`{label}`", *(mean(runs, task) for task in range(4))] for label, runs in record(path).items()]
    return markdown(["new, logits, labels", *(f"task {task}" for task in range(2, 6))], rows)


def similarity(path: str) -> str:
    document = record(path)
    rows = {}
    for label, row in document["rows"].items():
        method, _, setup = label.partition(", ")
        rows.setdefault(method, {})[setup] = row["summary"]["class_il"]["acc"]
    setups = list(next(iter(rows.values())))
    gap = lambda cells: f"{cells[setups[1]]['mean'] - cells[setups[0]]['mean']:.2f}"
    table = markdown(
        ["method", *setups, "gap"], [[f"`{m}`", *(cell(c[s]) for s in setups), gap(c)] for m, c in rows.items()]
    )
    return table + "\n\n" + provenance(document)


def similarity_scatter(path: str) -> str:
    """The mean weights RER gives validation samples after the second task, a point a seed: the report's own figure."""
    found = dict(figures.figures(of_paths([str(ROOT / path)], "rer, ")))["similarity"]
    return drawn(found)


NAMED = ["method", "memory", "weights", "order"]


@cache
def usual(e: Experiment) -> Experiment:
    """The settings of this method at this memory size as published, in bfloat16."""
    return Experiment.of(e.label, e.stream.name, memory=e.memory, seed=e.seed, precision="bfloat16")


def named(run: dict) -> list[str]:
    """What tells a run from others but for its seed. Beside the method stands what else is not as published."""
    e = experiment(run)
    here, expected = e.settings(), usual(e).settings()
    odd = [f"{key} {here[key]}" for key in here if key not in ("weights", "order") and here[key] != expected[key]]
    weights = ", ".join(f"{w:g}" for w in e.weighting["weights"])
    return [", ".join([f"`{e.label}`", *odd]), str(e.memory), weights, e.weighting.get("order", "–")]


def every_run(stream: str = "cifar10") -> list[dict]:
    """All recorded runs of a stream, by memory, in the order of the paper's tables, ours after them."""
    known = [*LITERATURE[:8], *SIX]
    rank = lambda label: known.index(label) if label in known else len(known)
    key = lambda run, e: (e.memory, rank(e.label), named(run), e.seed)
    runs = [run for e, run in reproduce.recorded().items() if e.stream.name == stream]
    return sorted(runs, key=lambda run: key(run, experiment(run)))


OF_STREAM = {  # the paper's table of the methods on it
    "cifar10": "table1-cifar10",
    "cifar100": "table2-cifar100",
    "tinyimagenet": "table1-tinyimagenet",
}


def groups(stream: str = "cifar10") -> Iterator[tuple[list[str], list[dict], dict | None]]:
    """What tells the runs of a group from others, the runs, and what was published of them."""
    theirs = {
        experiment: published(study, label)
        for _, study, pattern, seeds in reversed(reproduce.PLAN)
        for label, row in reproduce.rows(study, pattern, seeds).items()
        for experiment in row
    }
    for name, group in groupby(every_run(stream), named):
        runs = list(group)
        e = experiment(runs[0])
        own = published(OF_STREAM[stream], f"{e.label}, M = {e.memory}")  # also for other weights or orders
        yield name, runs, theirs.get(e) or (own if name[0] == f"`{e.label}`" else None)


def as_published() -> Iterator[tuple[list[str], list[dict], dict]]:
    """Those at the published settings."""
    return ((name, runs, row) for name, runs, row in groups() if row and (e := experiment(runs[0])) == usual(e))


def told(name: list[str]) -> list[str]:
    """What names a row, the order of update beside the method where it is not the usual one."""
    method, *more, order = name
    return [method if order in ("–", "printed") else f"{method}, {order}", *more]


def reproduction(stream: str = "cifar10") -> str:
    """Class-IL ACC, published and ours: a row a method, memory, weights and order."""
    rows = []
    for name, runs, row in groups(stream):
        cells = compared(metrics.across(runs)["class_il"]["acc"], row and row["class_il"]["acc"])
        rows.append([*told(name), str(len(runs)), *(of.replace("*", "\\*") for of in cells)])
    return markdown([*NAMED[:-1], "seeds", "published", "here", "difference"], rows)


def reproduction_more(stream: str = "cifar10") -> str:
    """The same of what was forgotten and of Task-IL, and what the runs took."""
    spent, rows = reproduce.gpu_minutes(reproduce.recorded()), []
    for name, runs, row in groups(stream):
        ours, figures = metrics.across(runs), (("class_il", "bwt"), ("task_il", "acc"))
        pairs = [compared(ours[s][m], row and row[s][m])[:2] for s, m in figures]
        minutes = f"{sum(spent[experiment(run)] for run in runs):.1f}"
        rows.append([*told(name), *pairs[0], *pairs[1], minutes])
    header = ["BWT, published", "here", "Task-IL, published", "here", "GPU minutes"]
    return markdown([*NAMED[:-1], *header], rows)


def reproduction_progress() -> str:
    """What is wanted, in order of value."""
    rows = []
    for what, there, lacking in reproduce.progress():
        rows.append([what, str(there), str(len(lacking)), f"{sum(lacking.values()):.0f}" if lacking else "–"])
    return markdown(["wanted", "runs on record", "to run", "about GPU minutes"], rows)


def reproduction_tables() -> str:
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


def reproduction_short() -> str:
    """The paper's six methods at its own settings, where at least three seeds were run."""
    rows = []
    for name, runs, row in as_published():
        if experiment(runs[0]).label in SIX and len(runs) >= 3:
            theirs, mine, _ = compared(metrics.across(runs)["class_il"]["acc"], row["class_il"]["acc"])
            rows.append([*name[:2], str(len(runs)), theirs, mine])
    return markdown(["method", "memory", "seeds", "published", "here"], rows)


def reproduction_learned() -> str:
    """The accuracy on a task right after it was learned, a mean over the tasks: ACC − (T − 1) / T · BWT, T = 5."""
    rows = []
    for name, runs, row in groups():
        if len(runs) == 1 or experiment(runs[0]).label not in SIX or experiment(runs[0]).stream["tasks"] != 5:
            continue
        ours = [run["class_il"]["acc"] - 0.8 * run["class_il"]["bwt"] for run in runs]
        theirs = apart = "–"
        if row and row["class_il"]["bwt"]:
            told = row["class_il"]["acc"].mean - 0.8 * row["class_il"]["bwt"].mean
            theirs, apart = f"{told:.2f}", f"{fmean(ours) - told:+.2f}"
        rows.append([*name[:2], theirs, f"{fmean(ours):.2f} ± {stdev(ours):.2f}", apart])
    return markdown(["method", "memory", "published", "here", "difference"], rows)


def reproduction_gains() -> str:
    """What each relational method gains on its baseline, over the seeds both have."""
    at = {(experiment(runs[0]).label, name[1]): (runs, row["class_il"]["acc"]) for name, runs, row in as_published()}
    rows = []
    for (base, memory), (fixed, published_base) in at.items():
        relational = FAMILIES.get(base)
        if (relational, memory) not in at:
            continue
        runs, published_own = at[relational, memory]
        if not (gain := metrics.gain(runs, fixed, lambda run: run["experiment"]["seed"])):
            continue
        about = f" ± {gain['half_width']:.2f}" if gain["half_width"] is not None else ""
        theirs, ours = published_own.mean - published_base.mean, f"{gain['mean']:+.2f}{about}"
        ahead = f"{gain['ahead']} of {gain['seeds']}"
        rows.append([f"`{relational}` on `{base}`", memory, f"{theirs:+.2f}", ours, ahead])
    return markdown(["gain in Class-IL ACC", "memory", "published", "here", "seeds ahead"], rows)


def reproduction_runs(stream: str = "cifar10") -> str:
    """A row a run."""
    rows = []
    for run in every_run(stream):
        p = run["provenance"]
        numbers = [run[setting][metric] for setting in ("class_il", "task_il") for metric in ("acc", "bwt")]
        figures = ["–" if number is None else f"{number:.2f}" for number in numbers]
        where = [f"{run['seconds']:.0f}", p["device"].removeprefix("cuda: "), str(p["commit"])[:10]]
        rows.append([*told(named(run)), str(experiment(run).seed), *figures, *where])
    header = [*NAMED[:-1], "seed", "Class-IL ACC", "BWT", "Task-IL ACC", "BWT"]
    return markdown([*header, "seconds", "device", "commit"], rows)


def repeated() -> str:
    """Runs and their repetitions from their own records, as `everlearn again --json` has them."""
    rows = []
    for path in sorted((ROOT / "results" / "again").glob("*.json")):
        for name, pair in record(str(path)).items():
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


def curves(stream: str = "cifar10") -> list[tuple[dict, dict]]:
    """The relational runs of which epochs were kept, and these."""
    files = sorted((ROOT / "results" / f"{stream}-epochs").glob("*.json"))
    return [(record(f"results/{stream}/{file.name}"), json.loads(file.read_text())) for file in files]


def related(curve: dict, task: int) -> list[int]:
    """The epochs of a task in which the RRN's weights were used."""
    return [i for i, of in enumerate(curve["task"]) if of == task and curve["phase"][i] == "r"]


def weights_found(*kind: str, stream: str = "cifar10", tasks: int = 5) -> str:
    """The weights the RRN gave after the warm-up, task by task, averaged over these epochs, and the largest loss on the
    memory in any but the first of them."""
    rows = []
    for run, curve in curves(stream):
        if named(run) != list(kind):
            continue
        cells = []
        for task in range(1, tasks):
            second = related(curve, task)
            means = [fmean(of[i] for i in second) for of in curve["weights"].values()]
            worst = max(curve["loss"]["memory"][i] for i in second[1:])
            cells.append(f"{', '.join(f'{mean:.3f}' for mean in means)} ({worst:.3f})")
        rows.append([str(experiment(run).seed), *cells, f"{run['class_il']['acc']:.2f}"])
    return markdown(["seed", *(f"task {task}" for task in range(2, tasks + 1)), "Class-IL ACC"], rows)


def weights_moved() -> str:
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


def gains_by_weight() -> str:
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


def forgetting() -> str:
    r = record("benchmarks/results/forgetting-cpu.json")
    kept = ("rows", "class before", "class at once", "class after", "old after")
    number = lambda of: f"{of['mean']:.1f} ± {of['std']:.1f}"
    lines = [[label, *(number(row[key]) for key in kept)] for label, row in r["rows"].items()]
    head = ["method, forgotten", "samples", "class 3 before", "at once", "after the next task", "all old classes then"]
    return markdown(head, lines) + f"\n\nAccuracy in %, mean and standard deviation of {r['seeds']} seeds."


def step_cost() -> str:
    r = record("benchmarks/results/step_cost-cpu.json")
    us = r["microseconds"]
    ours = us.get("everlearn") or us["recollect"]  # a record keeps the words it was written with
    return markdown(
        ["one ER step, MLP 64-100-10, batch 10 + 10", "µs"],
        [["bare PyTorch loop", f"{us['bare loop']:.0f}"], ["everlearn", f"{ours:.0f}"]],
    ) + (
        f"\n\nRatio {r['ratio']:.2f}; both end with weights that differ by {r['weights_apart']:.1g}. "
        f"torch {r['torch']}, one thread, {r['rounds']} rounds."
    )


def relation_cost() -> str:
    r = record("benchmarks/results/relation_cost-cpu.json")
    parts = []
    for base in (key for key in ("ER", "DER++") if key in r):
        times, peaks = r[base]["milliseconds"], r[base]["peak_mib"]
        parts += [
            markdown(
                [f"{base} step, ResNet-18, batch 8 + 8", "ms", "peak MiB"],
                [[name, f"{times[name]:.0f}", f"{peaks[name]:.0f}"] for name in times],
            ),
            markdown(["ratio", ""], [[name, f"{value:.2f}"] for name, value in r[base]["ratios"].items()]),
        ]
    return "\n\n".join(parts) + f"\n\ntorch {r['torch']}, {r['threads']} threads, median of {r['rounds']} rounds."


def bench() -> str:
    r = record("benchmarks/results/bench-h200.json")
    of = {(x["method"], x["way"]): x for x in r["rows"]}
    methods, ways = dict.fromkeys(m for m, _ in of), dict.fromkeys(w for _, w in of)
    rows = [[f"`{m}`", *(f"{of[m, w]['milliseconds']:.2f}" for w in ways)] for m in methods]
    overheads = "; ".join(
        f"{pair} {x['alone']:.2f} alone, {x['together']:.2f} together" for pair, x in r["relational_overhead"].items()
    )
    size, peak, rate = r["memory_size"], r["update_peak_mib"], r["throughput"]
    return markdown(["ms a step and run", *ways], rows) + (
        f"\n\n{r['device']}, torch {r['torch']}; bfloat16 where not said otherwise.\n\n"
        f"- Relational overhead: {overheads}.\n"
        f"- A DER++ step at memory 50,000 over memory 200: {size['ratio']:.2f}.\n"
        f"- Peak memory of an RRN update over double backward: {peak['ratio']:.2f} "
        f"({peak['forward']:.0f} and {peak['double-backward']:.0f} MiB).\n"
        f"- A DER++ step is {rate['step_gflop']:.0f} GFLOP and reaches {rate['step_tflops']:.0f} TFLOP/s, "
        f"{rate['fraction']:.0%} of the "
        f"{rate['matrix_tflops']} a large matrix product reaches there."
    )


def versions() -> str:
    """Milliseconds per step of two states of the code, medians over the rounds, and their ratio."""
    r = record("benchmarks/results/versions-h200.json")
    (pair,) = (key for key in r if " / " in key)
    new, old = pair.split(" / ")
    cells = lambda way, of: [f"{m[old]:.2f} / {m[new]:.2f} / {r[pair][way][method]:.2f}" for method, m in of.items()]
    methods = [f"`{method}`" for method in next(iter(r["medians"].values()))]
    table = markdown(
        [f"ms per step: {old} / {new} / ratio", *methods], [[way, *cells(way, of)] for way, of in r["medians"].items()]
    )
    (rounds,) = {len(of) for way in r["milliseconds"].values() for m in way.values() for of in m.values()}
    return table + f"\n\n{r['device']}, torch {r['torch']}, medians of {rounds} rounds."


def start_up() -> str:
    r = record("benchmarks/results/start_up-h200.json")
    return markdown(
        [f"`{r['method']}`, from a process's start to full speed", "s"],
        [[k, f"{v:.1f}"] for k, v in r["seconds"].items()],
    ) + (f"\n\n{r['device']}, torch {r['torch']}.")


def precision() -> str:
    r = record("benchmarks/results/precision-h200.json")
    ways = {way: r[way] for way in ("float32, eager", "bfloat16, captured, compiled, packed")}
    rows = [[way, *(f"{value:.2f}" for value in (*of["values"], of["mean"], of["std"]))] for way, of in ways.items()]
    seeds = [f"seed {number}" for number in range(len(rows[0]) - 3)]
    return markdown(["Class-IL ACC", *seeds, "mean", "std"], rows) + (
        f"\n\n`{r['method']}`, epochs a task: {r['epochs']}; {r['device']}, torch {r['torch']}."
    )


def method_cost() -> str:
    r = record("benchmarks/results/method_cost-cpu.json")
    shown = lambda value: "–" if value is None else f"{value:.2f}"
    rows = [
        [f"`{name}`", f"{x['seconds']:.3f}", shown(x["of_finetune"]), shown(x["of_peer"])]
        for name, x in r["rows"].items()
    ]
    return (
        markdown(["method", "s an epoch", "of fine-tuning", "of avalanche-lib's"], rows)
        + f"\n\ntorch {r['torch']}, one thread, processor time, median of {r['rounds']} rounds; {r['peer']}."
    )


def collecting() -> str:
    r = record("benchmarks/results/collecting-cpu.json")
    rows = [[what, f"{seconds:.1f}"] for what, seconds in r["seconds"].items()]
    return markdown([f"{r['runs']:,} runs", "s"], rows) + f"\n\nThe index has {r['index_bytes'] // 1000} kB."


def candidates(path: str) -> str:
    """Class-IL ACC by memory, mean and standard deviation, the best mean of each memory in bold."""
    document = record(path)
    acc = {label: row["summary"]["class_il"]["acc"] for label, row in document["rows"].items()}
    names, memories = (list(dict.fromkeys(label.rpartition(", M = ")[i] for label in acc)) for i in (0, 2))
    best = {memory: max(acc[label]["mean"] for label in acc if label.endswith(f" = {memory}")) for memory in memories}

    def shown(name: str, memory: str) -> str:
        if (found := acc.get(f"{name}, M = {memory}")) is None:
            return "–"
        text = cell(found, 1)
        return f"**{text}**" if found["mean"] == best[memory] else text

    rows = [[f"`{name}`", *(shown(name, memory) for memory in memories)] for name in names]
    seeds = max(len(row["runs"]) for row in document["rows"].values())
    said = wrapped(f"Class-IL ACC, {seeds} seeds. {provenance(document)}")
    return markdown(["", *(f"M = {memory}" for memory in memories)], rows) + "\n\n" + said


def term_cost() -> str:
    r = record("benchmarks/results/term_cost-cpu.json")
    rows = [[f"`{name}`", f"{x['ms']:.1f}", f"{x['of_derpp']:.2f}"] for name, x in r["rows"].items()]
    said = f"{r['network']}, {r['device']}, one thread, processor time, median of {r['rounds']} rounds."
    return markdown(["DER++ with", "ms a step", "of DER++'s"], rows) + f"\n\ntorch {r['torch']}, {said}"


def study_start() -> str:
    r = record("benchmarks/results/study_start-cpu.json")
    rows = [[what, f"{seconds:.1f}"] for what, seconds in r["seconds"].items()]
    return markdown([f"{r['runs']:,} runs", "s"], rows)


def short() -> str:
    """The README's table: what is on record of the methods worth a look, and what a step takes with five runs at once
    on a GPU. The rule has DER++'s step; retain's was not measured but in its runs at memory 200, five at once."""
    bench = record("benchmarks/results/bench-h200.json")["rows"]
    step = {row["method"]: row["milliseconds"] for row in bench if row["way"] == "five together"}
    at = {}
    for stream in ("cifar10", "cifar100"):
        for _, runs, _ in groups(stream):
            if (e := experiment(runs[0])) == usual(e):
                at[e.label, stream, e.memory] = runs
    step["der+++consolidate"] = step["der++"]
    step["retain"] = median(run["seconds"] for run in at["retain", "cifar10", 200]) * 1000 / (5 * 50 * 313) / 5
    acc = lambda runs: f"{cell(metrics.across(runs)['class_il']['acc'], 1)} ({len(runs)})" if runs else "–"
    rows = []
    for label in ("er", "er-ace", "der++", "rder", "der+++consolidate", "retain"):
        found = [at.get((label, stream, memory)) for stream in ("cifar10", "cifar100") for memory in (200, 500)]
        rows.append([f"`{label}`", *map(acc, found), f"{step[label]:.1f} ms" if label in step else "–"])
    header = ["CIFAR-10, 200", "CIFAR-10, 500", "CIFAR-100, 200", "CIFAR-100, 500"]
    return markdown(["method", *header, "step on an H200"], rows)


def screened(kind: str) -> str:
    """What was tried on held-out training images, best first."""
    rows: dict[tuple[int, str], list[dict]] = {}
    for path in sorted((ROOT / "results/flagship" / kind).glob("*.json")):
        run = record(f"results/flagship/{kind}/{path.name}")
        e = experiment(run)
        rows.setdefault((e.memory, flagship.row(e, kind)), []).append(run)
    found = [
        (memory, -(of := metrics.across(runs))["class_il"]["acc"]["mean"], label, len(runs), of)
        for (memory, label), runs in rows.items()
    ]
    return markdown(
        ["on held-out images", "memory", "seeds", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC"],
        [
            [f"`{label}`", str(memory), str(seeds), *(cell(figures[s][m], 2) for s, m in SHOWN)]
            for memory, _, label, seeds, figures in sorted(found, key=lambda one: one[:2])
        ],
    )


SHOWN = (("class_il", "acc"), ("class_il", "bwt"), ("task_il", "acc"))


def tested(stream: str, memory: int) -> str:
    """`retain` and what it gains on the others."""
    every = [(experiment(runs[0]), runs) for _, runs, _ in groups(stream)]
    at = {e.label: runs for e, runs in every if e.memory == memory and e == usual(e)}
    own, seed, rows = at["retain"], lambda run: run["experiment"]["seed"], []
    for label in ("retain", "der+++consolidate", "der++", "rder", "er-ace", "er"):
        if (runs := at.get(label)) is None:
            continue
        gain = metrics.gain(own, runs, seed) if label != "retain" and len(runs) > 1 else None
        apart = f"{gain['mean']:+.2f} ± {gain['half_width']:.2f} ({gain['ahead']} of {gain['seeds']})" if gain else ""
        figures = metrics.across(runs)
        rows.append([f"`{label}`", str(len(runs)), *(cell(figures[s][m], 2) for s, m in SHOWN), apart])
    return markdown(["", "seeds", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC", "`retain` gains on it"], rows)


def advice() -> str:
    """Class-IL ACC of each method at each memory, on what there are records of, and the time of its training."""
    digits = record("results/flagship/digits-test.json")["rows"] | record("results/relation-digits.json")["rows"]
    cost = record("benchmarks/results/method_cost-cpu.json")["rows"]
    at = {
        (e.label, stream, e.memory): metrics.across(runs)["class_il"]["acc"]
        for stream in ("cifar10", "cifar100")
        for _, runs, _ in groups(stream)
        if (e := experiment(runs[0])) == usual(e)
    }
    sizes = [(stream, memory) for stream in ("cifar10", "cifar100") for memory in (200, 500)]
    rows = []
    for label in [*SIX, "er+consolidate", "er-ace+consolidate", "der+++consolidate", "retain"]:
        small = [cell(digits[f"{label}, M = {memory}"]["summary"]["class_il"]["acc"], 1) for memory in (20, 50, 100)]
        large = [at.get((label, *of)) for of in sizes]
        cells = ["–" if of is None else cell(of, 1) for of in large]
        rows.append([f"`{label}`", *small, *cells, f"{cost[label]['of_finetune']:.1f}" if label in cost else "–"])
    header = ["digits, 20", "digits, 50", "digits, 100"]
    header = ["method", *header, "CIFAR-10, 200", "CIFAR-10, 500", "CIFAR-100, 200", "CIFAR-100, 500", "time"]
    columns = [of for of in zip(header, *rows, strict=True) if any(cell != "–" for cell in of[1:])]
    header, *rows = map(list, zip(*columns))
    return markdown(header, rows)


def guarantees() -> str:
    """What each script tried, how often the claim held, what did not hold, and where the records are."""
    rows, failed, records = [], [], []
    for path in sorted((ROOT / "torture" / "results").glob("*.json")):
        r = json.loads(path.read_text())
        command = re.sub(r" --(out|official|lines|noticed) \S+", "", r["command"])
        rows.append([r["claim"], f"{r['tried']:,}", f"{r['held']:,}", f"`{r['name']}`"])
        failed += [wrapped(f"- `{r['name']}`: {f['group']}, `{f['case']}`: {f['wrong']}.") for f in r["failures"]]
        records.append(f"- `{command}`: commit {r['commit'][:10]}, {r['machine']}, {r['seconds']:,.0f} s.")
    return "\n\n".join(
        [
            markdown(["what holds", "tried", "held", "script"], rows),
            "What did not hold:",
            "\n".join(failed),
            "The commands, and what they ran on:",
            "\n".join(records),
        ]
    )


def installs() -> str:
    """Where wheel and sdist were installed and used."""
    document = record("tools/results/release.json")
    beside = ("torch", "numpy", "scikit-learn", "typer", "rich")
    rows = [
        [
            f"{of['python']}, {'the oldest' if of['pinned'] else 'what pip takes'}",
            *(of["versions"][name] for name in beside),
            f"{len(of['wheel'])} + {len(of['sdist'])}",
            "–" if of["without CUDA packages"] else "with",
        ]
        for of in document["checked"]
    ]
    about = "; ".join(f"{name}, {size / 1000:.0f} kB" for name, size in document["built"].items())
    header = ["Python, and the rest", *beside, "steps, wheel + sdist", "CUDA packages"]
    return f"{markdown(header, rows)}\n\nRecord: commit {document['commit'][:10]}; {about}."


def all_methods() -> str:
    document = record("results/digits.json")
    return summaries(document["rows"]) + "\n\n" + provenance(document)


@cache
def charts_of(stream: str) -> dict[str, dict]:
    """The report's figures on a stream's records."""
    return dict(figures.figures(of_paths([str(ROOT / "results" / stream)])))


def drawn(spec: dict) -> str:
    return vl_convert.vegalite_to_svg(json.dumps(spec | {"config": figures.STYLE | {"font": FONT}})) + "\n"


def curves_of_tasks(base: str, memory: int) -> str:
    """The paper's Fig. 4, and those of its appendix: each task's accuracy over the stream, a baseline beside its
    relational version."""
    start = re.compile(rf"pair-{re.escape(base)}-m{memory}\b.*-{FAMILIES[base]}-m{memory}(-weights-1-0.5)?-class$")
    (name,) = filter(start.match, charts_of("cifar10"))
    return drawn(charts_of("cifar10")[name])


# Records, and tables of the same names.
VARIANTS = (
    *("relation-digits", "relation-digits-cnn", "replayed-digits"),
    *(
        "phase-digits",
        "phase-digits-cnn",
        "phase-fashion-mnist",
        "phase-cifar10-cnn",
        "outer-digits",
        "outer-cifar10-cnn",
    ),
)
ALIKE = ("similarity-digits", "similarity-fashion-mnist", "similarity-cifar10-cnn")
TABLES = {
    "demo": demo,
    **{name: partial(variants, f"results/{name}.json") for name in VARIANTS},
    **{name: partial(similarity, f"results/{name}.json") for name in ALIKE},
    "phase-cifar10-cnn-weights": partial(weights_of_terms, "results/phase-cifar10-cnn-weights.json"),
    "mixed-cifar10-cnn": mixed,
    **{
        f"outer-{name}-weights": partial(weights_by_memory, f"results/outer-{name}-weights.json")
        for name in ("digits", "cifar10-cnn")
    },
    "reproduction": reproduction,
    "reproduction-cifar100": partial(reproduction, "cifar100"),
    "reproduction-more": reproduction_more,
    "reproduction-more-cifar100": partial(reproduction_more, "cifar100"),
    "reproduction-short": reproduction_short,
    "reproduction-runs": reproduction_runs,
    "reproduction-runs-cifar100": partial(reproduction_runs, "cifar100"),
    "reproduction-learned": reproduction_learned,
    "reproduction-gains": reproduction_gains,
    "reproduction-again": repeated,
    "reproduction-progress": reproduction_progress,
    "reproduction-tables": reproduction_tables,
    "gains-by-weight": gains_by_weight,
    "weights-moved": weights_moved,
    "rer-weights": lambda: weights_found("`rer`", "200", "1, 0.5", "printed"),
    "rer-weights-1-1": lambda: weights_found("`rer`", "200", "1, 1", "printed"),
    "rer-weights-500": lambda: weights_found("`rer`", "500", "1, 0.5", "printed"),
    "rer-ace-weights": lambda: weights_found("`rer-ace`", "200", "1, 0.5", "printed"),
    "rer-ace-weights-500": lambda: weights_found("`rer-ace`", "500", "1, 0.5", "printed"),
    "rder-weights-500": lambda: weights_found("`rder`", "500", "1, 0.2, 0.5", "printed"),
    "rder-weights": lambda: weights_found("`rder`", "200", "1, 0.2, 0.5", "printed"),
    "rder-weights-cifar100": lambda: weights_found(
        "`rder`", "200", "1, 0.2, 0.5", "printed", stream="cifar100", tasks=10
    ),
    "step-cost": step_cost,
    "forgetting": forgetting,
    "relation-cost": relation_cost,
    "bench": bench,
    "versions": versions,
    "start-up": start_up,
    "precision": precision,
    "method-cost": method_cost,
    "collecting": collecting,
    "study_start": study_start,
    "digits": all_methods,
    "term-cost": term_cost,
    **{
        f"flagship-{path.stem}": partial(candidates, f"results/flagship/{path.name}")
        for path in sorted((ROOT / "results" / "flagship").glob("*.json"))
    },
    "advice": advice,
    "short": short,
    **{kind: partial(screened, kind) for kind in ("screen", "ablation")},
    **{
        f"tested-{stream}-{memory}": partial(tested, stream, memory)
        for stream, memory in (("cifar10", 200), ("cifar10", 500), ("cifar100", 500))
    },
    "guarantees": guarantees,
    "installs": installs,
}


FIGURES = {
    **{f"docs/{name}.svg": partial(similarity_scatter, f"results/{name}.json") for name in ALIKE},
    **{
        f"docs/curves-cifar10-{base}-{memory}.svg": partial(curves_of_tasks, base, memory)
        for base in FAMILIES
        for memory in (200, 500)
    },
}


def filled(text: str) -> str:
    """The page with every table as the records have it."""
    return re.sub(
        r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->",
        lambda m: f"<!-- {m[1]} -->\n{TABLES[m[1]]()}\n<!-- /{m[1]} -->",
        text,
        flags=re.DOTALL,
    )


def main() -> None:
    wanted = {page: filled(page.read_text()) for page in PAGES} | {
        ROOT / name: make() for name, make in FIGURES.items()
    }
    stale = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv:
        sys.exit(f"not what the records say: {', '.join(map(str, stale))}; run python docs/generate.py" if stale else 0)
    for path, text in stale.items():
        path.write_text(text)
        print("written:", path.relative_to(ROOT))


if __name__ == "__main__":
    main()
