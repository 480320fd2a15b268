"""Tables of one's own, pandas' and others': rows wherever they are given, with columns that keep their order."""

import warnings

import numpy as np
import pytest
import torch
from test_growth import same
from test_learner import refused
from torch import nn

from everlearn import Learner

ROWS = np.random.default_rng(0).normal(size=(12, 3))
LABELS = ["plus" if row[0] > 0 else "basic" for row in ROWS]
NAMES = ["usage", "tickets", "spend"]


class Plain:
    """A table as far as pandas' and others' are alike: an array by rows, and otherwise a mapping by columns."""

    def __init__(self, rows, columns=None):
        self.rows, self.columns = np.asarray(rows), list(range(np.shape(rows)[1]) if columns is None else columns)
        self.rows.flags.writeable = False

    def __array__(self, dtype=None, copy=None):
        return self.rows if dtype is None else self.rows.astype(dtype)

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.columns)

    def __getitem__(self, name):
        if name not in self.columns:
            raise KeyError(name)
        return self.rows[:, self.columns.index(name)]


def pandas(rows, columns=None):
    return pytest.importorskip("pandas").DataFrame(rows, columns=columns)


KINDS = pytest.mark.parametrize("table", [Plain, pandas])


def learner_of(**settings) -> Learner:
    torch.manual_seed(0)
    return Learner(nn.Linear(3, 2), **dict(memory=8, epochs=2, batch=4, lr=0.1) | settings)


@KINDS
@pytest.mark.parametrize("names", [NAMES, None])
def test_a_table_is_its_rows_wherever_it_is_given(table, names):
    whole, other = learner_of().update(ROWS, LABELS), learner_of().update(table(ROWS.copy(), names), LABELS)
    first = table(ROWS[:3].copy(), names)  # as many rows as columns
    assert (other.predict(first) == whole.predict(ROWS[:3])).all()
    assert (other.predict_proba(first) == whole.predict_proba(ROWS[:3])).all()
    assert other.score(first, LABELS[:3]) == other.score((first, LABELS[:3])) == whole.score(ROWS[:3], LABELS[:3])
    assert other.observe(first, LABELS[:3]) == whole.observe(ROWS[:3], LABELS[:3])
    known = lambda learner: {name: of for name, of in learner.state().items() if name != "learner.known"}
    assert same(known(whole), known(other))


@KINDS
def test_columns_in_another_order_than_at_first_are_refused_and_change_nothing(table, tmp_path):
    learner = learner_of().update(table(ROWS.copy(), NAMES), LABELS)
    learner.save(tmp_path)
    before = learner.state()
    turned, words = table(ROWS[:, [2, 0, 1]].copy(), ["spend", "usage", "tickets"]), "the columns come in another order"
    loaded = Learner.load(tmp_path, nn.Linear(3, 2))
    assert loaded.feature_names_in_.tolist() == NAMES
    for one in (learner, loaded):
        for ask in (one.predict, one.predict_proba):
            with refused(words):
                ask(turned)
        for ask in (one.score, one.update, one.observe, one.partial_fit):
            with refused(words):
                ask(turned, LABELS)
        with refused(words):
            one.update(table(ROWS.copy(), NAMES), LABELS, validation=(turned, LABELS))
        assert same(before, one.state())
    with refused("there is a column 'age' that the learner was not taught with"):
        learner.predict(table(np.ones((2, 4)), [*NAMES, "age"]))
    with refused("there is no column 'tickets', which the learner was taught with"):
        learner.predict(table(np.ones((2, 2)), ["usage", "spend"]))
    assert (learner.predict(ROWS) == learner.predict(table(ROWS.copy(), NAMES))).all(), "an array has no names"


def test_the_names_are_those_of_the_last_fit_and_of_data_that_have_some():
    learner = learner_of()
    assert not hasattr(learner, "feature_names_in_")
    with refused("NaN or inf"):
        learner.update(Plain(np.full((12, 3), np.nan), NAMES), LABELS)
    assert not hasattr(learner, "feature_names_in_"), "what is refused leaves nothing behind"
    assert not hasattr(learner.update(ROWS, LABELS), "feature_names_in_")
    assert learner.update(Plain(ROWS.copy(), NAMES), LABELS).feature_names_in_.tolist() == NAMES
    assert not hasattr(learner.fit(Plain(ROWS.copy()), LABELS), "feature_names_in_")


def test_a_read_only_array_is_shared_and_nobody_is_warned():
    rows = ROWS.astype("float32")
    rows.flags.writeable = False
    from everlearn.data.samples import tensor

    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(action="error"):
            found = tensor(rows)
            learner_of().update(rows, LABELS).predict(rows)
    finally:
        torch.set_warn_always(always)
    assert found.data_ptr() == rows.ctypes.data and found.tolist() == rows.tolist()


def test_numbers_of_another_machines_byte_order_are_numbers():
    learner = learner_of().update(ROWS.astype(">f8"), LABELS)
    assert same(learner.state(), learner_of().update(ROWS, LABELS).state())


def gap(value, dtype=object):
    rows = ROWS.astype(dtype)
    rows[5, 1] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (lambda: gap(np.nan, float), "NaN or inf, first in sample 5, column"),
        (lambda: gap(np.inf, float), "NaN or inf, first in sample 5, column"),
        (lambda: gap(None), "NaN or inf, first in sample 5, column"),
        (lambda: gap(Missing()), "NaN or inf, first in sample 5, column"),
        (lambda: gap("c7"), "samples of type object; they must be numbers, and 'c7' is none (in sample 5, column"),
    ],
)
def test_the_first_value_nobody_can_learn_from_is_named(rows, words):
    with refused(f"{words} 1"):
        learner_of().update(rows(), LABELS)
    with refused(f"{words} 'tickets'"):
        learner_of().update(Plain(rows(), NAMES), LABELS)
    learner = learner_of().update(Plain(ROWS.copy(), NAMES), LABELS)
    with refused(f"{words} 'tickets'"):
        learner.predict(Plain(rows(), NAMES))


class Missing:
    """As pandas' NA: nobody can tell whether it is equal to anything."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


def test_a_value_is_named_in_samples_of_any_shape_and_among_samples_that_come_one_by_one():
    images = torch.ones(4, 1, 3, 3)
    images[2, 0, 1, 2] = torch.inf
    with refused("first in sample 2 at [0, 1, 2]"):
        Learner(nn.Sequential(nn.Flatten(), nn.Linear(9, 2))).update(images, [0, 1, 0, 1])
    with refused("and 'k' is none (in sample 1, column 2)"):
        learner_of().update([[1.0, 2.0, 3.0], [1.0, 2.0, "k"]], ["a", "b"])
    with refused("first in sample 1"):
        Learner(nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 2))).update(np.array([1.0, np.nan]), ["a", "b"])


def test_a_gap_is_no_label():
    for none in (Missing(), None, float("nan"), np.datetime64("NaT")):
        with refused("sample 0 has no label"):
            learner_of().update(ROWS, [none, *LABELS[1:]])


def test_a_pipeline_may_hand_tables_on():
    pytest.importorskip("pandas")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    piped = make_pipeline(StandardScaler(), learner_of()).set_output(transform="pandas")
    frame = pandas(ROWS, NAMES)
    assert piped.fit(frame, LABELS).predict(frame).shape == (12,)
    assert piped[-1].feature_names_in_.tolist() == NAMES
    nullable = frame.astype("Float64")
    assert (learner_of().fit(nullable, LABELS).predict(nullable) == learner_of().fit(frame, LABELS).predict(ROWS)).all()
    with refused("NaN or inf, first in sample 5, column 'usage'"):
        learner_of().update(nullable.mask(frame == frame.loc[5]), LABELS)
