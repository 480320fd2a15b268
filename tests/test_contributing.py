"""What CONTRIBUTING.md shows works as it stands there."""

import re
import shlex
from pathlib import Path

import pytest
from commands import command

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, flags=re.DOTALL))
COMMANDS = re.findall(r"^everlearn (.+)$", TEXT, flags=re.MULTILINE)


@pytest.mark.parametrize("file", FILES)
def test_an_addition_takes_under_20_lines(file):
    assert len([line for line in FILES[file].splitlines() if line.strip()]) < 20


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_shown_there_runs(words, tmp_path):
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    done = command([*shlex.split(words), "--quiet"], tmp_path, EVERLEARN_DATA=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Class-IL" in done.stdout and len(list((tmp_path / "runs").iterdir())) in (1, 2)


def test_every_way_to_extend_is_shown():
    assert set(FILES) == {"brier.py", "hardest.py", "mir.py", "first.py", "louder.py", "parity.py", "backwards.py"}
    assert len(COMMANDS) == 8
