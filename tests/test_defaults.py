"""What is taken where nobody says otherwise: a default that changes is another experiment under the same words."""

import math

import pytest
import torch
from conftest import learner_of, toy

import everlearn
from everlearn import registry
from everlearn.core import norm, ranks
from everlearn.errors import EverlearnError
from everlearn.spec import options_of

PHASED = dict(weights=(), warmup=None, relation_from_task=2)
RELATIONAL = PHASED | dict(hidden=16, rrn_lr=1e-3, rrn_weight_decay=1e-4, learned=())
RELATION = RELATIONAL | dict(interval=None, order="printed", hypergradient="forward")
RELATION |= dict(outer_rows="all", outer_views="usual", outer_new=False)
OPTIONS = {
    ("method", "oewc"): dict(strength=10.0, decay=1.0),
    ("method", "si"): dict(strength=0.5, damping=1.0),
    ("method", "lwf"): dict(temperature=2.0, head="own"),
    ("method", "icarl"): dict(reduction="sum"),
    ("method", "retain"): dict(
        balance="rule",
        rho=0.1,
        temperature=2.0,
        by_heart=300.0,
        refresh=True,
        refresh_older="centred",
        averaged_teacher=True,
    ),
    ("method", "gem"): dict(margin=0.5),
    **{("method", name): {} for name in ("finetune", "joint", "agem", "gss", "er", "er-ace", "der", "der++")},
    ("weighting", "fixed"): dict(weights=()),
    ("weighting", "consolidate"): PHASED,
    ("weighting", "annealed"): PHASED,
    ("weighting", "vanilla"): RELATIONAL,
    **{
        ("weighting", name): RELATION
        for name in ("relation", "split", "balanced", "labelled", "averaged", "normalised")
    },
}


@pytest.mark.parametrize(("kind", "name"), OPTIONS)
def test_an_option_nobody_sets_is_the_papers(kind, name):
    thing = registry.find(kind, name)
    assert {key: p.default for key, p in options_of(kind, thing).items()} == OPTIONS[kind, name]
    made = thing()
    assert all(getattr(made, key) == value for key, value in OPTIONS[kind, name].items())


RETAINED = ("new", "apart", "old heads", "dark", "memory")
MADE = {  # terms, fixed weights, preset weights, draws, references, has a memory, keeps
    "finetune": (("new",), (), None, 0, 0, False, ()),
    "oewc": (("new",), (), None, 0, 0, False, ()),
    "si": (("new",), (), None, 0, 0, False, ()),
    "lwf": (("new", "old heads"), (), None, 0, 0, False, ()),
    "gem": (("new",), (), None, 0, 0, True, ()),
    "agem": (("new",), (), None, 0, 1, True, ()),
    "icarl": (("new",), (), None, 0, 0, True, ()),
    "gss": (("new", "memory"), (1.0, 1.0), (1.0, 0.5), 1, 1, True, ()),
    "er": (("new", "memory"), (1.0, 1.0), (1.0, 0.5), 1, 0, True, ()),
    "er-ace": (("new", "memory"), (1.0, 1.0), (1.0, 0.5), 1, 0, True, ()),
    "der": (("new", "dark"), (1.0, 0.3), (1.0, 0.3), 1, 0, True, ("logits",)),
    "der++": (("new", "dark", "memory"), (1.0, 0.2, 0.5), (1.0, 0.2, 0.5), 2, 0, True, ("logits",)),
    "retain": (RETAINED, *[(1.0, 1.0, 1.0, 0.1, 0.5)] * 2, 2, 0, True, ("logits",)),
}


@pytest.mark.parametrize("name", MADE)
def test_a_method_declares_what_it_is_made_of(name):
    of = registry.find("method", name)
    assert (of.names, of.weights, of.preset, of.draws, of.references, of.remembers, of.keeps) == MADE[name]
    assert of.views == (None,) and not of.features and not of.merges


def test_only_joint_training_merges_tasks():
    assert [name for name in registry.METHODS if registry.find("method", name).merges] == ["joint"]


def test_a_training_pixels_and_a_draw_nobody_describes():
    training = everlearn.Training()
    assert (training.epochs, training.batch, training.lr, training.momentum, training.weight_decay) == (
        5,
        32,
        0.03,
        0,
        0,
    )
    assert (training.forward, training.precision) == ("separate", "float32")
    pixels = everlearn.Pixels()
    assert (pixels.mean, pixels.std, pixels.pad, pixels.flip, pixels.top) == ((0,), (1,), 0, False, 255)
    assert everlearn.Draw() == ("all", None, (None,))
    learner = everlearn.Learner(torch.nn.Linear(2, 2))
    assert (learner.capacity, learner.seed, learner.device.type, learner.dtype) == (200, 0, "cpu", torch.float32)


@pytest.mark.parametrize("warmup", [None, 0, 3])
def test_a_schedule_follows_from_the_epochs(warmup):
    for epochs, half, tenth in ((50, 25, 5), (5, 2, 1), (1, 0, 1), (29, 14, 2)):
        of = everlearn.Relation(warmup=warmup)
        assert of.schedule(everlearn.Training(epochs=epochs)) == {"warmup": half, "interval": tenth}
        of.begin_epoch(1, 0, epochs)
        assert of.every == tenth
        edge = half if warmup is None else warmup
        for epoch in range(epochs):
            of.begin_epoch(1, epoch, epochs)
            assert of.phase == ("warm-up" if epoch < edge else "relation")
            of.begin_epoch(0, epoch, epochs)
            assert of.phase == "preset"


def test_the_rrn_learns_every_so_many_steps_from_the_first():
    of = everlearn.Relation(interval=3)
    of.begin_epoch(1, 0, 10)
    assert [of.due(n) for n in range(7)] == [True, False, False, True, False, False, True]
    of.begin_epoch(0, 0, 10)
    assert not any(of.due(n) for n in range(7))


class Grows(torch.nn.Module):
    """Its answer is finite; its loss, or what it has learned, is not."""

    def __init__(self, of: str):
        super().__init__()
        self.layer, self.of = torch.nn.Linear(64, 4), of

    def forward(self, x):
        z = self.layer(x.flatten(1))
        if self.training and self.of == "parameters":  # a gradient that is not finite, of a loss that is
            z = z + (z - z.detach()) * torch.inf if z.requires_grad else z
        if self.training and self.of == "loss":
            z = z + torch.full_like(z, math.nan)
        return z


@pytest.mark.parametrize("of", ["loss", "parameters"])
def test_a_loss_or_a_parameter_that_is_not_finite_ends_the_task_alone(of):
    stream = toy()
    learner = learner_of("finetune", stream, network=Grows(of), epochs=1)
    with pytest.raises(EverlearnError, match="no longer a finite number"):
        learner.update(stream.tasks[0], progress=False)


def test_the_variance_over_ranks_is_that_of_all_their_rows(monkeypatch):
    rows = torch.randn(2, 1, 6, 3, dtype=torch.float64) * 3 + torch.tensor([[[[0.0]]], [[[5.0]]]], dtype=torch.float64)
    one, other = rows  # each rank's, [groups, rows, channels]
    alone = norm.statistics(other, 1e-5)
    theirs = torch.stack((other.mean(1, keepdim=True), other.var(1, keepdim=True, unbiased=False)))[None]
    monkeypatch.setattr(ranks, "distributed", lambda: True)
    monkeypatch.setattr(ranks, "all_gather", lambda own, dim=0: torch.cat([own, theirs.view_as(own)]))
    mean, variance, rho = norm.statistics(one, 1e-5)
    whole = torch.cat([one, other], dim=1)
    assert torch.allclose(mean, whole.mean(1, keepdim=True), atol=1e-12)
    assert torch.allclose(variance, whole.var(1, keepdim=True, unbiased=False), atol=1e-12)
    assert torch.allclose(rho, (variance + 1e-5).rsqrt(), atol=1e-12) and not torch.allclose(alone[0], mean)
