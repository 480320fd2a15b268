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
    return min(Path(OUT).glob("*rer-*"))


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


PICTURE = f"{FOLDER}/test/{CLASSES[2]}/0\x1b[1m.png"
OPENED = ("again", "predict", "teach", "memory", "export", "explain", "report", "compare")  # commands of a run


@pytest.mark.parametrize(
    "words",
    [
        ("data", "check", f"folder:{FOLDER}"),
        ("data", "check", f"folder:{FOLDER}", "--strict"),
        (
            "run",
            "rer",
            "--stream",
            f"folder:{FOLDER}",
            *["--network", "mlp", "--epochs", "2", "--memory", "8"],
            "--set",
            "tasks=2",
        ),
        ("again", "--dry-run"),
        ("predict", PICTURE),
        ("predict", PICTURE, "--top", "3"),
        ("predict", PICTURE, "--csv"),
        ("predict", PICTURE, "--json"),
        ("memory",),
        ("memory", "--json"),
        ("memory", "--html", "mem\x1b[1mory.html"),
        ("memory", "--forget", CLASSES[2], "--out", "for\x1b[1mgot\n", "--force"),
        ("teach", f"{FOLDER}/train", "--epochs", "1", "--out", "tau\x1b[1mght\n", "--force"),
        ("export", "we\x1b[1mights.pt", "--force"),
        ("explain",),
        ("report", "--html", "re\x1b[1mport.html"),
        ("study", "stu\x1b[1mdy.toml", "--dry-run"),
        ("study", "stu\x1b[1mdy.toml", "--out", OUT),
        ("methods", "me\x1b[1mthod.py:Mine"),
        ("streams",),
    ],
)
def test_every_command_shows_them_as_text(words, monkeypatch):
    Path("stu\x1b[1mdy.toml").write_text(
        f'question = "wh\\u001b[1my"\nseeds = 1\n[[grid]]\nmethod = "er"\nstream = {json.dumps("folder:" + FOLDER)}\n'
        'network = "mlp"\nepochs = 1\nmemory = 8\ntasks = 2\n'
    )
    Path("me\x1b[1mthod.py").write_text('import everlearn\nclass Mine(everlearn.ER):\n    """O\x1b[1mne."""\n')
    given = [words[0], run_folder(), *words[1:]] if words[0] in OPENED else words
    result = call(*given)
    assert result.exit_code == 0, result.output
    assert visible(result.stdout) and visible(result.stderr)


def test_a_failure_and_its_traceback_are_text(tmp_path):
    Path("bad\x1b[1m.png").write_bytes(b"no picture")
    for words in (("predict", run_folder(), "bad\x1b[1m.png"), ("run", "no\x1b[1m.py:X", "--debug")):
        result = call(*words)
        assert result.exit_code and visible(result.stdout) and visible(result.stderr) and "\ufffd" in result.stderr


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_a_path_that_is_none_is_answered_in_a_sentence_whichever_version_of_typer_reads_it(word, monkeypatch):
    for _ in range(2):
        answer = call("compare", word)
        assert answer.exit_code == 2 and answer.stderr.startswith("everlearn: ") and visible(answer.stderr)
        monkeypatch.setattr("typer.core.TyperGroup.main", lambda self, *args, **more: Path(word).stat())
