"""What once went wrong, and what may not go wrong again."""

import multiprocessing
import os
import threading

import pytest
import torch
from conftest import learner_of, toy
from torch import nn
from torch.nn import functional as F
from vit import ViT

from everlearn import ER, BadInput, Learner
from everlearn.core.capture import Graphs
from everlearn.core.norm import Norm
from everlearn.core.theta import MainNet
from everlearn.weightings import Relation, bilevel, diagnostics
from everlearn.weightings.bilevel import double_backward, forward_mode, gradient

double = dict(dtype=torch.float64)


# Attention ------------------------------------------------------------------------------------------------------------
class Layered(nn.Module):
    """Rows of pixels as tokens, through one of torch's own attention layers; its fused path is for evaluation mode."""

    def __init__(self, layer: nn.Module, still: bool = False):
        super().__init__()
        self.before, self.layer, self.head = nn.Linear(8, 8), layer, nn.Linear(8, 4)
        if still:
            layer.requires_grad_(False).eval()

    def forward(self, x):
        x = self.before(x[:, 0])
        multihead = isinstance(self.layer, nn.MultiheadAttention)
        x = self.layer(x, x, x, need_weights=False)[0] if multihead else self.layer(x)
        return self.head(x.mean(dim=1))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


ATTENTIVE = {
    "vit": lambda: ViT((1, 8, 8), 4),
    "multihead": lambda: Layered(nn.MultiheadAttention(8, 2, batch_first=True)),
    "encoder": lambda: Layered(encoder()),
    "still encoder": lambda: Layered(encoder(), still=True),
    "still multihead": lambda: Layered(nn.MultiheadAttention(8, 2, batch_first=True), still=True),
}


@pytest.mark.parametrize("name", ATTENTIVE)
def test_attention_has_both_hypergradients_and_they_agree(name):
    net = MainNet(ATTENTIVE[name](), **double)
    net.train()
    x, y, weights = torch.randn(2, 6, 1, 8, 8, **double), torch.randint(4, (2, 6)), torch.rand(6, 1, **double)
    losses = lambda theta: F.cross_entropy(net.at(theta, virtual=True)(x[0])[0], y[0], reduction="none")[:, None]
    outer = lambda theta: F.cross_entropy(net.at(theta, virtual=True)(x[1])[0], y[1])
    stepped = net.theta.detach() - 0.1 * gradient(lambda theta: (weights * losses(theta)).mean(), net.theta)
    one, other = (mode(losses, net.theta, weights, outer, stepped) for mode in (forward_mode, double_backward))
    assert (one - other).norm() < 1e-10 * other.norm()
    assert torch.backends.mha.get_fastpath_enabled() and torch.backends.cuda.flash_sdp_enabled(), "as they were"


@pytest.mark.parametrize("hypergradient", ["forward", "double-backward"])
def test_a_vision_transformer_with_dropout_learns_relationally(hypergradient):
    stream, records = toy(tasks=2, each=40), []
    torch.manual_seed(0)
    learner = Learner(
        ViT(stream.shape, 4, dropout=0.1),
        ER(Relation(hypergradient=hypergradient)),
        classes=range(4),
        inputs=stream.pixels,
        memory=10,
        epochs=6,
        batch=4,
        lr=0.1,
    )
    for task in stream:
        learner.update(task, report=records.append)
    assert records[-1]["phase"] == "relation" and 0 < records[-1]["weights"]["new"]["mean"] < 1
    assert learner.evaluate(stream).task_il[1] > 75


# Advice ---------------------------------------------------------------------------------------------------------------
class Once(torch.autograd.Function):
    """Twice its input; it has a forward-mode derivative or it has not, and no second one."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return 2 * dy


class Forward(Once):
    @staticmethod
    def jvp(ctx, dx):
        return 2 * dx


class Ending(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.end = end

    def forward(self, x):
        return self.end(x)


def distances(z):
    return -torch.cdist(z, torch.eye(4), p=1.0)


@pytest.mark.parametrize(
    ("end", "mode", "words"),
    [
        (Forward.apply, "double-backward", "differentiated twice.*; set hypergradient=forward"),
        (Once.apply, "double-backward", "differentiated twice.*forward would not help: .*Once.*; use other"),
        (Once.apply, "forward", "Once.*no forward-mode.*double-backward would not help: .*twice.*; use other"),
        (distances, "forward", "_cdist_forward.*double-backward would not help: .*_cdist_backward"),
        (distances, "double-backward", "_cdist_backward.*forward would not help: .*_cdist_forward"),
    ],
)
def test_a_network_is_refused_in_the_first_step_with_advice_that_helps(end, mode, words):
    stream = toy()
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), Ending(end))
    learner = learner_of("rer", stream, network=network, options={"hypergradient": mode})
    with pytest.raises(BadInput, match=words):
        next(learner.updating(stream.tasks[0]))


# Norm layers ----------------------------------------------------------------------------------------------------------
class Uneven(nn.Module):
    """Norm layers that are used twice, once and never, and one that its owner may set to evaluation mode."""

    rowwise = True

    def __init__(self):
        super().__init__()
        self.first, self.again = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 3, 3, padding=1)
        self.twice, self.once, self.never, self.still = (Norm(3) for _ in range(4))
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        x = self.twice(self.first(x), relu=True)
        x = self.twice(self.again(x), residual=x, relu=True)
        return self.head(self.still(self.once(x)).mean(dim=(2, 3)))


@pytest.mark.parametrize("momenta", [(0.1,) * 4, (0.3, 0.1, 0.2, 0.1), (None, 0.1, 0.1, None)])
def test_norm_layers_used_twice_or_never_move_in_one_pass_as_in_a_pass_a_batch(momenta):
    ends = []
    for fuse in (False, True):
        torch.manual_seed(0)
        network = Uneven()
        layers = network.twice, network.once, network.never, network.still
        for layer, momentum in zip(layers, momenta):
            layer.momentum = momentum
        net = MainNet(network, **double, fuse=fuse)
        assert net.forward.__name__ == ("_grouped" if fuse else "_separate")
        for turn in range(3):
            net.train()
            network.still.train(turn > 0)
            z = torch.stack(list(net.at(net.theta)(*torch.randn(3, 4, 1, 8, 8, **double))))
            (g,) = torch.autograd.grad(z.square().sum(), net.theta, allow_unused=True)
        ends.append((z.detach(), g, *net.state().values()))
        assert [int(layer.num_batches_tracked) for layer in layers] == [18, 9, 0, 6]
    for one, other in zip(*ends):
        assert torch.allclose(one.double(), other.double(), rtol=0, atol=1e-12)


def test_a_pass_that_fails_leaves_nothing_to_the_next():
    class Failing(Uneven):
        fails = True

        def forward(self, x):
            answer = super().forward(x)
            if self.fails:
                raise RuntimeError("no answer")
            return answer

    net = MainNet(Failing(), **double, fuse=True)
    batches = torch.randn(3, 4, 1, 8, 8, **double)
    with pytest.raises(RuntimeError, match="no answer"):
        net.at(net.theta)(*batches)
    net.module.fails = False
    net.at(net.theta)(*batches)
    assert int(net.module.twice.num_batches_tracked) == 6


# Threads --------------------------------------------------------------------------------------------------------------
def test_two_threads_teach_what_one_teaches_after_the_other():
    stream = toy(tasks=2, each=40)
    learners = lambda: [learner_of("rder", stream, seed, epochs=4) for seed in (1, 2)]
    apart, together, failed = learners(), learners(), []
    for learner in apart:
        for task in stream:
            learner.update(task)
    start = threading.Barrier(2)

    def teach(learner):
        start.wait()
        try:
            for task in stream:
                learner.update(task)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=teach, args=(learner,)) for learner in together]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for one, other in zip(apart, together):
        assert torch.equal(one.net.theta, other.net.theta)
        assert torch.equal(one.method.weighting.phi, other.method.weighting.phi)


def _differentiate() -> None:
    bilevel.slope(lambda theta: theta.square(), torch.ones(2), torch.ones(2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forking here")
def test_a_forked_process_has_a_turn_of_its_own():
    taken, done = threading.Event(), threading.Event()

    def hold():
        with bilevel._turn:
            taken.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(20)
    child = multiprocessing.get_context("fork").Process(target=_differentiate)
    child.start()
    child.join(20)
    ended = child.exitcode
    child.kill()
    done.set()
    holder.join()
    assert ended == 0


# Random generators ----------------------------------------------------------------------------------------------------
def dropping(seed: int, name: str = "er", **settings) -> Learner:
    stream = toy()
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 4))
    return learner_of(name, stream, seed, network, **settings)


@pytest.mark.parametrize("name", ["er", "rder"])
def test_learners_with_dropout_that_take_turns_learn_what_they_learn_alone(name):
    stream, apart = toy(), [dropping(seed, name) for seed in (1, 2)]
    for learner in apart:
        for task in stream:
            learner.update(task)
    together = [dropping(seed, name) for seed in (1, 2)]
    torch.manual_seed(7)
    expected = torch.rand(100)
    torch.manual_seed(7)
    drawn = []
    for task in stream:
        for _ in zip(*(learner.updating(task) for learner in together), strict=True):
            drawn.append(torch.rand(1))
    assert torch.equal(torch.cat(drawn), expected[: len(drawn)]), "the caller's numbers are the caller's own"
    for one, other in zip(apart, together):
        assert torch.equal(one.net.theta, other.net.theta)


def test_the_callers_generator_is_its_own_while_steps_are_paused_broken_off_or_failed():
    task = toy().tasks[0]
    before = torch.get_rng_state()
    steps = dropping(0).updating(task)
    torch.set_rng_state(before)
    for _ in range(2):
        next(steps)
        assert torch.equal(torch.get_rng_state(), before)
    steps.close()
    assert torch.equal(torch.get_rng_state(), before)
    learner = dropping(0, batch=4)
    torch.set_rng_state(before)
    learner.method.remember = failing
    with pytest.raises(ZeroDivisionError):
        next(learner.updating(task))
    assert torch.equal(torch.get_rng_state(), before)


def failing(step, terms):
    return torch.rand(1).item() / 0


# Many classes ---------------------------------------------------------------------------------------------------------
def test_a_review_looks_at_no_more_classes_than_it_says(monkeypatch):
    stream = toy(tasks=4)
    learner = learner_of("rer", stream, memory=32)
    for task in stream:
        learner.update(task)
    review = lambda: learner.method.weighting.review(learner, stream.tasks[:3], stream.tasks[3])
    whole = review()["similarity"]
    monkeypatch.setattr(diagnostics, "OLD", 4)
    some = review()["similarity"]
    assert whole["classes"] == list(range(8)) and some["classes"] == [0, 2, 4, 6] and some["new"] == [6, 7]
    assert some["G"] == whole["G"][::2]
    monkeypatch.setattr(diagnostics, "NEW", 1)
    assert review()["similarity"]["new"] == [6]


# Settings changed on the way ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("setting", ["lr", "momentum", "weight_decay"])
def test_a_setting_of_the_descent_changed_between_epochs_has_the_steps_recorded_again(monkeypatch, setting):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    forgotten = []

    def step(graphs, variant, number, row, tape):
        if variant not in graphs.graphs:
            return graphs._first(variant, number, row, tape)
        graphs._watched(number, row, tape)

    def begin_epoch(graphs, own=Graphs.begin_epoch):
        known = bool(graphs.graphs)
        own(graphs)
        forgotten.append(known and not graphs.graphs)

    monkeypatch.setattr(Graphs, "step", step)
    monkeypatch.setattr(Graphs, "begin_epoch", begin_epoch)
    stream = toy()
    learner = learner_of("er", stream, epochs=4, momentum=0.5)
    learner.capture = True

    def report(record):
        if record["epoch"] == 1:
            setattr(learner.sgd, setting, 0.01)

    learner.update(stream.tasks[0], report=report)
    assert forgotten == [False, False, True, False]
