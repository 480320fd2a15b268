"""The methods beside each other, on all there are records of."""

from statistics import median

from everlearn import metrics
from everlearn.experiments.studies import SIX
from everlearn.report.tables import SHOWN, cell
from tables.records import as_usual, record
from tables.text import markdown, provenance

LARGE = {  # column: stream and memory
    "CIFAR-10, 200": ("cifar10", 200),
    "CIFAR-10, 500": ("cifar10", 500),
    "CIFAR-100, 200": ("cifar100", 200),
    "CIFAR-100, 500": ("cifar100", 500),
}


def summaries(rows: dict[str, dict]) -> str:
    return markdown(
        ["method", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC", "Task-IL BWT"],
        [[f"`{method}`", *(cell(row["summary"][s][m], 1) for s, m in SHOWN)] for method, row in rows.items()],
    )


def demo() -> str:
    return summaries(record("results/demo.json"))


def digits() -> str:
    document = record("results/digits.json")
    return summaries(document["rows"]) + "\n\n" + provenance(document)


def accuracy(runs: list[dict] | None) -> str:
    return cell(metrics.across(runs)["class_il"]["acc"] if runs else None, 1)


def short() -> str:
    """The README's table: what is on record of the methods worth a look, and what a step takes with five runs at once
    on a GPU. The rule has DER++'s step; retain's was not measured but in its runs at memory 200, five at once."""
    bench = record("benchmarks/results/bench-h200.json")["rows"]
    step = {row["method"]: row["milliseconds"] for row in bench if row["way"] == "five together"}
    at = as_usual()
    step["der+++consolidate"] = step["der++"]
    step["retain"] = median(run["seconds"] for run in at["retain", "cifar10", 200]) * 1000 / (5 * 50 * 313) / 5
    rows = []
    for label in ("er", "er-ace", "der++", "rder", "der+++consolidate", "retain"):
        found = [at.get((label, *size)) for size in LARGE.values()]
        cells = [f"{accuracy(runs)} ({len(runs)})" if runs else "–" for runs in found]
        rows.append([f"`{label}`", *cells, f"{step[label]:.1f} ms" if label in step else "–"])
    return markdown(["method", *LARGE, "step on an H200"], rows)


def advice() -> str:
    """Class-IL ACC of each method at each memory, on what there are records of, and the time of its training."""
    small = record("results/flagship/digits-test.json")["rows"] | record("results/relation-digits.json")["rows"]
    cost = record("benchmarks/results/method_cost-cpu.json")["rows"]
    at, memories, rows = as_usual(), (20, 50, 100), []
    for label in [*SIX, "er+consolidate", "er-ace+consolidate", "der+++consolidate", "retain"]:
        cells = [cell(small[f"{label}, M = {memory}"]["summary"]["class_il"]["acc"], 1) for memory in memories]
        cells += [accuracy(at.get((label, *size))) for size in LARGE.values()]
        rows.append([f"`{label}`", *cells, f"{cost[label]['of_finetune']:.1f}" if label in cost else "–"])
    header = ["method", *(f"digits, {memory}" for memory in memories), *LARGE, "time"]
    columns = [of for of in zip(header, *rows, strict=True) if any(cell != "–" for cell in of[1:])]
    header, *rows = map(list, zip(*columns))
    return markdown(header, rows)


TABLES = {"demo": demo, "digits": digits, "short": short, "advice": advice}
