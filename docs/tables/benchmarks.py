"""What things take: time, memory and precision."""

from everlearn.report.tables import cell
from tables import records
from tables.text import markdown

WAYS = ("separate", "joint")


def record(name: str) -> dict:
    return records.record(f"benchmarks/results/{name}.json")


def seconds(head: str, r: dict) -> str:
    return markdown([head, "s"], [[what, f"{seconds:.1f}"] for what, seconds in r["seconds"].items()])


def forgetting() -> str:
    r = record("forgetting-cpu")
    kept = ("rows", "class before", "class at once", "class after", "old after")
    lines = [[label, *(cell(row[key], 1) for key in kept)] for label, row in r["rows"].items()]
    head = ["method, removed", "samples", "class 3 before", "right after", "after the next task", "all old classes"]
    return markdown(head, lines) + f"\n\nAccuracy in %, mean and standard deviation of {r['seeds']} seeds."


def lessons() -> str:
    """A network with BatchNorm, its batches normalised apart and together."""
    r = record("lessons-cpu")
    names = [label.rpartition(", ")[0].rpartition(", ") for label in r["rows"]]
    lines = [
        [f"`{method}`, {lesson} per lesson", *(cell(r["rows"][f"{lesson}, {method}, {way}"], 1) for way in WAYS)]
        for lesson, _, method in dict.fromkeys(names)
    ]
    return markdown(["", *(f"`forward={way}`" for way in WAYS)], lines) + (
        f"\n\nAccuracy on all classes at the end, in %, {r['seeds']} seeds, torch {r['torch']}."
    )


def step_cost() -> str:
    r = record("step_cost-cpu")
    us = r["microseconds"]
    ours = us.get("everlearn") or us["recollect"]  # a record keeps the words it was written with
    return markdown(
        ["one ER step, MLP 64-100-10, batch 10 + 10", "µs"],
        [["bare PyTorch loop", f"{us['bare loop']:.0f}"], ["everlearn", f"{ours:.0f}"]],
    ) + (
        f"\n\nRatio {r['ratio']:.2f}; the final weights differ by {r['weights_apart']:.1g}. "
        f"torch {r['torch']}, one thread, {r['rounds']} rounds."
    )


def relation_cost() -> str:
    r = record("relation_cost-cpu")
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
    r = record("bench-h200")
    of = {(x["method"], x["way"]): x for x in r["rows"]}
    methods, ways = dict.fromkeys(m for m, _ in of), dict.fromkeys(w for _, w in of)
    rows = [[f"`{m}`", *(f"{of[m, w]['milliseconds']:.2f}" for w in ways)] for m in methods]
    overheads = "; ".join(
        f"{pair} {x['alone']:.2f} alone, {x['together']:.2f} together" for pair, x in r["relational_overhead"].items()
    )
    size, peak, rate = r["memory_size"], r["update_peak_mib"], r["throughput"]
    return markdown(["ms per step and run", *ways], rows) + (
        f"\n\n{r['device']}, torch {r['torch']}; bfloat16 unless named otherwise.\n\n"
        f"- Relational overhead: {overheads}.\n"
        f"- A DER++ step at memory 50,000 over memory 200: {size['ratio']:.2f}.\n"
        f"- Peak memory of an update of the net over double backward: {peak['ratio']:.2f} "
        f"({peak['forward']:.0f} and {peak['double-backward']:.0f} MiB).\n"
        f"- A DER++ step is {rate['step_gflop']:.0f} GFLOP and reaches {rate['step_tflops']:.0f} TFLOP/s, "
        f"{rate['fraction']:.0%} of the "
        f"{rate['matrix_tflops']} a large matrix product reaches there."
    )


def versions() -> str:
    """Milliseconds per step of two states of the code, medians over the rounds, and their ratio."""
    r = record("versions-h200")
    (pair,) = (key for key in r if " / " in key)
    new, old = pair.split(" / ")
    cells = lambda way, of: [f"{m[old]:.2f} / {m[new]:.2f} / {r[pair][way][method]:.2f}" for method, m in of.items()]
    methods = [f"`{method}`" for method in next(iter(r["medians"].values()))]
    table = markdown(
        [f"ms per step: {old} / {new} / ratio", *methods], [[way, *cells(way, of)] for way, of in r["medians"].items()]
    )
    (rounds,) = {len(of) for way in r["milliseconds"].values() for m in way.values() for of in m.values()}
    return table + f"\n\n{r['device']}, torch {r['torch']}, medians of {rounds} rounds."


def precision() -> str:
    r = record("precision-h200")
    ways = {way: r[way] for way in ("float32, eager", "bfloat16, captured, compiled, packed")}
    rows = [[way, *(f"{value:.2f}" for value in (*of["values"], of["mean"], of["std"]))] for way, of in ways.items()]
    seeds = [f"seed {number}" for number in range(len(rows[0]) - 3)]
    return markdown(["Class-IL ACC", *seeds, "mean", "std"], rows) + (
        f"\n\n`{r['method']}`, epochs per task: {r['epochs']}; {r['device']}, torch {r['torch']}."
    )


def method_cost() -> str:
    r = record("method_cost-cpu")
    shown = lambda value: "–" if value is None else f"{value:.2f}"
    rows = [
        [f"`{name}`", f"{x['seconds']:.3f}", shown(x["of_finetune"]), shown(x["of_peer"])]
        for name, x in r["rows"].items()
    ]
    return (
        markdown(["method", "s per epoch", "of fine-tuning", "of avalanche-lib's"], rows)
        + f"\n\ntorch {r['torch']}, one thread, processor time, median of {r['rounds']} rounds; {r['peer']}."
    )


def term_cost() -> str:
    r = record("term_cost-cpu")
    rows = [[f"`{name}`", f"{x['ms']:.1f}", f"{x['of_derpp']:.2f}"] for name, x in r["rows"].items()]
    said = f"{r['network']}, {r['device']}, one thread, processor time, median of {r['rounds']} rounds."
    return markdown(["DER++ with", "ms per step", "of DER++"], rows) + f"\n\ntorch {r['torch']}, {said}"


def packing() -> str:
    r = record("packing-h200")
    took = {(row["method"], row["width"], row["together"]): row["milliseconds"] for row in r["rows"]}
    together = sorted({key[2] for key in took})
    rows = [
        [f"`{method}`", str(width), *(f"{took[method, width, k]:.2f}" for k in together)]
        for method, width in dict.fromkeys(key[:2] for key in took)
    ]
    header = ["ms per step and run", "width", *(f"{k} together" if k > 1 else "alone" for k in together)]
    return markdown(header, rows) + f"\n\n{r['device']}, torch {r['torch']}, bfloat16, captured and compiled."


def start_up() -> str:
    r = record("start_up-h200")
    table = seconds(f"`{r['method']}`, from a process's start to full speed", r)
    return f"{table}\n\n{r['device']}, torch {r['torch']}."


def collecting() -> str:
    r = record("collecting-cpu")
    return seconds(f"{r['runs']:,} runs", r) + f"\n\nThe index has {r['index_bytes'] // 1000} kB."


def study_start() -> str:
    r = record("study_start-cpu")
    return seconds(f"{r['runs']:,} runs", r)


TABLES = {
    "step-cost": step_cost,
    "forgetting": forgetting,
    "lessons": lessons,
    "relation-cost": relation_cost,
    "bench": bench,
    "versions": versions,
    "packing": packing,
    "start-up": start_up,
    "precision": precision,
    "method-cost": method_cost,
    "collecting": collecting,
    "study_start": study_start,
    "term-cost": term_cost,
}
