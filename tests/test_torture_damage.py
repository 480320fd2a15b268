"""A small form of torture/damage.py: whatever happens to a file of a run or to a record, it is noticed or harmless."""

from pathlib import Path


def test_damage_is_noticed_or_changes_nothing(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "torture"))
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")  # as the torture sets it: put back at the end
    import damage

    record = damage.torture(100, seed=1)
    assert not record.failures and sum(record.cases.values()) == 100
    assert record.figures["noticed"] > 70 and record.figures["silent"] == record.figures["tracebacks"] == 0
