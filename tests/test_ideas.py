"""The contract is wide enough: published ideas, each a file outside the package that leaves the engine alone."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from conftest import toy
from test_capture import watched as recorded  # noqa: F401
from torch.nn import functional as F

from everlearn import Batch, Experiment, Learner, Pixels, registry, run
from everlearn.networks import CNN

FOLDER = Path(__file__).parent / "ideas"
IDEAS = {
    "decoupled.py": "Decoupled",
    "prior_adjusted.py": "PriorAdjusted",
    "averaged.py": "Averaged",
    "projected.py": "Projected",
    "interfered.py": "Interfered",
    "two_views.py": "TwoViews",
    "mixed.py": "Mixed",
    "kept.py": "Kept",
}
NAMES = [f"{FOLDER / file}:{name}" for file, name in IDEAS.items()]
every = pytest.mark.parametrize("name", NAMES, ids=IDEAS.values())
weighed = pytest.mark.parametrize("weighting", ["fixed", "relation", "consolidate"])


def learner_of(name: str, weighting: str, stream, seed: int = 0, **settings) -> Learner:
    torch.manual_seed(seed)
    network, own = CNN(stream.shape, stream.classes), dict(memory=12, epochs=2, batch=4, lr=0.05) | settings
    method = registry.find("method", name)()
    return Learner(network, method, weighting, classes=range(stream.classes), inputs=stream.pixels, seed=seed, **own)


def learn(*given, **settings) -> Learner:
    learner = learner_of(*given, **settings)
    for task in given[2]:
        learner.update(task)
    return learner


@pytest.mark.parametrize("file", IDEAS)
def test_it_is_a_file_of_under_60_lines(file):
    assert len((FOLDER / file).read_text().splitlines()) < 60


@every
@weighed
def test_it_learns_and_the_same_seed_is_the_same_run(name, weighting):
    stream = toy(tasks=2, each=40, pixels=Pixels((0.5,), (0.25,), pad=1))
    one, other = (learn(name, weighting, stream, epochs=4) for _ in range(2))
    assert torch.equal(one.net.theta, other.net.theta) and torch.isfinite(one.net.theta).all()
    assert one.evaluate(stream).task_il[1] > 75


@every
def test_resumed_equals_uninterrupted(name):
    stream = toy()
    whole, saved = learner_of(name, "relation", stream), []
    for task in stream:
        whole.update(task, report=lambda record: saved.append(whole.state()))
        saved.append(whole.state())
    for state in saved:
        again = learner_of(name, "relation", stream)
        again.restore(state)
        for task in stream.tasks[again.tasks :]:
            again.update(task)
        assert torch.equal(again.net.theta, whole.net.theta) and again.evaluate(stream) == whole.evaluate(stream)


@every
def test_a_deep_copy_goes_on_as_the_learner_does(name):
    stream = toy(tasks=3)
    learner = learner_of(name, "fixed", stream)
    for task in stream.tasks[:2]:
        learner.update(task)
    copied = copy.deepcopy(learner)
    for one in (copied, learner):
        one.update(stream.tasks[2])
    assert torch.equal(learner.net.theta, copied.net.theta) and learner.evaluate(stream) == copied.evaluate(stream)


@every
def test_its_steps_can_be_recorded(recorded, name):  # noqa: F811
    """No step binds anew what the method or its weighting holds."""
    stream, ends = toy(), []
    for capture in (True, False):
        learner = learner_of(name, "relation", stream, epochs=4)
        learner.capture = capture
        for task in stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)


@every
def test_it_is_run_kept_and_found_again_by_its_name(name, tmp_path):
    settings = dict(memory=30, epochs=1, batch=4, out=tmp_path, data=tmp_path)
    first = run(name, **settings)
    assert run(name, **settings) == first and len(list(tmp_path.glob("digits-*"))) == 1
    assert Experiment.read(first["experiment"]).document() == first["experiment"]


def test_distillation_on_new_images_goes_on_where_new_samples_no_longer_count():
    stream = toy()
    learner = learn(NAMES[0], "consolidate", stream)
    assert (learner.method.weighting.rehearsal > 0).tolist() == [False, False, True, True, True]


def test_the_averaged_network_is_the_average():
    """θ̄ ← d θ̄ + (1 − d) θ after each step, d = min(.9, (1 + n) / (10 + n)), and θ stays as it is."""
    stream, thetas = toy(tasks=1), []
    learner = learner_of(NAMES[2], "fixed", stream)
    for _ in learner.updating(stream.tasks[0]):
        thetas.append(learner.net.theta.detach().clone())
    mean = thetas[0].double()
    for n, theta in enumerate(thetas):
        d = min(0.9, (1 + n) / (10 + n))
        mean = d * mean + (1 - d) * theta.double()
    assert torch.allclose(learner.method.average.mean.double(), mean, atol=1e-6)
    own, x = learner.net.theta.detach().clone(), stream.tasks[0].test[0]
    tested = learner.method.predict(learner, x)
    assert torch.equal(learner.net.theta, own) and not torch.allclose(tested, learner.logits(x))
    with learner.method.average.applied(learner.net):
        assert torch.equal(learner.logits(x), tested)


def test_backward_feature_projection_is_its_equation():
    """‖A f − f*‖² / d per row, and A moves along −2 r fᵀ / (B d)."""
    stream = toy()
    learner = learn(NAMES[3], "fixed", stream)
    method, batch = learner.method, stream.tasks[0].train[0][:4]
    method.begin_task(learner, stream.tasks[1])
    x = learner.inputs(batch)
    features = torch.randn(4, method.projector.shape[0], generator=torch.Generator().manual_seed(0))
    seen = Batch(x, torch.zeros(4, dtype=torch.long), torch.randn(4, 4), features, {"logits": torch.zeros(4, 4)})
    A = method.projector.clone().double().requires_grad_()
    apart = features.double() @ A.T - method.teacher.features(x).double()
    loss = apart.square().mean(dim=1)
    assert torch.allclose(method.rehearse(seen, seen)[2].loss.double(), loss, atol=1e-5)
    (by_hand,) = torch.autograd.grad(loss.mean(), A)
    ours = 2 * method.gap(seen).T @ features / features.numel()
    assert torch.allclose(ours.double(), by_hand, atol=1e-5)


def test_interfered_draws_are_those_whose_loss_rises_most():
    chosen, stream = [], toy(each=24)
    learner = learner_of(NAMES[4], "fixed", stream, epochs=1)
    select = type(learner.method).select

    def counted(method, step):
        drawn = step.replay[0]
        select(method, step)
        chosen.append((len(drawn.y), len(step.replay[0].y)))

    type(learner.method).select = counted
    try:
        for task in stream:
            learner.update(task)
    finally:
        type(learner.method).select = select
    assert set(chosen) == {(12, 4)}


def test_a_method_sees_the_second_view_of_each_new_sample():
    method = registry.find("method", NAMES[5])()
    module = sys.modules[type(method).__module__]
    x = torch.zeros(3, 1, 4, 4)
    assert not torch.equal(module.noisy(x), module.noisy(x)) and method.views == (None, module.noisy)


def test_prior_adjusted_cross_entropy_is_its_equation():
    stream = toy(tasks=3)
    learner = learner_of(NAMES[1], "fixed", stream)
    learner.update(stream.tasks[0])
    learner.method.begin_task(learner, stream.tasks[1])
    pi = torch.tensor([1 / 4, 1 / 4, 1 / 4 + 1 / 2, 1 / 4 + 1 / 2, 0, 0], dtype=torch.float64)
    pi /= pi.sum()
    z, y = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 2])
    by_hand = F.nll_loss((pi * z.exp() / (pi * z.exp()).sum(1, keepdim=True)).log().nan_to_num(), y, reduction="none")
    learner.method.prior = learner.method.prior.double()
    (term,) = learner.method.learn(Batch(z, y, z))
    assert torch.allclose(term.loss, by_hand, atol=1e-6)


@every
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("weighting", ["fixed", "relation"])
def test_recorded_on_a_gpu_it_is_what_it_is_step_by_step(name, weighting):
    torch.backends.cudnn.deterministic, stream, ends = True, toy(each=24), []
    for capture in (True, False):
        learner = learner_of(name, weighting, stream, epochs=4, device="cuda", capture=capture)
        for task in stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().cpu())
    torch.backends.cudnn.deterministic = False
    assert torch.equal(*ends)
