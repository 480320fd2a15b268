"""scikit-learn's manners: clone, search, pipelines, partial_fit, and those of its own checks that apply."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from torch import nn

import everlearn
from everlearn.errors import Notice

# A learner is made around a network that it trains in place, and is no list of settings that `fit` first reads; it has
# errors and warnings of its own; it takes any shape, and whole numbers as token ids.
NOT_OURS = {
    "check_no_attributes_set_in_init",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_unfitted",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_n_features_in_after_fitting",
    "check_n_features_in",
    "check_estimators_dtypes",
    "check_dtype_object",
    "check_estimators_empty_data_messages",
    "check_array_api_input",
    "check_classifier_data_not_an_array",
    "check_supervised_y_2d",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_fit1d",
    "check_fit2d_predict1d",
    "check_requires_y_none",
    "check_dataframe_column_names_consistency",
}


class Padded(nn.Module):
    """A network for vectors of up to 24 numbers: the checks bring several lengths."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(24, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.body(nn.functional.pad(x, (0, 24 - x.shape[1]))).relu())


def learner(**settings) -> everlearn.Learner:
    torch.manual_seed(0)
    return everlearn.Learner(Padded(), "er", **(dict(epochs=10, batch=8, lr=0.1, memory=50) | settings))


def flowers() -> tuple[np.ndarray, np.ndarray]:
    found = load_iris()
    return found.data.astype("float32"), found.target_names[found.target]


def checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = list(estimator_checks_generator(learner(), legacy=True))
    for estimator, check in every:
        name = check.func.__name__
        if name not in NOT_OURS:
            yield pytest.param(estimator, check, id=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learns_own_check(estimator, check):
    check(estimator)


def test_a_clone_is_untaught_and_learns_the_same():
    x, y = flowers()
    taught = learner().fit(x, y)
    other = clone(taught)
    assert other.classes == 0 and other.net.module.head.out_features == 2, "the head is as it came"
    assert (other.fit(x, y).predict(x) == taught.predict(x)).all()
    assert torch.equal(other.net.theta, taught.net.theta)


def test_fit_begins_anew():
    x, y = flowers()
    one = learner().fit(x, y)
    first = one.net.theta.detach().clone()
    assert torch.equal(one.fit(x, y).net.theta, first) and one.tasks == 1


def test_a_learner_goes_into_pipelines_and_searches():
    x, y = flowers()
    assert is_classifier(learner())
    assert cross_val_score(make_pipeline(StandardScaler(), learner()), x, y, cv=3).mean() > 0.85
    search = GridSearchCV(learner(), {"memory": [10, "balanced:30"]}, cv=2).fit(x, y)
    assert search.best_params_["memory"] in (10, "balanced:30")
    piped = make_pipeline(StandardScaler(), learner(epochs=2))
    search = GridSearchCV(piped, {"learner__lr": [1e-6, 0.1]}, cv=2).fit(x, y)
    assert search.best_params_ == {"learner__lr": 0.1}


def test_partial_fit_is_told_all_classes_once():
    x, y = flowers()
    one = learner()
    for rows in np.array_split(np.random.default_rng(0).permutation(len(x)), 15):
        assert one.partial_fit(x[rows], y[rows], classes=np.unique(y)) is one
    assert one.classes_.tolist() == ["setosa", "versicolor", "virginica"] and one.prequential.samples == 150
    with pytest.raises(everlearn.BadInput, match="classes has 'tulip'"):
        one.partial_fit(x, y, classes=["tulip"])


def test_settings_can_be_read_and_set():
    one = learner(seed=3)
    assert one.get_params()["seed"] == 3 and one.get_params()["training"].epochs == 10
    assert one.set_params(memory=7).capacity == 7
    assert one.set_params(lr=0.5, epochs=2).training == everlearn.Training(epochs=2, batch=8, lr=0.5)
    with pytest.raises(everlearn.BadInput, match="unknown setting of a Learner 'memry'; did you mean 'memory'"):
        one.set_params(memry=7)


def test_settings_that_are_refused_leave_what_was_learned():
    x, y = flowers()
    one = learner().update(x, y)
    before = one.predict_proba(x)
    for wrong in (dict(memory=-5), dict(lr=-1.0), dict(method="err"), dict(network=nn.Identity())):
        with pytest.raises(everlearn.BadInput):
            one.set_params(**wrong)
        assert (one.predict_proba(x) == before).all() and one.tasks == 1


def test_a_learner_says_what_it_is():
    x, y = flowers()
    one = learner(weighting="consolidate", epochs=1)
    assert repr(one) == "<Learner: ER weighed by Consolidate; tasks 0, classes 0, samples kept 0 of 50>"
    assert repr(one.update(x, y)) == "<Learner: ER weighed by Consolidate; tasks 1, classes 3, samples kept 50 of 50>"
    lower = everlearn.Learner(Padded(), "finetune")
    assert repr(lower) == "<Learner: FineTune; tasks 0, classes 0>"


def test_settings_are_tried_without_copying_the_network_it_has():
    """One with weight_norm cannot be copied."""
    network = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 3))

    def copied(self, memo):
        raise RuntimeError("only tensors created explicitly by the user support deepcopy")

    type(network[0]).__deepcopy__ = copied
    try:
        one = everlearn.Learner(network, epochs=2).update(*flowers())
        with pytest.warns(Notice, match="makes a learner anew"):
            one.set_params(lr=0.1)
        with pytest.raises(everlearn.BadInput, match="lr"):
            one.set_params(lr=-1)
    finally:
        del type(network[0]).__deepcopy__
    assert one.training.lr == 0.1 and one.tasks == 0


@pytest.mark.parametrize("how", ["fit", "clone"])
def test_a_learner_that_was_loaded_is_made_anew_as_it_was_made(tmp_path, how):
    x, y = torch.randint(0, 256, (40, 1, 6, 6), dtype=torch.uint8), torch.arange(40) % 2
    network = lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    pixels = everlearn.Pixels(mean=(0.5,), std=(0.2,), flip=True)
    one = everlearn.Learner(network(), classes=[0, 1, 7], inputs=pixels, epochs=1).update(x, y)
    one.save(tmp_path / "it")
    other = everlearn.Learner.load(tmp_path / "it", network())
    other = other.fit(x, y) if how == "fit" else clone(other).update(x, y)
    assert other.classes_.tolist() == [0, 1, 7] and other.inputs.document() == pixels.document()
    limited = everlearn.Learner(nn.Linear(4, 2), classes=2, epochs=1).update(*tables()[:2])
    limited.save(tmp_path / "limited")
    again = everlearn.Learner.load(tmp_path / "limited", nn.Linear(4, 2))
    assert again.get_params()["classes"] == 2 and again.get_params()["inputs"] is None


def tables():
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    return x, torch.arange(20) % 2
