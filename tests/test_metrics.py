"""The figures of a table, worked out by hand and for any matrix."""

import math
from statistics import fmean, stdev

import pytest
import torch

from everlearn.metrics import METRICS, across, agreeing, alike, confusion, gain, guesses, paired, right, spread, summary

given, st = pytest.importorskip("hypothesis").given, pytest.importorskip("hypothesis.strategies")
PERCENT = st.floats(0, 100)
SQUARE = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(PERCENT, min_size=n, max_size=n), min_size=n, max_size=n)
)


def test_forward_transfer_begins_with_the_second_task_and_sees_the_one_before():
    matrix, untrained = [[90, 11, 1], [70, 80, 23], [60, 85, 95]], [50, 1, 3]
    assert summary(matrix, untrained)["fwt"] == ((11 - 1) + (23 - 3)) / 2
    assert summary(matrix, [0, *untrained[1:]])["fwt"] == 15  # the first task has no transfer


def test_forgetting_looks_at_the_rows_that_had_learned_the_task():
    matrix = [[50, 99, 0], [80, 60, 99], [70, 55, 90]]
    assert summary(matrix, [0, 0, 0])["forgetting"] == ((80 - 70) + (60 - 55)) / 2


@pytest.mark.parametrize("matrix", [[[50]], [[50, 60]], [[50, 60, 70], [1, 2, 3]]])
def test_a_matrix_without_a_row_for_each_of_two_tasks_has_an_accuracy_alone(matrix):
    found = summary(matrix, [0] * 3)
    assert found == {
        "acc": fmean(matrix[-1]),
        "bwt": None,
        "forgetting": None,
        "fwt": None,
        "matrix": matrix,
        "untrained": [0] * 3,
    }


@given(SQUARE, st.lists(PERCENT, min_size=5, max_size=5))
def test_the_figures_of_any_matrix_hang_together(matrix, untrained):
    found, last = summary(matrix, untrained), matrix[-1]
    assert found["acc"] == pytest.approx(sum(last) / len(last)) and found["matrix"] == matrix
    if len(matrix) == 1:
        assert found["bwt"] is found["forgetting"] is found["fwt"] is None
        return
    assert found["forgetting"] >= 0 or math.isclose(found["forgetting"], 0, abs_tol=1e-9)
    assert found["forgetting"] >= -found["bwt"] - 1e-9, "what it was at its best is no less than when it was learned"
    lifted = summary([[a + 1 for a in row] for row in matrix], untrained)
    assert lifted["bwt"] == pytest.approx(found["bwt"], abs=1e-9)
    assert lifted["fwt"] == pytest.approx(found["fwt"] + 1, abs=1e-9)


@given(st.lists(st.floats(-50, 50), max_size=8))
def test_gains_are_counted_and_spread(gains):
    found = paired(gains)
    if not gains:
        assert found is None
        return
    assert found["seeds"] == len(gains) and found["ahead"] == len([g for g in gains if g > 0])
    assert found["mean"] == pytest.approx(fmean(gains)) and (found["half_width"] is None) == (len(gains) == 1)


def test_a_gain_of_nothing_is_not_ahead_and_its_interval_is_students():
    found = paired([1.0, 0.0, 2.0])
    assert found["ahead"] == 2 and found["half_width"] == pytest.approx(4.302652729911275 * stdev([1, 0, 2]) / 3**0.5)
    assert paired([3.0]) == {"mean": 3.0, "half_width": None, "ahead": 1, "seeds": 1}


def result(acc: float, **more) -> dict:
    both = {"acc": acc, "bwt": -1.0, "forgetting": 1.0, "fwt": 0.0, "matrix": [[acc]]} | more
    return {"class_il": dict(both), "task_il": dict(both)}


def test_a_gain_is_ours_less_theirs_on_the_same_seed():
    seed = lambda run: run["seed"]
    ours = [result(80) | {"seed": 0}, result(70) | {"seed": 1}, result(1) | {"seed": 9}]
    theirs = [result(60) | {"seed": 1}, result(75) | {"seed": 0}, result(99) | {"seed": 5}]
    assert gain(ours, theirs, seed)["mean"] == 7.5 and gain(ours, theirs, seed)["seeds"] == 2
    assert gain(ours, [], seed) is None


def test_a_spread_has_a_deviation_of_two_values_or_more():
    assert spread([3.0]) == {"mean": 3.0, "std": None}
    assert spread([1.0, 3.0]) == {"mean": 2.0, "std": math.sqrt(2)}
    many = across([result(80, fwt=None), result(90)])
    assert many["class_il"]["acc"]["mean"] == 85 and many["task_il"]["fwt"] == {"mean": 0.0, "std": None}
    assert across([result(80, fwt=None)])["class_il"]["fwt"] is None and set(many["class_il"]) == set(METRICS)


def test_results_are_alike_if_all_figures_are():
    assert alike(result(80), result(80 + 1e-10)) and not alike(result(80), result(80.1))
    assert alike(result(80, fwt=None), result(80, fwt=None)) and not alike(result(80, fwt=None), result(80))
    assert not alike(result(80), result(80, bwt=-2.0))


def test_agreeing_counts_cells_to_the_last_digit():
    one = {"class_il": {"matrix": [[1.0, 2.0], [3.0]]}, "task_il": {"matrix": [[5.0]]}}
    other = {"class_il": {"matrix": [[1.0, 2.5], [3.0]]}, "task_il": {"matrix": [[5.0], [6.0]]}}
    assert agreeing(one, one) == (4, 4) and agreeing(one, other) == (3, 5)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), max_size=30))
def test_a_confusion_counts_each_sample_with_a_label_once(pairs):
    labels, guess = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T
    found = confusion(labels, guess, 4)
    assert found.tolist() == [[pairs.count((row, column)) for column in range(4)] for row in range(4)]


@given(st.integers(0, 2**31))
def test_task_il_is_never_below_class_il(seed):
    logits = torch.randn(7, 6, generator=torch.Generator().manual_seed(seed))
    labels = torch.randint(2, 4, (7,), generator=torch.Generator().manual_seed(seed))
    class_il, task_il = (right(guess, labels) for guess in guesses(logits, (2, 3)))
    assert 0 <= class_il <= task_il <= 100
