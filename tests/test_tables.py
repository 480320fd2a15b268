"""Tables: no figure is cut and no label is lost, however narrow the terminal."""

import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from pages import SMALL, make
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

import everlearn
from everlearn.cli.app import app
from everlearn.data.sources import FileStatus
from everlearn.experiments import studies
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import published
from everlearn.experiments.use import Guess
from everlearn.report import WIDE, catalogue, console, known, progress, tables
from everlearn.report.sheet import Sheet

LONG = "der+++consolidate, M = 5120, interval = 10"
STUDY = studies.study("table5-small-memory", 2)


def result(number, **settings):
    """A run's document with wide figures, no two runs' alike."""
    figures = {"acc": 71.61 + 7.3 * number, "bwt": -17.46 - 9.1 * number, "forgetting": 17.46 + number, "fwt": -18.15}
    of = {"matrix": [[71.61 + number]], **figures}
    document = Experiment.of("der++", **settings).document()
    return {"experiment": document, "seconds": 1234.5, "class_il": of, "task_il": {**of, "acc": 95.71}}


PAIR = [result(0), result(1)]
ROWS = dict.fromkeys([LONG, "rer, M = 200"], PAIR)
SEARCH = {"best": {"weights": [1, 0.125, 0.0625], "acc": 77.77}, "trials": [0] * 64, "pruned": 32, "seconds": 86400.5}
STEP = {"method": "der+++consolidate", "milliseconds": 1234.56, "images_a_second": 123456.0, "peak_mib": 20480.5}
BENCH = {
    "device": "NVIDIA GeForce RTX 4090",
    "torch": "2.11.0",
    "shapes": {"network": "resnet18", "batch": 32},
    "rows": [
        {**STEP, "way": "several runs together", "start_seconds": 12.25},
        {**STEP, "way": "alone", "start_seconds": None},
    ],
}
GAIN = {"mean": -12.34, "half_width": 10.55, "ahead": 10, "seeds": 10}
FILES = [
    FileStatus(Path("photos/white-tailed-eagle"), "ok", "1,347 + 450 images of 10 classes; on disk 1064x48 (3)"),
    FileStatus(Path("photos/broken.png"), "skipped", "not a picture"),
]
RANKED = [("class number 7", 0.5), ("class number 1", 0.4), ("class number 4", 0.1)]
GUESSES = [Guess(Path("photos/white-tailed-eagle/in flight over the lake.png"), None, RANKED)]
ALL = {
    "guesses": lambda: known.guesses(GUESSES),
    "data": lambda: next(catalogue.files("folder:photos", FILES)),
    "results": lambda: tables.results(ROWS, "digits, in %"),
    "settings": lambda: tables.settings(PAIR, "der+++consolidate on digits, in %"),
    "study": lambda: tables.study(STUDY, dict.fromkeys(STUDY.rows, PAIR) | ROWS),
    "study of one's own": lambda: tables.study(studies.study("digits", 1), ROWS),
    "again": lambda: tables.again({LONG: (result(0), result(1))}),
    "gains": lambda: tables.gains({LONG: ("der+++consolidate, M = 5120", GAIN), "rer": ("er", None)}),
    "plan": lambda: tables.plan(studies.Study("mine", "which?", {LONG: [Experiment.of("er")]}), set()),
    "search": lambda: next(iter(tables.tuning(SEARCH, ROWS, "der+++consolidate on digits"))),
    "tuning": lambda: list(tables.tuning(SEARCH, {**ROWS, "learned": PAIR}, "der++ on digits"))[1],
    "bench": lambda: tables.bench(BENCH),
    "matrix": lambda: tables.matrix([[100.0 - row - task for task in range(10)] for row in range(10)], "Class-IL"),
}


def printed(table, width):
    screen = console(file=io.StringIO(), width=width)
    screen.print(table)
    return screen.file.getvalue()


def times(part, text):
    """How often a text stands there whole, on one line."""
    return len(re.findall(rf"(?<!\S){re.escape(part)}(?!\S)", text))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ALL)
def test_every_figure_and_every_word_of_a_label_is_whole(name, width):
    sheet = ALL[name]()
    text = printed(sheet, width)
    assert max(map(len, text.splitlines())) <= width and "…" not in text
    labels = [str(cell) for row in sheet.rows for cell in row[: sheet.texts]]
    figures = [line for row in sheet.rows for cell in row[sheet.texts :] for line in str(cell).split("\n") if line]
    words = [word for words in (*labels, *sheet.heads, sheet.title or "") for word in words.split()]
    for part, wanted in Counter(figures).items() | Counter(words).items():
        assert times(part, text) >= wanted, part


def test_a_published_row_has_its_published_figures_among_those_that_are_checked():
    label = next(label for label in STUDY.rows if published(STUDY.name, label))
    figure = published(STUDY.name, label)["class_il"]["acc"]
    assert f"{figure.mean:.2f} ± {figure.std:.2f}" in printed(ALL["study"](), 60)


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_columns_that_do_not_fit_stand_below_with_the_label_of_their_row(width):
    rows = [[round(10 * row + task / 10, 1) for task in range(10)] for row in range(10)]
    lines = [line.split() for line in printed(tables.matrix(rows, "t"), width).splitlines()]
    for number, row in enumerate(rows):
        found = [figure for first, *others in filter(None, lines) if first == str(number + 1) for figure in others]
        assert found == [f"{value:.1f}" for value in row]


def test_a_setting_in_a_label_stays_together_where_it_can():
    table = tables.plain("", "ACC", numbers=True)
    table.add_row(LONG, "71.61 ± 12.34")
    lines = [line[:19].strip() for line in printed(table, 35).splitlines()]
    assert [line for line in lines if line and "─" not in line] == ["der+++consolidate,", "M = 5120,", "interval = 10"]


def test_a_word_too_long_for_the_terminal_breaks_and_the_figure_does_not():
    table = tables.plain("class", "a-heading-longer-than-its-column", numbers=True)
    table.add_row("x" * 100, Text("−12.345678"))
    text = printed(table, 30)
    assert max(map(len, text.splitlines())) <= 30 and times("−12.345678", text) == 1 and text.count("x") == 100


@pytest.mark.parametrize("width", [40, 60, 120])
def test_a_class_stands_beside_its_probability(width):
    lines = printed(known.guesses(GUESSES), width).splitlines()
    beside = [line for line in lines if line.rstrip().endswith(("50.0", "40.0", "10.0"))]
    assert len(beside) == 3 and all("class" in line for line in beside)


def test_a_table_without_rows_and_one_of_a_single_column_are_tables():
    assert "method" in printed(Sheet(["method"]), 60)
    assert "ACC" in printed(tables.plain("method", "ACC", numbers=True), 60)


def test_a_pipe_has_no_edge(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console(file=io.StringIO()).width == WIDE
    monkeypatch.setenv("COLUMNS", "70")
    assert console(file=io.StringIO()).width == 70
    assert console(file=io.StringIO(), width=50).width == 50


@pytest.mark.parametrize("width", [50, 60, 80, 120, 160])
def test_the_live_display_is_one_line_that_cuts_its_words_and_no_number(monkeypatch, width):
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "console", lambda **settings: screen)
    experiment = Experiment.of("er+normalised", "fashion-mnist", epochs=50)
    display = progress.Display([experiment])
    display.report(experiment, {"event": "epoch", "task": 2, "epoch": 19})
    screen.print(display._progress.get_renderable())
    (line,) = screen.file.getvalue().splitlines()
    said = "er+normalised on fashion-mnist, seed 0: task 3, epoch 20 of 50"
    words = line[: line.index("120/250")].rstrip(" ╸━")
    assert words == said if width >= 120 else words.endswith("…") and said.startswith(words[:-1].rstrip())
    assert re.search(r"120/250 epochs \d:\d\d:\d\d left [-\d]+:[-\d]+$", line.rstrip())


# The commands that print tables ---------------------------------------------------------------------------------------
WORDS = ["--memory", 20, "--epochs", 2, "--set", "batch=32", "--set", "tasks=2", "--set", "classes=0,1,2,3"]
COMMANDS = {
    "compare": lambda runs: ["compare", runs, "--against", "er"],
    "explain": lambda runs: ["explain", next(runs.glob("*-rer-*"))],
    "again": lambda runs: ["again", "--dry-run", *runs.iterdir()],
    "study": lambda runs: ["study", STUDY.name, "--dry-run"],
    "streams": lambda runs: ["streams"],
    "methods": lambda runs: ["methods"],
    "weightings": lambda runs: ["weightings"],
    "memory": lambda runs: ["memory", next(runs.with_name("kept").iterdir())],
    "run": lambda runs: ["run", "er", "--out", runs, "--seeds", 2, "--no-keep", "--quiet", *WORDS],
    "repeated": lambda runs: ["again", *runs.with_name("kept").iterdir(), "--out", runs.with_name("again"), "--quiet"],
    "studies": lambda runs: ["study"],
    "studied": lambda runs: ["study", runs.with_name("mine.toml"), "--out", runs, "--seeds", 2, "--quiet"],
    "data": lambda runs: ["data", "check", "digits"],
    "method": lambda runs: ["methods", "der++"],
    "weighting": lambda runs: ["weightings", "relation"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    everlearn.run("er", out=root / "kept", seed=0, **SMALL)
    grid = "".join(f"{key} = {json.dumps([value])}\n" for key, value in SMALL.items())
    (root / "mine.toml").write_text(f'question = "which?"\n[[grid]]\nmethod = ["er", "rer"]\n{grid}')
    return make(root / "runs")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_the_same_figures_at_any_width(runs, name, monkeypatch):
    def said(width):
        monkeypatch.setenv("COLUMNS", str(width))
        done = CliRunner().invoke(app, [str(word) for word in COMMANDS[name](runs)])
        assert not done.exception or isinstance(done.exception, SystemExit), done.exception
        return done.stdout

    figures = lambda text: Counter(re.findall(r"[−+-]?\d+\.\d+|\d{2,}", text))
    whole = said(WIDE)
    assert len(whole) > 40
    for width in (60, 80, 120):
        text = said(width)
        assert not {"…", "\ufffd"} & {*text} and not figures(whole) - figures(text), width
        assert max(map(len, text.splitlines())) <= width, width
