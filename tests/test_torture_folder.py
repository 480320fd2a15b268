"""A small form of torture/folder.py: processes at one study in one folder, killed at random."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "torture" / "folder.py"


@pytest.mark.slow
def test_processes_killed_at_one_study_do_every_run_once(tmp_path):
    words = [sys.executable, SCRIPT, "--count", "4", "--seconds", "15", "--out", tmp_path / "record.json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(words, env=environment, check=True)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["held"] == record["tried"] > 0 and record["figures"]["kills"] > 5
