"""What CONTRIBUTING.md shows works as it stands there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, flags=re.DOTALL))
COMMANDS = re.findall(r"^everlearn (.+)$", TEXT, flags=re.MULTILINE)


@pytest.mark.parametrize("file", FILES)
def test_an_addition_takes_under_20_lines(file):
    assert len([line for line in FILES[file].splitlines() if line.strip()]) < 20


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shown_there_runs(command, tmp_path):
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "everlearn", *shlex.split(command), "--quiet"],
        cwd=tmp_path,
        env=os.environ | {"EVERLEARN_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Class-IL" in done.stdout and len(list((tmp_path / "runs").iterdir())) in (1, 2)


def test_every_way_to_extend_is_shown():
    assert set(FILES) == {"brier.py", "hardest.py", "louder.py", "parity.py", "backwards.py"} and len(COMMANDS) == 6
