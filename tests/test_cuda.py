"""What only a GPU can show; skipped where there is none."""

import copy

import pytest
import torch
from conftest import LABELS, ON_GPU, learner_of, toy
from test_learner import Counting

import everlearn
from everlearn.core.capture import on_own_stream
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Store
from everlearn.launchers import perform
from everlearn.networks import build
from everlearn.weightings import Weighting

pytestmark = ON_GPU


def on_gpu(name: str, **settings) -> tuple:
    stream = toy(tasks=2, each=24, channels=3)
    small = dict(network=build("cnn", stream.shape, 4, 0), epochs=4, lr=0.02, device="cuda")
    return learner_of(name, stream, **small | settings), stream


def learn(name: str, **settings) -> torch.Tensor:
    learner, stream = on_gpu(name, **settings)
    for task in [stream.merged()] if learner.method.merges else stream:
        learner.update(task)
    torch.cuda.synchronize()
    return learner.net.theta.detach().cpu()


@pytest.mark.parametrize("name", LABELS)
def test_captured_equals_eager(name):
    assert torch.equal(learn(name, capture=True), learn(name, capture=False))


@pytest.mark.parametrize(
    "settings", [dict(momentum=0.9, weight_decay=1e-3), dict(precision="bfloat16"), dict(forward="joint")]
)
def test_captured_equals_eager_with_other_settings(settings):
    assert torch.equal(learn("rder", capture=True, **settings), learn("rder", capture=False, **settings))


@pytest.mark.parametrize("name", ["gss", "oewc", "gem", "icarl", "lwf", "retain"])
def test_captured_equals_eager_in_bfloat16(name):
    low = dict(precision="bfloat16")
    assert torch.equal(learn(name, capture=True, **low), learn(name, capture=False, **low))


@pytest.mark.parametrize("name", ["er", "rder", "agem", "gem", "icarl", "gss"])
def test_compiled_batches_in_one_pass_agree_with_a_pass_each(name):
    double = dict(capture=True, dtype=torch.float64)
    one, other = learn(name, compile=True, **double), learn(name, compile=False, **double)
    assert torch.allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["rder", "lwf", "gss"])
def test_resumed_equals_uninterrupted(name):
    (whole, stream), saved = on_gpu(name), []
    for task in stream:
        whole.update(task, report=lambda record: saved.append({k: v.clone() for k, v in whole.state().items()}))
    for state in (saved[2], saved[5]):
        again, _ = on_gpu(name)
        again.restore(state)
        for task in stream.tasks[again.tasks :]:
            again.update(task)
        assert torch.equal(again.net.theta, whole.net.theta)


@pytest.mark.parametrize("name", ["rder", "lwf", "gss"])
def test_left_after_any_step_it_goes_on_to_the_same_bits(name):
    (whole, stream), saved = on_gpu(name), []
    with on_own_stream():  # steps taken one by one are recorded on the stream they are taken on
        for task in stream:
            for _ in whole.updating(task):
                saved.append(whole.state())
    for state in saved[1 :: len(saved) // 6]:
        again, _ = on_gpu(name)
        again.restore(state)
        for task in stream.tasks[again.tasks :]:
            again.update(task)
        assert torch.equal(again.net.theta, whole.net.theta)


def test_steps_on_the_common_stream_are_refused_in_a_sentence():
    learner, stream = on_gpu("er")
    with pytest.raises(everlearn.BadInput, match="steps are recorded on a stream of their own"):
        list(learner.updating(stream.tasks[0]))


def test_a_deterministic_run_of_a_resnet_gives_the_same_bits(tmp_path):
    import numpy as np

    random = np.random.default_rng(0)
    images = lambda n: random.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
    labels = lambda n: np.arange(n) % 4
    np.savez(tmp_path / "mine.npz", x_train=images(400), y_train=labels(400), x_test=images(80), y_test=labels(80))
    experiment = Experiment.of("rder", f"npz:{tmp_path}/mine.npz", tasks=2, epochs=2, memory=40)
    stream = str(tmp_path)
    results = [perform([experiment], Store(f"{stream}/{n}"), device="cuda", deterministic=True)[0] for n in range(2)]
    weights = [(Store(f"{stream}/{n}").path(experiment) / "weighting.safetensors").read_bytes() for n in range(2)]
    assert results[0]["class_il"] == results[1]["class_il"] and weights[0] == weights[1]


@pytest.mark.parametrize("name", ["er", "rder", "gem"])
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
    together = perform(experiments, Store(tmp_path / "together"), device="cuda", pack=4)
    apart = perform(experiments, Store(tmp_path / "apart"), device="cuda", pack=1)
    assert [r["class_il"]["matrix"] for r in together] == [r["class_il"]["matrix"] for r in apart]


@pytest.mark.parametrize("name", ["er", "rer"])
def test_a_buffer_that_is_assigned_is_counted_in_replayed_steps_too(name):
    counted = []
    for capture in (True, False):
        torch.manual_seed(0)
        learner, stream = on_gpu(name, network=Counting(192), capture=capture)
        for task in stream:
            learner.update(task)
        counted.append((int(learner.net.module.seen), learner.net.theta.detach().clone()))
    (replayed, theta), (eager, same) = counted
    assert replayed == eager > 0 and torch.equal(theta, same)


@pytest.mark.parametrize("name", ["rder", "oewc", "icarl"])
def test_a_copied_learner_goes_on_like_the_first(name):
    learner, stream = on_gpu(name)
    learner.update(stream.tasks[0])
    other = copy.deepcopy(learner)
    for one in (learner, other):
        one.update(stream.tasks[1])
    assert torch.equal(learner.net.theta, other.net.theta)
    assert learner.net.theta.data_ptr() != other.net.theta.data_ptr()


def test_frozen_layers_in_evaluation_mode_stay_still_in_replayed_steps():
    ends = []
    for capture in (True, False):
        torch.manual_seed(0)
        network = build("cnn", (3, 8, 8), 4, 0)
        network.body[:4].requires_grad_(False).eval()
        learner, stream = on_gpu("rder", network=network, capture=capture)
        for task in stream:
            learner.update(task)
        assert int(network.body[1].num_batches_tracked) == 0 < int(network.body[5].num_batches_tracked)
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)


def test_a_schedule_that_changes_a_number_between_epochs_is_followed_in_replayed_steps():
    class Fading(Weighting):
        def begin_epoch(self, task, epoch, epochs):
            self.scale = 0.5**epoch

        def loss(self, method, step, terms):
            return super().loss(method, step, terms) * self.scale

    def learned(capture: bool) -> torch.Tensor:
        stream = toy(tasks=2, each=24, channels=3)
        settings = dict(
            classes=range(4), inputs=stream.pixels, epochs=4, batch=4, memory=8, device="cuda", capture=capture
        )
        learner = everlearn.Learner(build("cnn", stream.shape, 4, 0), everlearn.ER(Fading()), **settings)
        for task in stream:
            learner.update(task)
        return learner.net.theta.detach()

    assert torch.equal(learned(True), learned(False))
