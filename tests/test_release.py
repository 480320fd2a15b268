"""What `make release-check` does in minutes, as far as it can be seen in seconds."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = "import torch; from everlearn.weightings.bilevel import slope; slope(torch.exp, torch.ones(2), torch.ones(2))"


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import release_check

    return release_check


def test_the_first_forward_mode_pass_of_a_process_warns_of_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-W", "error::FutureWarning", "-c", FIRST],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_dependency_has_a_floor_to_be_checked_with(check):
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split("[>=]", name)[0] for name in needed} <= set(check.oldest())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in check.oldest().values())


def test_a_python_that_is_not_here_is_not_found(check):
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert check.interpreter("2.0") is None
    assert check.interpreter(here) is None or here in str(check.interpreter(here).resolve())


def test_a_wheel_with_a_file_too_many_or_too_few_is_refused(check, monkeypatch, tmp_path):
    wheel = tmp_path / "everlearn-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tests/test_release.py", "")
    monkeypatch.setattr(check, "tracked", lambda: ["src/everlearn/py.typed"])
    with pytest.raises(check.Fault, match=r"everlearn/py\.typed.*tests/test_release\.py"):
        check.inspect(wheel, tmp_path / "none.tar.gz")
