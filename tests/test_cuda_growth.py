"""A head that grows, small tasks and saved learners on a GPU; skipped where there is none."""

import pytest
import torch
from conftest import ON_GPU, built, toy
from test_growth import same

from everlearn import Learner
from everlearn.networks import build

DEVICE = "cuda"
pytestmark = ON_GPU
NAMES = ["er", "der++", "er-ace", "rder", "gss", "icarl", "agem", "gem", "lwf", "si", "oewc", "der+++vanilla"]
STREAM = toy(tasks=3, each=24, channels=3)


def network(outputs: int = 6, seed: int = 0):
    return build("cnn", STREAM.shape, outputs, seed)


def learner_of(name: str, own=None, device: str = DEVICE, **settings) -> Learner:
    settings = dict(memory=30, epochs=4, batch=4, lr=0.02, momentum=0.5, inputs=STREAM.pixels) | settings
    return Learner(own or network(), built(name), device=device, **settings)


def learned(name: str, tasks=STREAM.tasks, **settings) -> Learner:
    learner = learner_of(name, **settings)
    for task in tasks:
        learner.update(task)
    return learner


@pytest.mark.parametrize("name", NAMES)
def test_captured_equals_eager_while_the_head_grows_and_tasks_are_small(name):
    """Tasks smaller than the memory are placed by their content, and come again."""
    tasks = [*STREAM.tasks, STREAM.tasks[0]]
    one, other = (learned(name, tasks, capture=capture) for capture in (True, False))
    assert same(one.state(), other.state()) and one.classes == 6
    held = [tuple(row) for row in one.memory.held()[0].flatten(1).tolist()]
    assert len(held) == len(set(held))


@pytest.mark.parametrize("name", ["er", "der++", "lwf", "si"])
def test_growth_on_the_gpu_agrees_with_the_cpu(name):
    double = dict(dtype=torch.float64)
    one, other = learned(name, **double), learned(name, device="cpu", **double)
    for key, tensor in one.net.module.state_dict().items():
        assert torch.allclose(tensor.cpu(), other.net.module.state_dict()[key], rtol=0, atol=1e-9), key
    assert torch.equal(one.memory.held()[0].cpu(), other.memory.held()[0])  # the spare row is anyone's


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_between_tasks_and_in_the_middle_is_kept_to_the_bit(name, tmp_path):
    whole, moved, middle = learner_of(name), learner_of(name), tmp_path / "middle"
    for task in STREAM:
        whole.update(task)
        moved.update(task, on_epoch=lambda learner, record: record["epoch"] == 1 and learner.save(middle))
        moved.save(tmp_path)
        moved = Learner.load(tmp_path, network(2, seed=7), device=DEVICE)
        again = Learner.load(middle, network(9, seed=8), device=DEVICE).update(task)
        assert same(whole.state(), moved.state()) and same(whole.state(), again.state())


def test_what_was_saved_on_a_gpu_goes_on_without_one(tmp_path):
    learned("der++", dtype=torch.float64).save(tmp_path)
    one = Learner.load(tmp_path, network(), device=DEVICE)
    other = Learner.load(tmp_path, network(), device="cpu")
    assert other.device.type == "cpu" and same(
        {name: tensor.cpu() for name, tensor in one.state().items()}, other.state()
    )
    for learner in (one, other):
        learner.update(STREAM.tasks[1])
    for key, tensor in one.net.module.state_dict().items():
        assert torch.allclose(tensor.cpu(), other.net.module.state_dict()[key], rtol=0, atol=1e-9), key


@pytest.mark.parametrize("name", ["er", "rder", "er-ace", "gss"])
def test_a_stream_is_observed_on_the_gpu(name):
    learner = learner_of(name)
    for task in STREAM:
        for x, y in zip(*(half.split(7) for half in task.train)):
            learner.observe(x, y)
    assert learner.prequential.samples == 72 and learner.classes == 6
    learner.update(STREAM.tasks[0])
    assert torch.isfinite(learner.net.theta).all()


@pytest.mark.parametrize("memory", [30, "balanced:30"])
def test_what_is_forgotten_is_gone_and_replayed_steps_go_on(memory):
    ends = []
    for capture in (True, False):
        learner = learned("der++", capture=capture, memory=memory)
        assert learner.forget(lambda x, label: label in (0, 3)).keys() == {0, 3}
        learner.update(STREAM.tasks[0])
        learner.update(STREAM.tasks[2])
        ends.append(learner.state())
    assert same(*ends)


def test_a_task_that_is_refused_leaves_the_gpus_learner_as_it_was():
    learner = learner_of("der++")
    for task in STREAM:
        before = learner.state()
        with pytest.raises(ValueError, match="patience needs data"):
            learner.update(task, patience=2)
        assert same(before, learner.state())
        learner.update(task, validation=0.25, patience=3)
    assert learner.classes == 6
