"""Result tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.table import Table

from recollect import metrics

SETTINGS = {"class_il": "Class-IL", "task_il": "Task-IL"}
HEADINGS = {"acc": "ACC", "bwt": "BWT", "forgetting": "forgetting", "fwt": "FWT"}


def plain(*columns: str, title: str | None = None, numbers: bool = False) -> Table:
    """An empty table in the house's style; `numbers` sets all columns but the first to the right."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for position, column in enumerate(columns):
        table.add_column(
            column, justify="right" if numbers and position else "left", no_wrap=position == 0, overflow="fold"
        )
    return table


def results(by_method: Mapping[str, Sequence[dict]], title: str | None = None) -> Table:
    """A row a method: ACC and BWT, mean ± standard deviation over its runs."""
    table = plain(
        "method",
        *(f"{label} {metric}" for label in SETTINGS.values() for metric in ("ACC", "BWT")),
        title=title,
        numbers=True,
    )
    for method, runs in by_method.items():
        spread = metrics.across(runs)
        table.add_row(
            method,
            *(cell(spread[setting][metric], len(runs), digits=1) for setting in SETTINGS for metric in ("acc", "bwt")),
        )
    return table


def settings(runs: Sequence[dict], title: str | None = None) -> Table:
    """One method: a row a setting, a column a metric."""
    table = plain("", *HEADINGS.values(), title=title, numbers=True)
    spread = metrics.across(runs)
    for setting, label in SETTINGS.items():
        table.add_row(label, *(cell(spread[setting][metric], len(runs)) for metric in HEADINGS))
    return table


def cell(spread: dict | None, runs: int, digits: int = 2) -> str:
    if spread is None:
        return "–"
    return f"{spread['mean']:.{digits}f}" + (f" ± {spread['std']:.{digits}f}" if runs > 1 else "")


def matrix(rows: Sequence[Sequence[float]], title: str) -> Table:
    """Accuracy on every task after each task; dim where the task was not learned yet."""
    table = plain("after\ntask", *(f"task\n{task + 1}" for task in range(len(rows[0]))), title=title, numbers=True)
    for column in table.columns:
        column.min_width = len("100.0")  # a number is never cut, however narrow the terminal
    for number, row in enumerate(rows):
        learned = [len(rows) == 1 or task <= number for task in range(len(row))]
        table.add_row(
            str(number + 1) if len(rows) > 1 else "all",
            *(f"{v:.1f}" if known else f"[dim]{v:.1f}[/]" for v, known in zip(row, learned)),
        )
    return table


def study(rows: Mapping[str, Sequence[dict]], title: str | None = None) -> Table:
    """A row a group of runs: the mean and its 95 % confidence interval (Student's t)."""
    shown = (("class_il", "acc"), ("class_il", "bwt"), ("task_il", "acc"))
    table = plain("", "runs", "Class-IL ACC", "Class-IL BWT", "Task-IL ACC", title=title, numbers=True)
    for position, column in enumerate(table.columns):
        column.no_wrap = position > 0  # long labels give way, not numbers
    for label, runs in rows.items():
        spread, count = metrics.across(runs), len(runs)
        interval = lambda s: None if s is None else {"mean": s["mean"], "std": metrics.half_width(s, count)}
        table.add_row(
            label, str(count), *(cell(interval(spread[setting][metric]), count, 1) for setting, metric in shown)
        )
    return table


def tuning(search: dict, rows: Mapping[str, Sequence[dict]], of: str) -> Iterator[Table]:
    """What a search of weights found, and what its weights, the default ones and learned ones do on the test images."""
    best, listed = search["best"], lambda weights: ", ".join(f"{weight:g}" for weight in weights)
    columns = "best weights", "validation ACC", "trials", "pruned", "seconds"
    table = plain(*columns, title=f"{of}: the search", numbers=True)
    figures = f"{best['acc']:.2f}", str(len(search["trials"])), str(search["pruned"]), f"{search['seconds']:.1f}"
    table.add_row(listed(best["weights"]), *figures)
    yield table
    columns = "", "weights", "Class-IL ACC", "s to search", "s to run"
    table = plain(*columns, title=f"{of}: on the test images, in %", numbers=True)
    for number, (label, runs) in enumerate(rows.items()):
        table.add_row(
            label,
            listed(runs[0]["experiment"]["options"]["weights"]) if number < 2 else "learned",
            cell(metrics.across(runs)["class_il"]["acc"], len(runs)),
            f"{search['seconds']:.1f}" if number == 0 else "–",
            f"{sum(run['seconds'] for run in runs):.1f}",
        )
    yield table


def bench(document: dict) -> Table:
    """A row a method and way of taking a step."""
    shapes = document["shapes"]
    title = f"One step on {document['device']}: {shapes['network']}, batch {shapes['batch']}, torch {document['torch']}"
    columns = "method", "step", "ms a step and run", "new images/s", "peak MiB a run", "s to the first replay"
    table = plain(*columns, title=title, numbers=True)
    shown = lambda value: "–" if value is None else f"{value:g}"
    for row in document["rows"]:
        ms, others = row["milliseconds"], ("images_a_second", "peak_mib", "start_seconds")
        table.add_row(row["method"], row["way"], f"{ms:.2f}", *(shown(row[key]) for key in others))
    return table


def bench_notes(document: dict) -> Iterator[str]:
    """What the table leads to, a line each."""
    for pair, ratio in document["relational_overhead"].items():
        yield f"relational overhead, {pair}: {ratio['alone']:.2f} alone, {ratio['together']:.2f} together"
    if size := document.get("memory_size"):
        yield f"a DER++ step at memory 50,000 over memory 200: {size['ratio']:.2f}"
    if peak := document.get("update_peak_mib"):
        yield f"peak memory of an RRN update over double backward: {peak['ratio']:.2f} ({peak['forward']:g} and {peak['double-backward']:g} MiB)"
    if rate := document.get("throughput"):
        yield (
            f"a DER++ step reaches {rate['step_tflops']:g} of the {rate['matrix_tflops']:g} TFLOP/s a large matrix product "
            f"reaches here: {rate['fraction']:.1%}"
        )
