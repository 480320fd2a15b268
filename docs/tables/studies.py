"""Studies of our own: a baseline beside its variants, two tasks that are alike or not, candidates for a loss."""

from collections.abc import Callable, Iterable
from functools import partial

from everlearn import metrics
from everlearn.experiments.studies import FAMILIES
from everlearn.report.tables import cell
from tables.records import files, record
from tables.text import gained, markdown, provenance, wrapped


def axes(labels: Iterable[str]) -> tuple[list[str], list[str]]:
    """Names and memories of a study's rows, `er, M = 20` of each."""
    names, memories = zip(*(label.split(", M = ") for label in labels))
    return list(dict.fromkeys(names)), list(dict.fromkeys(memories))


def crossed(head: str, names: list[str], memories: list[str], shown: Callable[[str, str], str]) -> str:
    """A table with a line per name and a column per memory."""
    rows = [[f"`{name}`", *(shown(name, memory) for memory in memories)] for name in names]
    return markdown([head, *(f"M = {memory}" for memory in memories)], rows)


def gain(row: dict, base: dict, digits: int = 1) -> str:
    """Over the same seeds of another row."""
    return gained(metrics.gain(row["runs"], base["runs"], lambda run: run["seed"]), digits)


def apart(found: dict[str, dict], base: Callable[[str], str]) -> Callable[[str, str], str]:
    """A cell of rows: ACC and BWT and, unless a row is its own base, what it gains on that one on the same seeds."""

    def shown(name: str, memory: str) -> str:
        if (row := found.get(f"{name}, M = {memory}")) is None:
            return "–"
        of = row["summary"]["class_il"]
        against = f" ({gain(row, found[f'{base(name)}, M = {memory}'])})" if name != base(name) else ""
        return f"{of['acc']['mean']:.1f} / {of['bwt']['mean']:z.1f}{against}"

    return shown


def variants(path: str) -> str:
    """Baselines as they are, the rest also as the difference from the baseline on the same seeds."""
    document = record(path)
    found = document["rows"]
    names, memories = axes(found)
    bases = {relational: base for base, relational in FAMILIES.items()}
    base = lambda name: bases.get(
        name.removesuffix(" fresh"), name.rpartition("+")[0] if name not in FAMILIES else name
    )
    names.sort(key=lambda name: list(FAMILIES).index(base(name)))
    return crossed("ACC / BWT (gain in ACC)", names, memories, apart(found, base)) + "\n\n" + provenance(document)


def on_the_rule(path: str, others: str | None = None) -> str:
    """ACC and BWT of each row, and its gain on the rule on the same seeds; rows that it lacks are those of `others`."""
    document = record(path)
    found = (record(others)["rows"] if others else {}) | document["rows"]
    shown = apart(found, lambda name: "der+++consolidate")
    return crossed("ACC / BWT (gain on the rule)", *axes(found), shown) + "\n\n" + provenance(document)


def mixed() -> str:
    """The rule, RDER, and DER++ with some of RDER's weights in place of the rule's: what changes on the same seeds."""
    document, rule = record("results/mixed-cifar10-cnn.json"), "der+++consolidate, M = 200"
    there = record("results/phase-cifar10-cnn.json")["rows"]
    rows = {label: there[label] for label in (rule, "rder, M = 200")} | document["rows"]
    lines = []
    for label, row in rows.items():
        of, against = row["summary"]["class_il"], "–" if label == rule else gain(row, rows[rule])
        lines.append([f"`{label.split(',')[0]}`", f"{of['acc']['mean']:.1f}", f"{of['bwt']['mean']:z.1f}", against])
    return markdown(["DER++", "ACC", "BWT", "gain on the rule"], lines) + "\n\n" + provenance(document)


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


def normalised() -> str:
    """Networks tested as they were trained, and under other constants."""
    document = record("results/normalised-cifar100.json")
    rows = {}
    for label, row in document["rows"].items():
        rows.setdefault(label.partition(", ")[0], []).append(row)
    lines = [
        [f"`{method}`", *(cell(of["summary"]["class_il"]["acc"]) for of in (own, other)), gain(other, own, digits=2)]
        for method, (own, other) in rows.items()
    ]
    return markdown(["", "CIFAR-100's constants", "CIFAR-10's", "difference"], lines) + "\n\n" + provenance(document)


def options(row: dict) -> dict:
    """Those of a row's method."""
    return row["experiment"]["method"]["options"]


def now(label: str, row: dict) -> str:
    """A row's label: what was `retain` when it was run may be its first form by now."""
    return label if "refresh" in options(row) else label.replace("retain, M", "retain, first form, M")


def candidates(path: str) -> str:
    """Class-IL ACC by memory, mean and standard deviation, the best mean of each memory in bold."""
    document = record(path)
    acc = {now(label, row): row["summary"]["class_il"]["acc"] for label, row in document["rows"].items()}
    names, memories = axes(acc)
    best = {memory: max(acc[label]["mean"] for label in acc if label.endswith(f" = {memory}")) for memory in memories}

    def shown(name: str, memory: str) -> str:
        found = acc.get(f"{name}, M = {memory}")
        return f"**{cell(found, 1)}**" if found and found["mean"] == best[memory] else cell(found, 1)

    seeds = max(len(row["runs"]) for row in document["rows"].values())
    said = wrapped(f"Class-IL ACC, {seeds} seeds. {provenance(document)}")
    return crossed("", names, memories, shown) + "\n\n" + said


def seed_by_seed(path: str) -> str:
    """Class-IL ACC of every run, a line per row and memory, in the order of their seeds."""
    lines = []
    for label, row in record(path)["rows"].items():
        name, _, memory = now(label, row).partition(", M = ")
        runs = sorted(row["runs"], key=lambda run: run["seed"])
        seeds = f"{runs[0]['seed']} – {runs[-1]['seed']}"
        lines.append([f"`{name}`", memory, seeds, ", ".join(f"{run['class_il']['acc']:.1f}" for run in runs)])
    return markdown(["", "memory", "seeds", "Class-IL ACC"], lines)


def ablation(path: str) -> str:
    """The whole, and what each part that is left out is worth on the same seeds."""
    document = record(path)
    found = document["rows"]
    names, memories = axes(found)

    def shown(name: str, memory: str) -> str:
        row, whole = (found[f"{label}, M = {memory}"] for label in (name, names[0]))
        return cell(row["summary"]["class_il"]["acc"], 1) if row is whole else gain(row, whole)

    return crossed("", names, memories, shown) + "\n\n" + provenance(document)


# Records, and tables of the same names.
VARIANTS = (
    *("relation-digits", "relation-digits-cnn", "replayed-digits", "outer-digits", "outer-cifar10-cnn"),
    "outer-cifar100-cnn",
    *("phase-digits", "phase-digits-cnn", "phase-fashion-mnist", "phase-cifar10-cnn"),
)
ALIKE = ("similarity-digits", "similarity-fashion-mnist", "similarity-cifar10-cnn")
TABLES = {
    **{name: partial(variants, f"results/{name}.json") for name in VARIANTS},
    **{name: partial(similarity, f"results/{name}.json") for name in ALIKE},
    "mixed-cifar10-cnn": mixed,
    "normalised-cifar100": normalised,
    **{name: partial(on_the_rule, f"results/{name}.json") for name in ("alone-digits", "alone-fashion-mnist")},
    "alone-cifar10-cnn": partial(on_the_rule, "results/alone-cifar10-cnn.json", "results/outer-cifar10-cnn.json"),
    **{
        f"flagship-{path.stem}": partial(ablation if path.stem.endswith("ablation") else candidates, path)
        for path in files("results/flagship")
    },
    **{f"runs-{path.stem}": partial(seed_by_seed, path) for path in files("results/flagship")},
    **{f"against-{path.stem}": partial(ablation, path) for path in files("results/flagship") if "-test" in path.stem},
}
