"""Class names, folders and labels made of scripts, escapes, newlines and markup appear as text, whatever shows them."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from everlearn.cli import app as cli
from everlearn.errors import printable
from everlearn.experiments.seals import sealed

Image = pytest.importorskip("PIL.Image")
CLASSES = ("<script>alert(1)<script>", "=cmd|' !A0'&<b>", "\x1b[31mred\x1b]0;x\x07", "two\nlines\u202e _$%#{}~^\\")
FOLDER, OUT = "pho\x1b[2Jtos\n<i>&$_{}", "ru\x1b[7mns\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run of pictures whose classes, and whose folders, have such names."""
    root = tmp_path_factory.mktemp("home")
    for number, name in enumerate(CLASSES):
        for part in ("train", "test"):
            (root / FOLDER / part / name).mkdir(parents=True)
            for n in range(4):
                picture = np.full((6, 6, 3), 60 * number + n, np.uint8)
                Image.fromarray(picture).save(root / FOLDER / part / name / f"{n}\x1b[1m.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        words = ["run", "rer", "--stream", f"folder:{FOLDER}", "--network", "mlp", "--epochs", "2", "--memory", "8"]
        made = call(*words, "--set", "tasks=2", "--out", OUT)
    assert made.exit_code == 0, made.output
    assert visible(made.stdout) and visible(made.stderr)
    return root


@pytest.fixture(autouse=True)
def there(home, monkeypatch):
    monkeypatch.chdir(home)


def call(*words, width=None):
    env = {} if width is None else {"COLUMNS": str(width)}
    return CliRunner().invoke(cli.app, [*map(str, words)], prog_name="everlearn", env=env)


def visible(text):
    return all(c.isprintable() or c == "\n" for c in text)


def run_folder():
    (folder,) = Path(OUT).iterdir()
    return folder


@pytest.mark.parametrize("width", [60, 100])
def test_explain_shows_class_names_as_text(width):
    result = call("explain", run_folder(), width=width)
    assert result.exit_code == 0 and visible(result.stdout)
    flat = "".join(result.stdout.split())
    assert all("".join(printable(name).split()) in flat for name in CLASSES[:2])


def test_explains_page_has_them_as_text_and_nothing_to_run():
    result = call("explain", run_folder(), "--html", "pa\x1b[1mge.html")
    assert result.exit_code == 0 and visible(result.stdout)
    page = Path("pa\x1b[1mge.html").read_text()
    assert visible(page)
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert {printable(name) for name in CLASSES} <= {e.text for e in root.iter("th")}
    assert not [e.tag for e in root.iter() if e.tag in ("script", "img", "iframe")]


@pytest.mark.parametrize("form", [(), ("--csv",), ("--markdown",), ("--latex",), ("--json",)])
def test_compare_shows_them_as_text_in_every_form(form):
    other = json.loads((run_folder() / "result.json").read_text())
    other["experiment"]["seed"], other["experiment"]["training"]["lr"] = 1, 0.5
    Path("oth\x1b[3mer.json").write_text(json.dumps(sealed(other)))
    result = call("compare", OUT, "oth\x1b[3mer.json", "--against", "rer, lr = 0.5", *form)
    assert result.exit_code == 0, result.output
    assert visible(result.stdout) and visible(result.stderr)
    if form == ("--csv",):
        assert len({*map(len, csv.reader(io.StringIO(result.stdout)))}) == 1


def test_every_sentence_about_them_is_one_line_of_text():
    (Path(OUT).parent / "da\x1b[5mmaged\n").mkdir(exist_ok=True)
    (Path("da\x1b[5mmaged\n") / "result.json").write_text("{")
    for words in (
        ("compare", "da\x1b[5mmaged\n"),
        ("compare", "no\x1b[5mwhere\n"),
        ("explain", "no\x1b[5mwhere\n"),
        ("again", "no\x1b[5mwhere\n"),
        ("import", "mammoth", "no\x1b[5mwhere\n"),
        ("run", "er\x1b[5m"),
        ("run", "er", "--stream", "folder:no\x1b[5mwhere\n"),
        ("run", "er", "--set", "a\x1b[5m=1"),
        ("compare", OUT, "--against", "\x1b[5m\n"),
    ):
        result = call(*words)
        assert result.exit_code == 2 and result.stderr.count("\n") == 1 and visible(result.stderr), words


@pytest.mark.parametrize(
    "words",
    [
        ("data", "check", f"folder:{FOLDER}"),
        ("run", "rer", "--stream", f"folder:{FOLDER}", "--network", "mlp", "--epochs", "2", "--memory", "8", "--set"),
        ("again", "--dry-run"),
    ],
)
def test_other_commands_show_them_as_text(words):
    more = {"run": ["tasks=2", "--out", OUT], "again": [run_folder()], "data": []}[words[0]]
    result = call(*words, *more)
    assert result.exit_code == 0, result.output
    assert visible(result.stdout) and visible(result.stderr)
