"""Result tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from rich.text import Text

from everlearn import metrics
from everlearn.errors import plural
from everlearn.experiments import provenance
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import SETTINGS as PUBLISHED_SETTINGS
from everlearn.experiments.published import Figure, published
from everlearn.experiments.studies import Study
from everlearn.report.sheet import Sheet

SETTINGS = {"class_il": "Class-IL", "task_il": "Task-IL"}
HEADINGS = {"acc": "ACC", "bwt": "BWT", "forgetting": "forgetting", "fwt": "FWT"}
SHOWN = tuple((setting, metric) for setting in SETTINGS for metric in ("acc", "bwt"))
HEADS = tuple(f"{SETTINGS[setting]}\n{HEADINGS[metric]}" for setting, metric in SHOWN)


def plain(*columns: str, title: str | None = None, numbers: bool = False, labels: int = 1) -> Sheet:
    """An empty table. The first columns, `labels` many, name a row; with `numbers` all others hold figures."""
    return Sheet(columns, title, labels, labels if numbers else len(columns))


def results(by_method: Mapping[str, Sequence[dict]], title: str | None = None) -> Sheet:
    """A row per method: ACC and BWT, mean ± standard deviation over its runs."""
    table = plain("method", *HEADS, title=title, numbers=True)
    for method, runs in by_method.items():
        spread = metrics.across(runs)
        table.add_row(method, *(cell(spread[setting][metric], digits=1) for setting, metric in SHOWN))
    return table


def settings(runs: Sequence[dict], title: str | None = None) -> Sheet:
    """One method: a row per setting, a column per metric."""
    table = plain("", *HEADINGS.values(), title=title, numbers=True)
    spread = metrics.across(runs)
    for setting, label in SETTINGS.items():
        table.add_row(label, *(cell(spread[setting][metric]) for metric in HEADINGS))
    return table


def again(pairs: Mapping[str, tuple[dict, dict]]) -> Sheet:
    """Runs and their repetitions: then, now, difference, and how many accuracies are the same to the last digit."""
    table = plain("", *HEADS, "same", numbers=True)
    number = lambda value, form: "–" if value is None else format(value, form)
    for name, (then, now) in pairs.items():
        old, new = ([document[setting][metric] for setting, metric in SHOWN] for document in (then, now))
        changes = [None if a is None else b - a for a, b in zip(old, new)]
        cells = [f"{number(a, 'z.2f')}\n{number(b, 'z.2f')}\n{number(d, '+.2f')}" for a, b, d in zip(old, new, changes)]
        same, all_of_them = metrics.agreeing(then, now)
        block(table, name, ["then", "now", "difference"], [*cells, f"{same} of {all_of_them}"])
    return table


def block(table: Sheet, label: str, lines: Sequence[str], cells: Sequence[str]) -> None:
    """A label on a line of its own, and under it named lines of numbers."""
    table.add_row(label)
    table.add_row("\n".join(f"  {line}" for line in lines), *cells)


def cell(spread: dict | None, digits: int = 2) -> str:
    """A mean and, of more than one run, its standard deviation; what rounds to 0 has no sign."""
    if spread is None:
        return "–"
    return f"{spread['mean']:z.{digits}f}" + ("" if spread["std"] is None else f" ± {spread['std']:.{digits}f}")


def more(mean: float, half_width: float | None) -> str:
    """A mean difference and, where there is one, half of its interval."""
    return f"{mean:+.2f}" + ("" if half_width is None else f" ± {half_width:.2f}")


def matrix(rows: Sequence[Sequence[float]], title: str) -> Sheet:
    """Accuracy on every task after each task; dim where the task was not learned yet."""
    table = plain("after\ntask", *(f"task\n{task + 1}" for task in range(len(rows[0]))), title=title, numbers=True)
    for number, row in enumerate(rows):
        learned = [len(rows) == 1 or task <= number for task in range(len(row))]
        table.add_row(
            str(number + 1) if len(rows) > 1 else "all",
            *(f"{v:.1f}" if known else Text(f"{v:.1f}", style="dim") for v, known in zip(row, learned)),
        )
    return table


def study(study: Study, documents: Mapping[str, Sequence[dict]]) -> Sheet:
    """A row per group of runs: mean ± standard deviation, under what was published where there is something. One
    without a complete run is empty."""
    documents = {label: documents.get(label, ()) for label in study.rows}
    theirs = {label: published(study.name, label) for label in documents}
    several = any(theirs.values())
    columns = ["", *([] if several else ["runs"]), *HEADS]
    table = plain(*columns, title=f"{study.name}: {study.question}", numbers=True)
    for label, runs in documents.items():
        ours, row = metrics.across(runs) if runs else {}, theirs[label] or {}
        cells = [compared(ours.get(s, {}).get(m), row.get(s, {}).get(m)) for s, m in SHOWN]
        mine = f"ours, {plural(len(runs), 'run')}"
        if row:
            block(table, label, ["published", mine, "difference"], ["\n".join(lines) for lines in cells])
        elif several:
            block(table, label, [mine], [lines[1] for lines in cells])
        else:
            table.add_row(label, str(len(runs)), *(lines[1] for lines in cells))
    return table


def gains(rows: Mapping[str, tuple[str, dict | None]]) -> Sheet:
    """What each row gains on another, seed by seed."""
    title = "Class-IL ACC on the same seeds, mean ± half of its 95 % interval"
    table = plain("", "against", "gain", "ahead on", title=title, numbers=True, labels=2)
    for label, (base, gain) in rows.items():
        if gain is None:
            table.add_row(label, base, "–", "–")
            continue
        much = more(gain["mean"], gain["half_width"])
        table.add_row(label, base, much, f"{gain['ahead']} of {gain['seeds']}")
    return table


def compared(ours: dict | None, theirs: Figure | None) -> tuple[str, str, str]:
    """Published, ours, difference; marked where it is larger than two of the published standard deviations."""
    printed, mine = cell(theirs and theirs._asdict()), cell(ours)
    if theirs is None or ours is None:
        return printed, mine, ""
    difference = ours["mean"] - theirs.mean
    beyond = ours["std"] is not None and abs(difference) > 2 * theirs.std
    return printed, mine, f"{difference:+.2f}" + (" *" if beyond else "")


NOTED = (
    *("stream", "memory", "tasks", "classes", "shuffle", "network", "epochs", "batch", "lr", "momentum"),
    *("weight_decay", "average", "forward", "precision"),
)
NUMEROUS = {"commit": "commits", "versions": "sets of versions", "device": "devices"}


def alike(rows: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The settings that all rows share, and those that they do not share and that their labels do not say either."""
    shared, unlike = [], []
    says = lambda label, setting: any(part.startswith(setting) for part in label.split(", "))
    for key in NOTED:
        setting = f"{'M' if key == 'memory' else key} = "  # as labels have it
        values: dict[str, list[str]] = {}
        for label, settings in rows.items():
            given = settings.get(key)
            if not says(label, setting) and (key, given) != ("memory", 0):  # 0: the method has none
                shown = "as usual" if given is None else ", ".join(given) if isinstance(given, tuple) else str(given)
                values.setdefault(shown, []).append(label)
        usual, *others = sorted(values, key=lambda value: -len(values[value])) or ["as usual"]
        if others:
            unlike.append(f"{key} {usual}, but " + ", ".join(f"{one} in {'; '.join(values[one])}" for one in others))
        elif usual != "as usual" and not any(says(label, setting) for label in rows):
            shared.append(f"{key} {usual}")
        elif usual != "as usual":  # the other rows name their value in their labels
            unlike.append(f"{key} {usual} in {'; '.join(values[usual])}")
    return shared, unlike


def study_notes(study: Study, documents: Mapping[str, Sequence[dict]]) -> Iterator[str]:
    yield "Mean ± standard deviation over the runs, in %."
    if any(published(study.name, label) for label in documents):
        yield f"* beyond two of the published standard deviations. Published with: {PUBLISHED_SETTINGS}"
    firsts = {label: study.rows[label][0] for label in documents}  # the others of a row differ in their seeds alone
    shared, unlike = alike({label: experiment.settings() for label, experiment in firsts.items()})
    yield f"Ours, in all rows: {', '.join(shared)}."
    for line in unlike:
        yield f"Not in all rows: {line}."
    for key, values in provenance.merged([run["provenance"] for runs in documents.values() for run in runs]).items():
        if isinstance(values, list):
            yield f"Of {len(values)} {NUMEROUS[key]}: {', '.join(map(str, values))}."
    weights: dict[str, list[str]] = {}
    for experiment in firsts.values():
        if given := experiment.settings().get("weights"):
            names = weights.setdefault(", ".join(f"{w:g}" for w in given), [])
            if experiment.label not in names:
                names.append(experiment.label)
    if weights:
        yield "Weights: " + "; ".join(f"{given} ({', '.join(names)})" for given, names in weights.items()) + "."


def listed(then: Mapping[Experiment, dict]) -> Sheet:
    """A table of records that can be run again."""
    table = plain("record", "Class-IL\nACC", "precision", numbers=True)
    for experiment, document in then.items():
        table.add_row(experiment.name, f"{document['class_il']['acc']:.2f}", experiment.training.precision)
    return table


def plan(study: Study, done: Set[Experiment]) -> Sheet:
    """A table of what a study would run, for --dry-run."""
    table = plain("", "runs", "done", "to run", title=f"{study.name}: {study.question}", numbers=True)
    count = lambda runs: (len(runs), sum(e in done for e in runs), sum(e not in done for e in runs))
    for label, runs in study.rows.items():
        table.add_row(label, *map(str, count(runs)))
    table.add_section()
    table.add_row("all", *map(str, count([e for runs in study.rows.values() for e in runs])))
    return table


def tuning(search: dict, rows: Mapping[str, Sequence[dict]], of: str) -> Iterator[Sheet]:
    """What a search of weights found, and what its weights, the default ones and learned ones do on the test images; a
    row without a run is left out."""
    best, listed = search["best"], lambda weights: ", ".join(f"{weight:g}" for weight in weights)
    columns = "best weights", "validation ACC", "trials", "pruned", "seconds"
    table = plain(*columns, title=f"{of}: the search", numbers=True)
    figures = f"{best['acc']:.2f}", str(len(search["trials"])), str(search["pruned"]), f"{search['seconds']:.1f}"
    table.add_row(listed(best["weights"]), *figures)
    yield table
    columns = "", "weights", "Class-IL ACC", "s to search", "s to run"
    table = plain(*columns, title=f"{of}: on the test images, in %", numbers=True, labels=2)
    for number, (label, runs) in enumerate(rows.items()):
        if not runs:
            continue
        table.add_row(
            label,
            listed(Experiment.parse(runs[0]["experiment"]).settings()["weights"]) if number < 2 else "learned",
            cell(metrics.across(runs)["class_il"]["acc"]),
            f"{search['seconds']:.1f}" if number == 0 else "–",
            f"{sum(run['seconds'] for run in runs):.1f}",
        )
    yield table


def bench(document: dict) -> Sheet:
    """A row per method and way of taking a step."""
    shapes = document["shapes"]
    title = f"One step on {document['device']}: {shapes['network']}, batch {shapes['batch']}, torch {document['torch']}"
    columns = "method", "step", "ms per step and run", "new images/s", "peak MiB per run", "s to the first replay"
    table = plain(*columns, title=title, numbers=True, labels=2)
    shown = lambda value: "–" if value is None else f"{value:g}"
    for row in document["rows"]:
        ms, others = row["milliseconds"], ("images_a_second", "peak_mib", "start_seconds")
        table.add_row(row["method"], row["way"], f"{ms:.2f}", *(shown(row[key]) for key in others))
    return table


def bench_notes(document: dict) -> Iterator[str]:
    """What follows from the table of `bench`, a sentence each."""
    for pair, ratio in document["relational_overhead"].items():
        yield f"relational overhead, {pair}: {ratio['alone']:.2f} alone, {ratio['together']:.2f} together"
    if size := document.get("memory_size"):
        yield f"a DER++ step at memory 50,000 over memory 200: {size['ratio']:.2f}"
    if peak := document.get("update_peak_mib"):
        sizes = f"{peak['forward']:g} and {peak['double-backward']:g} MiB"
        yield f"peak memory of an RRN update over double backward: {peak['ratio']:.2f} ({sizes})"
    if rate := document.get("throughput"):
        yield (
            f"a DER++ step reaches {rate['step_tflops']:g} of the {rate['matrix_tflops']:g} TFLOP/s "
            f"a large matrix product reaches here: {rate['fraction']:.1%}"
        )
