"""Some faults of torture/mutants.py that must be noticed, and one change that must not; `make mutants` has many."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="no forking here")]

# Two faults in functions, and one in what an import runs.
NOTICED = [
    "core/plan.py: row = np.where(n < capacity, n, rng.integers(0, n + 1)): Lt → LtE",
    "core/plan.py: kept[steps * batch - 1 - last] = True: True → False",
    'core/plan.py: "outer": (lambda n, f: (n + 4 - f) // 5, lambda j, f: 5 * j + f),: 4 → 5',
]
HARMLESS = "core/plan.py: chosen = np.full((len(counts), batch), -1): no USub"


def judged(names: list[str], file: str) -> tuple[set[str], set[str]]:
    """Mutants by whether the tests of a file notice them; in a process that has not imported everlearn."""
    import mutants

    known = mutants.known_tests([file])
    chosen = mutants.chosen_tests([mutant for mutant in mutants.all_mutants() if mutant.name in names], known)
    verdicts = list(mutants.verdicts(chosen, known))
    return {v.mutant.name for v in verdicts if v.noticed}, {v.mutant.name for v in verdicts if not v.noticed}


def test_small_faults_are_noticed_and_a_change_without_effect_is_not(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "torture"))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        noticed, survived = process.submit(judged, [*NOTICED, HARMLESS], "tests/test_plan.py").result()
    assert noticed == set(NOTICED) and survived == {HARMLESS}
