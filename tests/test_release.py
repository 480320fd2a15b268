"""What `make release-check` does in minutes, as far as it can be seen in seconds."""

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path

import pytest

import everlearn

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


def test_a_record_keeps_what_was_found_elsewhere_as_long_as_the_wheel_is_the_same(check, monkeypatch, tmp_path):
    def found(python, torch, pinned):
        return {"python": python, "pinned": pinned, "versions": {"torch": torch}}

    def recorded(inside, *checked):
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("everlearn/py.typed", inside)
        check.record(file, (wheel, wheel), list(checked), [])
        return json.loads(file.read_text())["checked"]

    monkeypatch.setattr(check, "call", lambda *words: subprocess.CompletedProcess(words, 0, "0123\n"))
    wheel, file = tmp_path / "everlearn.whl", tmp_path / "release.json"
    old, new = found("3.11.7", "2.11.0", True), found("3.12.1", "2.15.0", False)
    assert recorded("", new) == [new]
    assert recorded("", old) == [old, new]
    newer = found("3.12.4", "2.16.0", False)
    assert recorded("", newer) == [old, newer]
    assert recorded("another", old) == [old]


def test_workflows_call_what_the_makefile_has():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    called = {
        target
        for file in (ROOT / ".github" / "workflows").glob("*.yml")
        for target in re.findall(r"run: make ([\w-]+)", file.read_text())
    }
    assert {"test", "check", "site-check", "release-check"} <= called <= targets


def test_what_is_published_names_the_repository_it_comes_from(tmp_path):
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    step = textwrap.dedent(re.search(r"repository it comes from\n +run: \|\n((?: {10}.*\n|\n)+)", text)[1])
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    at = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "us/everlearn", "GITHUB_REF_NAME": "v0.1.0"}
    subprocess.run(["bash", "-ec", step], cwd=tmp_path, env=os.environ | at, check=True)
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Source"] == "https://host/us/everlearn" and urls["Issues"] == urls["Source"] + "/issues"
    assert urls["Changelog"] == urls["Source"] + "/blob/v0.1.0/CHANGELOG.md"


def test_the_citation_and_the_changelog_name_the_version():
    assert f"\nversion: {everlearn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {everlearn.__version__}" in (ROOT / "CHANGELOG.md").read_text()
