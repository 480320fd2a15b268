"""What only a GPU can show; skipped where there is none."""

import pytest
import torch
from conftest import toy

from recollect import Learner
from recollect.experiments import RECIPES, Experiment, defaults
from recollect.networks import build
from recollect.store import Store
from recollect.workers import perform_all

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture(autouse=True)
def exact():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    yield
    torch.backends.cudnn.deterministic = False


def learn(name: str, capture: bool, device: str = "cuda", **settings) -> torch.Tensor:
    stream = toy(tasks=2, each=24, channels=3)
    learner = Learner(
        RECIPES[name].build(defaults(name, "digits")),
        build("cnn", stream.shape, 4, 0),
        classes=4,
        pixels=stream.pixels,
        memory=8,
        epochs=4,
        batch=4,
        lr=0.02,
        device=device,
        capture=capture,
        **settings,
    )
    for task in stream:
        learner.update(task)
    torch.cuda.synchronize()
    return learner.net.theta.detach().cpu()


@pytest.mark.parametrize("name", RECIPES)
def test_captured_equals_eager(name):
    assert torch.equal(learn(name, capture=True), learn(name, capture=False))


@pytest.mark.parametrize(
    "settings", [dict(momentum=0.9, weight_decay=1e-3), dict(precision="bfloat16"), dict(forward="joint")]
)
def test_captured_equals_eager_with_other_settings(settings):
    assert torch.equal(learn("rder", capture=True, **settings), learn("rder", capture=False, **settings))


@pytest.mark.parametrize("name", ["er", "rder"])
def test_the_gpu_agrees_with_the_cpu(name):
    double = dict(dtype=torch.float64)
    assert torch.allclose(
        learn(name, capture=True, **double),
        channels_last(learn(name, capture=False, device="cpu", **double)),
        rtol=0,
        atol=1e-9,
    )


def channels_last(theta: torch.Tensor) -> torch.Tensor:
    """θ of the toy CNN as a GPU lays it out."""
    network = build("cnn", (3, 8, 8), 4, 0)
    parts = zip(network.parameters(), theta.split([p.numel() for p in network.parameters()]))
    return torch.cat([part.view(p.shape).permute(0, 2, 3, 1).reshape(-1) if p.ndim == 4 else part for p, part in parts])


def test_runs_together_equal_runs_apart(tmp_path):
    torch.backends.cudnn.benchmark = False
    experiments = [Experiment.of(name, epochs=2, memory=20, seed=seed) for name in ("er", "rder") for seed in range(2)]
    together = perform_all(experiments, Store(tmp_path / "together"), device="cuda", pack=4)
    apart = perform_all(experiments, Store(tmp_path / "apart"), device="cuda", pack=1)
    assert [r["class_il"]["matrix"] for r in together] == [r["class_il"]["matrix"] for r in apart]
