"""One death of each kind of torture/launchers.py; `make torture` has more."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc to find processes in")]


def test_under_any_launcher_a_process_that_dies_leaves_the_runs_none_the_worse(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "torture"))
    import launchers

    record = launchers.torture(count=1, seed=1)
    assert sum(record.cases.values()) >= 4 and record.failures == []
