"""Small forms of the tortures of data files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from everlearn.data import catalogue, sources, verified

TORTURE = Path(__file__).parents[1] / "torture"


@pytest.fixture
def tortures(monkeypatch):
    monkeypatch.syspath_prepend(TORTURE)
    monkeypatch.setattr(verified, "MEMORY", verified.MEMORY)  # the tortures set both
    monkeypatch.setattr(verified, "SETTLED", verified.SETTLED)
    monkeypatch.setattr(catalogue, "SOURCES", dict(catalogue.SOURCES))
    monkeypatch.setattr(sources, "SOURCES", catalogue.SOURCES)


def test_no_damage_of_a_data_file_goes_unnoticed(tortures, tmp_path, monkeypatch):
    import damage_data

    monkeypatch.setattr(sys, "argv", ["damage_data", "--count", "45", "--seed", "1", "--out", str(tmp_path / "out")])
    assert damage_data.main() == 0
    found = json.loads((tmp_path / "out").read_text())
    assert found["tried"] == found["held"] == 45 and len(found["groups"]) == 9


def test_a_reader_that_verifies_nothing_is_caught(tortures, tmp_path, monkeypatch):
    import damage_data

    monkeypatch.setattr(sources, "_verify", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["damage_data", "--count", "45", "--seed", "1", "--out", str(tmp_path / "out")])
    assert damage_data.main() == 1
    assert "read without a word" in (tmp_path / "out").read_text()


@pytest.mark.slow
def test_hostile_data_files_do_no_harm(tmp_path):
    command = [sys.executable, TORTURE / "hostile.py", "--count", "24", "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out").read_text())
    assert found["tried"] == found["held"] >= 20 and len(found["groups"]) == 8
