"""A few of the wrong inputs of torture/inputs.py: each is answered with a sentence."""

from pathlib import Path

import pytest


@pytest.mark.parametrize("kind", ["commands", "studies", "records", "Python"])
def test_a_wrong_input_is_answered_with_a_sentence(kind, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "torture")
    import inputs
    from record import Record

    record = Record("inputs", inputs.CLAIM)
    inputs.torture(record, {"Python": 200, "records": 60}.get(kind, 100), seed=3, only=kind)
    assert record.cases[kind] and not record.failures
