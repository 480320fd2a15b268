"""Some kills of torture/kills.py; `make torture` has all of them."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forking here")


def test_killed_in_any_way_a_run_goes_on_to_the_same_bits(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "torture"))
    import kills

    record = kills.main(count=6, seed=1, jobs=2)
    assert sum(record.cases.values()) == 6 and record.failures == []
