"""Every published number is the one the paper's source prints."""

import re
from pathlib import Path

import pytest

from everlearn.experiments import studies
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import Figure, published, tables

PAPER = Path(__file__).parents[2] / "shared" / "paper" / "relational-experience-replay.tex"
needs_paper = pytest.mark.skipif(not PAPER.exists(), reason=f"the paper's source is not at {PAPER}")

# A table's label in the source, its study, and what its first two columns and the words of a column's heading are.
LAYOUTS = {
    "tab:baseline": ("table1-{stream}", "memory method stream setting metric"),
    "tab:cifar100": ("table2-cifar100", "setting memory method"),
    "table:cifar10_vanilla": ("table3-vanilla", "memory method setting"),
    "table:meta_set": ("table4-split", "memory method setting"),
    "tab:cifar10-small": ("table5-small-memory", "setting memory method"),
    "tab:iter-meta": ("table6-warmup", "memory warmup setting"),
    "tab:interval": ("table7-interval", "memory interval setting"),
}
SIMILARITY = "fig:similar-task-acc"
METHODS = {
    "Upper bound": "joint",
    "Lower bound": "finetune",
    "A-GEM": "agem",
    "RDER (ours)": "rder",
    "Vanilla": "der+++vanilla",
    "Split RDER": "der+++split",
}  # the rest: in lower case
ROWS = {
    "table1-cifar10": 35,
    "table1-tinyimagenet": 35,
    "table2-cifar100": 24,
    "table3-vanilla": 9,
    "table4-split": 9,
    "table5-small-memory": 12,
    "table6-warmup": 9,
    "table7-interval": 9,
    "similarity": 4,
}


def floats() -> list[str]:
    """The bodies of the source's tables and figures that hold a tabular."""
    text = re.sub(r"(?<!\\)%.*", "", PAPER.read_text())
    found = re.findall(r"\\begin\{((?:table|figure)\*?)\}(.*?)\\end\{\1\}", text, flags=re.DOTALL)
    return [body for _, body in found if r"\begin{tabular}" in body]


def grid(label: str) -> list[list[str]]:
    """A tabular's cells as plain text, those that span rows or columns repeated in each."""
    (body,) = (body for body in floats() if rf"\label{{{label}}}" in body)
    (table,) = re.findall(r"\\begin\{tabular\}.*?\\hline(.*?)\\end\{tabular\}", body, flags=re.DOTALL)
    for pattern, plain in (
        (r"\\tabincell\{c\}\{(\w+)\\\\(\w+)\}", r"\1 \2"),
        (r"\\hline|\\cline\{[\d-]+\}|\\cellcolor\{gray!20\}|\\scriptsize|~?\\cite\{\w+\}", ""),
        (r"\\textbf\{((?:[^{}]|\{[^{}]*\})*)\}", r"\1"),
        (r"\$\\pm\$", "±"),
    ):
        table = re.sub(pattern, plain, table)
    rows = []
    for line in table.split(r"\\"):
        cells: list[str] = []
        for cell in map(str.strip, line.split("&")):
            wide = re.fullmatch(r"\\multicolumn\{(\d+)\}\{c\}\{(.*)\}", cell)
            cells += [wide[2]] * int(wide[1]) if wide else [cell]
        rows.append(cells)
    assert rows.pop() == [""]
    assert len({len(cells) for cells in rows}) == 1
    for i, cells in enumerate(rows):
        for j, cell in enumerate(cells):
            if tall := re.fullmatch(r"\\multirow\{(-?\d+)\}\s*(?:\{\*\}|\*)\s*\{(.*)\}", cell):
                span = int(tall[1])  # below zero: upwards
                for k in range(min(i, i + span + 1), max(i, i + span - 1) + 1):
                    assert rows[k][j] in ("", cell)
                    rows[k][j] = tall[2]
    return rows


def figure(cell: str) -> Figure | None:
    if cell == "-":
        return None
    mean, std = re.fullmatch(r"(-?\d+\.\d+)±(\d+\.\d+)", re.sub(r"\s", "", cell)).groups()
    return Figure(float(mean), float(std))


def printed(label: str) -> dict[tuple[str, str, str, str], Figure | None]:
    """Study, row, setting and metric of each cell of a table of the source."""
    study, layout = LAYOUTS[label]
    rows = grid(label)
    top = [row for row in rows if not any("±" in cell for cell in row)]
    found = {}
    for first, second, *cells in rows[len(top) :]:
        for j, cell in enumerate(cells, start=2):
            words = " ".join(dict.fromkeys(row[j] for row in top)).split()
            at = dict(zip(layout.split(), (first, second, *words), strict=True))
            method = at.get("method", "RDER")
            row = METHODS.get(method, method.lower())
            row += f", M = {at['memory']}" if at["memory"] != "-" else ""
            row += "".join(f", {name} = {at[name]}" for name in ("warmup", "interval") if name in at)
            setting = {"Class-IL": "class_il", "Task-IL": "task_il"}[at["setting"]]
            key = (
                study.format(stream=at.get("stream", "").lower().replace("-", "")),
                row,
                setting,
                at.get("metric", "ACC").lower(),
            )
            assert key not in found
            found[key] = figure(cell)
    return found


def printed_similarity() -> dict[tuple[str, str, str, str], Figure | None]:
    """The same of the table of task similarity, whose last column is checked to be the difference of the others."""
    heading, *rows = grid(SIMILARITY)
    assert heading == ["Method", "Setup 1", "Setup 2", "Gap"]
    setups = ("setup 1 (airplane, automobile after ship, truck)", "setup 2 (cat, horse after ship, truck)")
    found = {}
    for method, *cells, gap in rows:
        figures = [figure(cell) for cell in cells]
        assert float(gap) == pytest.approx(figures[1].mean - figures[0].mean)
        for setup, value in zip(setups, figures, strict=True):
            found["similarity", f"{method.lower()}, {setup}", "class_il", "acc"] = value
    return found


@needs_paper
def test_the_paper_has_these_tables_of_numbers():
    numbers = [body for body in floats() if re.search(r"±|\\pm", body)]
    assert len(numbers) == len(LAYOUTS) + 1
    assert all(sum(rf"\label{{{label}}}" in body for body in numbers) == 1 for label in (*LAYOUTS, SIMILARITY))


@needs_paper
def test_every_cell_is_the_papers():
    paper = printed_similarity()
    for label in LAYOUTS:
        paper |= printed(label)
    ours = {
        (study, row, setting, metric): value
        for study, rows in tables().items()
        for row, settings in rows.items()
        for setting, metrics in settings.items()
        for metric, value in metrics.items()
    }
    given = lambda cells: {key: value for key, value in cells.items() if value is not None}
    assert given(ours) == given(paper)
    assert len(given(paper)) == 400
    assert {key[:2] for key in ours} == {key[:2] for key in paper}
    assert paper.keys() <= ours.keys()


def test_cells_known_by_heart():
    er = published("table1-cifar10", "er, M = 200")
    assert er == {
        "class_il": {"acc": Figure(55.84, 0.71), "bwt": Figure(-47.77, 1.39)},
        "task_il": {"acc": Figure(92.41, 0.59), "bwt": Figure(-5.73, 0.38)},
    }
    assert published("table1-cifar10", "joint")["class_il"] == {"acc": Figure(92.20, 0.15), "bwt": None}
    assert published("table1-tinyimagenet", "gem, M = 500")["task_il"] == {"acc": None, "bwt": None}
    assert published("table2-cifar100", "rder, M = 5120")["class_il"] == {"acc": Figure(60.07, 0.23), "bwt": None}
    assert published("table6-warmup", "rder, M = 200, warmup = 33")["task_il"]["acc"] == Figure(92.88, 0.42)
    assert published("table7-interval", "rder, M = 50, interval = 1")["class_il"]["acc"] == Figure(48.12, 0.51)


def test_contradictions_are_kept():
    tables = ("table1-cifar10", "table3-vanilla", "table4-split")
    derpp = [published(study, "der++, M = 500")["class_il"]["acc"].mean for study in tables]
    assert derpp == [72.11, 72.11, 73.11]


def test_what_is_not_published_is_none():
    assert published("table9", "er, M = 200") is None
    assert published("table1-cifar10", "er, M = 201") is None


def test_rows_of_each_table():
    assert {study: len(rows) for study, rows in tables().items()} == ROWS


def test_rows_are_named_as_experiments_and_studies_are():
    for name in {row.split(",")[0] for rows in tables().values() for row in rows}:
        assert Experiment.of(name, "cifar10").label == name
    assert tables()["similarity"].keys() <= studies.similarity("cifar10", {}).keys()
