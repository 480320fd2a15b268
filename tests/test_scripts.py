"""Scripts as people write them: taught, saved, loaded in a new process and taught on is the same as never saved."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_growth import same

import everlearn
from everlearn.learner import saved

HERE = Path(__file__).parent / "scripts"
SCRIPTS = {path.stem: path for path in sorted(HERE.glob("*.py")) if path.stem != "theirs"}
HALF = {"photos": 3, "text": 1, "table": 2, "backbone": 2, "stream": 1}  # chunks before it is saved


# All scripts one after another: what takes time is the start of a process.
EACH = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
for job in sys.argv[2:]:
    sys.argv = job.split("|")
    runpy.run_path(sys.argv[0])
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Folders: what one process has saved, and what another has made of it."""
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    path = os.pathsep.join([str(Path(everlearn.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    for folder, part in ((first, "0|{}"), (second, "{}|9")):
        shutil.copytree(first, second, dirs_exist_ok=True)
        jobs = [f"{script}|{folder / name}|{part.format(HALF[name])}" for name, script in SCRIPTS.items()]
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run([sys.executable, "-c", EACH, HERE, *jobs], env=env, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    return first, second


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_learner_taught_on_in_a_new_process_is_the_one_that_was_never_saved(name, apart, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [SCRIPTS[name].name, str(tmp_path / "whole"), "0", "9"])
    monkeypatch.syspath_prepend(HERE)
    whole = runpy.run_path(str(SCRIPTS[name]))
    before, after, never = (saved.read(at / saved.LEARNER) for at in (*(of / name for of in apart), tmp_path / "whole"))
    assert same(after[0], never[0]) and after[1] == never[1]
    assert not same(before[0], never[0]), "it was taught on"
    learner, chunks = whole["learner"], whole["chunks"]
    right = [learner.score(chunk) for chunk in chunks]
    assert sum(right) / len(right) > 0.75, right


def test_they_are_short():
    for script in SCRIPTS.values():
        assert sum(1 for line in script.read_text().splitlines() if line.strip()) < 20
