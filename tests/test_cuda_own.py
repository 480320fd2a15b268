"""On a GPU: a head that grows, mini-batches, a saved learner. Run on a machine that has one."""

import pytest
import torch
from conftest import ON_GPU, toy

import everlearn
from everlearn.networks import CNN

pytestmark = ON_GPU
RECORDED = ("er", "der++", "er-ace", "rder", "gss", "lwf", "si", "icarl", "agem", "gem")


def learner(method: str, **more) -> everlearn.Learner:
    torch.manual_seed(0)
    settings = dict(memory=8, epochs=3, batch=4, lr=0.05, momentum=0.5, device="cuda")
    return everlearn.Learner(CNN((1, 8, 8), 3), method, **settings | more)


def chunks() -> list[tuple[torch.Tensor, list[str]]]:
    """Two classes, then one more, then two, of which one was there before."""
    stream = toy(tasks=2, each=12)
    x, y = stream.merged().train
    named = lambda *classes: [(x[(y == c)], ["abcd"[c]] * int((y == c).sum())) for c in classes]
    joined = lambda pairs: (torch.cat([x for x, _ in pairs]), [label for _, names in pairs for label in names])
    return [joined(named(0, 1)), joined(named(2)), joined(named(3, 0))]


@pytest.mark.parametrize("method", RECORDED)
def test_a_recorded_step_follows_a_head_that_grows(method):
    one, other = learner(method), learner(method, capture=False)
    for chunk in chunks():
        one.update(chunk)
        other.update(chunk)
    assert one.classes_.tolist() == list("abcd") and torch.equal(one.net.theta, other.net.theta)


@pytest.mark.parametrize(
    ("method", "weighting"), [("er", None), ("der++", "relation"), ("er-ace", None), ("gss", None)]
)
def test_observed_mini_batches_are_recorded_and_give_the_same_bits(method, weighting):
    one, other = (learner(method, weighting=weighting, lr=0.01, capture=capture) for capture in (True, False))
    for x, labels in chunks():
        for rows in torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split(4):
            batch = x[rows], [labels[n] for n in rows.tolist()]
            assert one.observe(*batch) == other.observe(*batch)
    assert one._steps.graphs is not None and one._steps.graphs.graphs
    assert torch.equal(one.net.theta, other.net.theta) and one.kept() == other.kept()


@pytest.mark.parametrize("method", ["rder", "lwf", "icarl"])
def test_saved_and_loaded_on_the_gpu_equals_kept_and_opens_on_the_cpu(method, tmp_path):
    first, *others = chunks()
    kept = learner(method)
    kept.update(first).save(tmp_path)
    loaded = everlearn.Learner.load(tmp_path, CNN((1, 8, 8), 7), device="cuda")
    on_cpu = everlearn.Learner.load(tmp_path, CNN((1, 8, 8), 1))
    assert torch.allclose(on_cpu.logits(first[0]), kept.logits(first[0]).cpu(), atol=1e-4)
    for chunk in others:
        kept.update(chunk)
        loaded.update(chunk)
        on_cpu.update(chunk)
    assert torch.equal(kept.net.theta, loaded.net.theta) and on_cpu.classes == 4


def test_an_export_made_on_the_gpu_answers_as_the_learner(tmp_path):
    taught = learner("er")
    (x, labels), *_ = chunks()
    taught.update(x, labels).export(tmp_path / "net.pt2")
    answer = torch.export.load(tmp_path / "net.pt2").module()(x)
    assert torch.allclose(answer, taught.logits(x).cpu(), atol=1e-4)
