"""Each guide, followed literally in an empty folder, does what it says."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from everlearn.cli.app import app

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "docs" / "start.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def follow(kind: str, text: str, names: dict) -> None:
    """Do what a block says: `python` and `sh` are run, `toml` and what begins with a file's name are written."""
    named = re.match(r"# ([\w.]+)\n", text)
    if kind in ("python", "toml") and named:
        Path(named[1]).write_text(text)
    elif kind == "python":
        exec(compile(text, "guide", "exec"), names)
    elif kind == "sh":
        for line in text.splitlines():
            command, *words = shlex.split(line, comments=True)
            assert command == "everlearn"
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, f"{line}: {done.output}"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_can_be_followed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict = {}
    for kind, text in BLOCK.findall(page.read_text()):
        follow(kind, text, names)


@pytest.mark.parametrize("page", [*GUIDES, ROOT / "docs" / "index.md"], ids=lambda page: page.stem)
def test_every_command_a_guide_names_exists(page):
    shell = "".join(text for kind, text in BLOCK.findall(page.read_text()) if kind in ("sh", "console"))
    for word in set(re.findall(r"^everlearn (\w+)", shell, flags=re.MULTILINE)):
        assert CliRunner().invoke(app, [word, "--help"]).exit_code == 0, word


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_a_notebook_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    """With a real kernel it runs when the site is built; here its cells are, in order, one program."""
    pytest.importorskip("IPython")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for text in re.findall(r"^```{code-cell} python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        lines = [line for line in text.splitlines() if not line.startswith(":")]
        if lines[0].startswith("!everlearn "):
            done = CliRunner().invoke(app, shlex.split(lines[0])[1:])
            assert done.exit_code == 0, done.output
        else:
            exec(compile(ast.parse("\n".join(lines)), page.stem, "exec"), names)
