"""Write the tables of README.md, docs/ and benchmarks/ from the records under results/ and benchmarks/results/.

    python docs/generate.py          write them
    python docs/generate.py --check  say whether they are what the records say

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; nothing between them is written by hand.
"""

import json
import re
import sys
from pathlib import Path

from recollect import metrics
from recollect.published import published
from recollect.report.tables import compared

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / page for page in ("README.md", "docs/studies.md", "docs/reproduction.md", "benchmarks/README.md")]


def record(path: str) -> dict:
    return json.loads((ROOT / path).read_text())


def markdown(header: list[str], rows: list[list[str]]) -> str:
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return "\n".join([line(header), line(["---"] + ["---:"] * (len(header) - 1)), *map(line, rows)])


def spread(value: dict | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value['mean']:.{digits}f} ± {value['std']:.{digits}f}"


def demo() -> str:
    summaries = {method: group["summary"] for method, group in record("results/demo.json").items()}
    cells = lambda s: [spread(s[setting][metric]) for setting in ("class_il", "task_il") for metric in ("acc", "bwt")]
    return markdown(
        ["method", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC", "Task-IL BWT"],
        [[f"`{m}`", *cells(s)] for m, s in summaries.items()],
    )


def provenance(document: dict) -> str:
    p = document["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in p["versions"].items())
    return (
        f"Record: {document['study']}, commit {str(p['commit'])[:10]}, {p['device']}, {versions}, {p['finished'][:10]}."
    )


def interval(values: list[float]) -> str:
    mean, std = (
        sum(values) / len(values),
        (sum((v - sum(values) / len(values)) ** 2 for v in values) / (len(values) - 1)) ** 0.5,
    )
    return f"{mean:+.1f} ± {metrics.half_width({'std': std}, len(values)):.1f}"


def relation(path: str) -> str:
    """Baselines as they are, the rest also as the difference from the baseline on the same seeds."""
    document = record(path)
    accuracies = {label: [run["class_il"]["acc"] for run in row["runs"]] for label, row in document["rows"].items()}
    families, memories = ("er", "er-ace", "der++"), dict.fromkeys(label.rpartition("= ")[2] for label in accuracies)
    relational = {"er": "rer", "er-ace": "rer-ace", "der++": "rder"}
    rows = []
    for base in families:
        for name in (
            base,
            relational[base],
            f"{relational[base]} fresh",
            *(f"{base}+{way}" for way in ("consolidate", "split", "vanilla")),
        ):
            cells = []
            for memory in memories:
                label, own = f"{name}, M = {memory}", accuracies[f"{name}, M = {memory}"]
                summary = document["rows"][label]["summary"]["class_il"]
                text = f"{summary['acc']['mean']:.1f} / {summary['bwt']['mean']:.1f}"
                if name != base:
                    text += f" ({interval([a - b for a, b in zip(own, accuracies[f'{base}, M = {memory}'])])})"
                cells.append(text)
            rows.append([f"`{name}`", *cells])
    return (
        markdown(["ACC / BWT (gain in ACC)", *(f"M = {memory}" for memory in memories)], rows)
        + "\n\n"
        + provenance(document)
    )


def phase(path: str) -> str:
    """The variants of a method beside it, on the same seeds."""
    document = record(path)
    accuracies = {label: [run["class_il"]["acc"] for run in row["runs"]] for label, row in document["rows"].items()}
    memories = list(dict.fromkeys(label.rpartition("= ")[2] for label in accuracies))
    rows = []
    for name in dict.fromkeys(label.partition(", M")[0] for label in accuracies):
        base, cells = "der++" if name.startswith(("der", "rder")) else "er", []
        for memory in memories:
            label = f"{name}, M = {memory}"
            summary = document["rows"][label]["summary"]["class_il"]
            text = f"{summary['acc']['mean']:.1f} / {summary['bwt']['mean']:.1f}"
            if name != base:
                gain = [a - b for a, b in zip(accuracies[label], accuracies[f"{base}, M = {memory}"])]
                text += f" ({interval(gain)})"
            cells.append(text)
        rows.append([f"`{name}`", *cells])
    header = ["ACC / BWT (gain in ACC)", *(f"M = {memory}" for memory in memories)]
    return markdown(header, rows) + "\n\n" + provenance(document)


def similarity(path: str) -> str:
    document = record(path)
    rows = {}
    for label, row in document["rows"].items():
        method, _, setup = label.partition(", ")
        rows.setdefault(method, {})[setup] = row["summary"]["class_il"]["acc"]
    setups = list(next(iter(rows.values())))
    gap = lambda cells: f"{cells[setups[1]]['mean'] - cells[setups[0]]['mean']:.2f}"
    table = markdown(
        ["method", *setups, "gap"], [[f"`{m}`", *(spread(c[s], 2) for s in setups), gap(c)] for m, c in rows.items()]
    )
    return table + "\n\n" + provenance(document)


def runs_on(stream: str) -> dict[str, list[dict]]:
    """All recorded runs at the published number of epochs, by method, memory, weights and what else was varied."""
    found: dict[str, list[dict]] = {}
    for path in sorted((ROOT / "results" / stream).glob("*.json")):
        run = json.loads(path.read_text())
        e = run["experiment"]
        weights = ", ".join(f"{w:g}" for w in e["options"]["weights"])
        found.setdefault(f"{e['method']}, M = {e['memory']}|{weights}|{e['options'].get('order', '')}", []).append(run)
    return found


def reproduction() -> str:
    """Published, ours, difference: a row a method, memory and preset weights."""
    rows = []
    for key, runs in runs_on("cifar10").items():
        label, weights, order = key.split("|")
        row, ours = published("table1-cifar10", label), metrics.across(runs)
        cells = []
        for setting, metric in (("class_il", "acc"), ("class_il", "bwt"), ("task_il", "acc")):
            theirs, mine, apart = compared(ours[setting][metric], row and row[setting][metric], len(runs))
            cells.append(f"{theirs} / {mine}" + (f" / {apart.replace('*', '＊')}" if apart else ""))
        minutes = sum(run["seconds"] for run in runs) / 60
        rows.append([f"`{label}`", weights, str(len(runs)), *cells, f"{minutes:.0f}"])
    return markdown(["method", "weights", "seeds", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC", "minutes"], rows)


def reproduction_runs() -> str:
    """A row a run."""
    rows = []
    for path in sorted((ROOT / "results" / "cifar10").glob("*.json")):
        run = json.loads(path.read_text())
        e, p = run["experiment"], run["provenance"]
        figures = [f"{run[setting][metric]:.2f}" for setting in ("class_il", "task_il") for metric in ("acc", "bwt")]
        weights = ", ".join(f"{w:g}" for w in e["options"]["weights"])
        settings = [str(e["memory"]), weights, str(e["seed"]), e["precision"]]
        where = [f"{run['seconds']:.0f}", p["device"].removeprefix("cuda: "), str(p["commit"])[:10]]
        rows.append([f"`{e['method']}`", *settings, *figures, *where])
    header = ["method", "memory", "weights", "seed", "precision", "Class-IL ACC", "BWT", "Task-IL ACC", "BWT"]
    return markdown([*header, "seconds", "device", "commit"], rows)


def step_cost() -> str:
    r = record("benchmarks/results/step_cost-cpu.json")
    us = r["microseconds"]
    return markdown(
        ["one ER step, MLP 64-100-10, batch 10 + 10", "µs"],
        [["bare PyTorch loop", f"{us['bare loop']:.0f}"], ["recollect", f"{us['recollect']:.0f}"]],
    ) + (
        f"\n\nRatio {r['ratio']:.2f}; both end with weights that differ by {r['weights_apart']:.1g}. torch {r['torch']}, one thread, {r['rounds']} rounds."
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
        f"- Peak memory of an RRN update over double backward: {peak['ratio']:.2f} ({peak['forward']:.0f} and {peak['double-backward']:.0f} MiB).\n"
        f"- A DER++ step is {rate['step_gflop']:.0f} GFLOP and reaches {rate['step_tflops']:.0f} TFLOP/s, {rate['fraction']:.0%} of the "
        f"{rate['matrix_tflops']} a large matrix product reaches there."
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


def all_methods() -> str:
    document = record("results/digits.json")
    cells = lambda s: [spread(s[setting][metric]) for setting in ("class_il", "task_il") for metric in ("acc", "bwt")]
    return (
        markdown(
            ["method", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC", "Task-IL BWT"],
            [[f"`{m}`", *cells(row["summary"])] for m, row in document["rows"].items()],
        )
        + "\n\n"
        + provenance(document)
    )


TABLES = {
    "demo": demo,
    "relation-digits": lambda: relation("results/relation-digits.json"),
    "relation-digits-cnn": lambda: relation("results/relation-digits-cnn.json"),
    "phase-digits": lambda: phase("results/phase-digits.json"),
    "similarity-digits": lambda: similarity("results/similarity-digits.json"),
    "reproduction": reproduction,
    "reproduction-runs": reproduction_runs,
    "step-cost": step_cost,
    "relation-cost": relation_cost,
    "bench": bench,
    "method-cost": method_cost,
    "digits": all_methods,
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
    stale = [page for page in PAGES if filled(page.read_text()) != page.read_text()]
    if "--check" in sys.argv:
        sys.exit(f"not what the records say: {', '.join(map(str, stale))}; run python docs/generate.py" if stale else 0)
    for page in stale:
        page.write_text(filled(page.read_text()))
        print("written:", page.relative_to(ROOT))


if __name__ == "__main__":
    main()
