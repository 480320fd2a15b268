"""The hypergradient is exact, and a relational step is Algorithm 1 as printed."""

import copy
import dataclasses

import pytest
import torch
from conftest import learner_of, toy
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

import everlearn
from everlearn import ER, ERACE, BadInput, Batch, DERpp, Learner
from everlearn.core.memory import Memory
from everlearn.core.plan import Draw, plan_epoch, reservoir
from everlearn.core.step import SGD, Step, train_step
from everlearn.core.terms import weighed
from everlearn.core.theta import MainNet
from everlearn.networks import CNN, ResNet18
from everlearn.weightings import Consolidate, EndToEnd, Labelled, Relation, RelationReplayNet, Split
from everlearn.weightings.bilevel import double_backward, forward_mode, gradient, slope
from everlearn.weightings.net import norms

pytestmark = pytest.mark.usefixtures("stand_ins")

B, CLASSES = 6, 6
METHODS = [ER, ERACE, DERpp]


def random_batch(seed: int, classes: tuple[int, ...]) -> Batch:
    random = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=random)
    labels = torch.tensor(classes)[torch.randint(len(classes), (B,), generator=random)]
    return Batch(draw(B, 3, 8, 8), labels, stored={"logits": draw(B, CLASSES)})


def situation(kind):
    """A BatchNorm ResNet in float64 in the middle of a stream: method, network, new, memory and outer batches."""
    torch.manual_seed(0)
    network = ResNet18((3, 8, 8), CLASSES, width=4)
    method = kind()
    if kind is ERACE:
        method.begin_task(
            type("", (), {"seen": {0, 1}, "classes": CLASSES, "device": "cpu"}), type("", (), {"classes": (2, 3)})
        )
    net = MainNet(network, dtype=torch.float64)
    new, *replay = random_batch(0, (2, 3)), *(random_batch(1 + i, (0, 1, 2, 3)) for i in range(2 * method.draws))
    return method, net, new, tuple(replay[: method.draws]), tuple(replay[method.draws :])


def unrolled(
    method, net, new, replay, outer, weights, lr, momentum=0.0, weight_decay=0.0, velocity=None
) -> torch.Tensor:
    """∂outer/∂w by differentiating through the step, written with torch.func and none of the library's machinery."""
    module = net.unbind()
    theta = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
    weights = weights.detach().clone().requires_grad_()

    def logits(parameters, x):
        return functional_call(copy.deepcopy(module), parameters, x)

    def per_sample(parameters, batches):
        seen = [b._replace(z=logits(parameters, b.x)) for b in batches]
        return torch.stack([t.loss for t in method.learn(seen[0]) + method.rehearse(*seen[1:])], 1)

    inner = (weights * per_sample(theta, (new, *replay))).sum() / B
    gradients = torch.autograd.grad(inner, list(theta.values()), create_graph=True)
    stepped, offset = {}, 0
    for (name, p), g in zip(theta.items(), gradients):
        d = g + weight_decay * p
        if momentum:
            d = d + momentum * velocity[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
        stepped[name] = p - lr * d
    seen = [b._replace(z=logits(stepped, b.x)) for b in outer]
    outer_loss = sum(term.loss.mean() for term in method.rehearse(*seen))
    return torch.autograd.grad(outer_loss, weights)[0]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize(
    "settings", [dict(), dict(momentum=0.9, weight_decay=0.01)], ids=["plain", "momentum and decay"]
)
@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("mode", [forward_mode, double_backward])
def test_the_hypergradient_equals_double_backward_through_the_unrolled_step(kind, mode, settings):
    method, net, new, replay, outer = situation(kind)
    weights, lr = torch.rand(B, len(method.names), dtype=torch.float64), 0.3
    sgd = SGD(lr, **settings)
    if sgd.momentum:
        sgd.velocity = torch.randn_like(net.theta.detach())
    losses = lambda theta: method.terms(net.at(theta, virtual=True), new, replay).losses
    direction = sgd.direction(net.theta, gradient(lambda t: (weights * losses(t)).sum() / B, net.theta), virtual=True)
    stepped = net.theta.detach() - lr * direction
    G = mode(losses, net.theta, weights, lambda theta: method.outer(net.at(theta, virtual=True), outer), stepped)
    reference = unrolled(method, net, new, replay, outer, weights, lr, velocity=sgd.velocity, **settings)
    assert relative(G * (-lr / B), reference) < 1e-10


@pytest.mark.parametrize("kind", METHODS)
def test_G_is_the_similarity_of_gradients_class_by_class(kind):
    """Proposition 1: G(j) = (1/B) Σ_c (Σ_{i in c} g_bf(x_i)) · g_tr(x_j), from one gradient a sample."""
    method, net, new, replay, outer = situation(kind)
    losses = lambda theta: method.terms(net.at(theta, virtual=True), new, replay).losses
    stepped = net.theta.detach() - 0.1 * gradient(lambda t: losses(t).sum() / B, net.theta)
    G = forward_mode(losses, net.theta, None, lambda theta: method.outer(net.at(theta, virtual=True), outer), stepped)

    def outer_rows(theta):
        seen = [b._replace(z=z) for b, z in zip(outer, net.at(theta, virtual=True)(*(b.x for b in outer)))]
        return torch.stack([term.loss for term in method.rehearse(*seen)], 1)

    rows = lambda function, theta: torch.stack(
        [gradient(lambda t, i=i: function(t).flatten()[i], theta) for i in range(B * function(theta).shape[1])]
    )
    of_outer, of_inner = rows(outer_rows, stepped), rows(losses, net.theta.detach())  # one gradient a loss
    labels = torch.stack([b.y for b in outer], 1).flatten()
    by_class = torch.stack([of_outer[labels == c].sum(0) for c in labels.unique()])
    by_hand = (by_class @ of_inner.T).sum(0) / B
    assert relative(G.flatten(), by_hand) < 1e-10


def test_a_slope_agrees_with_a_finite_difference():
    method, _, new, replay, _ = situation(ER)
    net = MainNet(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 20), nn.BatchNorm1d(20), nn.Tanh(), nn.Linear(20, CLASSES)),
        dtype=torch.float64,
    )  # no kinks
    losses = lambda theta: method.terms(net.at(theta, virtual=True), new, replay).losses
    theta, h = net.theta.detach(), 1e-6
    v = torch.randn_like(theta)
    finite = (losses(theta + h * v) - losses(theta - h * v)) / (2 * h)
    assert relative(slope(losses, net.theta, v), finite) < 1e-6


def counted(term) -> torch.Tensor:
    """Its losses; a row of an empty memory counts 0."""
    there = term.batch.there
    return term.loss if there is None else term.loss * there


def literal(kind, weights, stream, network, rrn, *, memory, epochs, size, lr, seed, warmup, interval, order, from_task):
    """Algorithm 1, line by line, with double backward; `fresh` updates the RRN first, on draws of its own."""
    adam = torch.optim.Adam(rrn.parameters(), lr=1e-3, weight_decay=1e-4)
    method, held, presented, met = kind(), {}, 0, set()
    d, prepare = method.draws, lambda images: (images.double() / 255 - 0.5) / 0.25
    for t, task in enumerate(stream):
        if kind is ERACE:
            method.begin_task(type("", (), {"seen": met, "classes": stream.classes, "device": "cpu"}), task)
        x, y = task.train
        for epoch in range(epochs):
            plan = plan_epoch(
                seed,
                t,
                epoch,
                samples=len(x),
                batch=size,
                draws=[Draw()] * d * (2 if order == "printed" else 3),
                capacity=memory,
                presented=presented,
                slot_rule=reservoir,
            )
            for k in range(len(plan)):
                raw, labels = x[plan[k].order], y[plan[k].order]
                batches = []
                for rows in plan[k].draws.split(size):
                    drawn = [
                        held.get(
                            int(row),
                            (torch.zeros_like(raw[0]), torch.tensor(-100), torch.zeros(stream.classes).double()),
                        )
                        for row in rows
                    ]
                    images, targets, logits = (torch.stack(column) for column in zip(*drawn))
                    there = targets >= 0
                    stored = {"logits": logits}
                    batches.append(Batch(prepare(images), targets.clamp(min=0), stored=stored, there=there))
                new, replay, spare = Batch(prepare(raw), labels), batches[:d], batches[d:]

                def per_sample(parameters, inner, module=None, new=new):
                    aside = copy.deepcopy(network)  # for a virtual pass, or one of an empty memory: its own statistics
                    at = lambda b: aside if module is None or (b.there is not None and not b.there.any()) else module
                    seen = [b._replace(z=functional_call(at(b), parameters, b.x)) for b in (new, *inner)]
                    terms = method.learn(seen[0]) + method.rehearse(*seen[1:])
                    return (
                        torch.stack([counted(a) for a in terms], 1),
                        torch.stack([a.batch.z.norm(dim=1) for a in terms], 1),
                        seen[0].z,
                    )

                def update_rrn(inner, outer):
                    parameters = {name: p.detach().requires_grad_() for name, p in network.named_parameters()}
                    losses, norms, _ = per_sample(parameters, inner)
                    w = rrn(losses.detach(), norms.detach())
                    g = torch.autograd.grad((w * losses).sum() / size, list(parameters.values()), create_graph=True)
                    stepped = {name: p - lr * gradient for (name, p), gradient in zip(parameters.items(), g)}  # Eq. 6
                    module = copy.deepcopy(network)
                    seen = [b._replace(z=functional_call(module, stepped, b.x)) for b in outer]
                    adam.zero_grad()
                    sum(counted(a).mean() for a in method.rehearse(*seen)).backward()  # Eq. 7
                    return adam.step

                active, due = t + 1 >= from_task, k % interval == 0
                if active and due and order == "fresh":
                    update_rrn(spare[:d], spare[d:])()
                # `printed`: the outer loss is at the θ that w(φ) led to, so its gradient can be had before θ moves;
                # φ itself moves after.
                later = update_rrn(replay, spare) if active and due and order == "printed" else None
                live = dict(network.named_parameters())
                losses, norms, z = per_sample(live, replay, module=network)
                w = (
                    rrn(losses.detach(), norms.detach()).detach()
                    if active and epoch >= warmup
                    else torch.tensor(weights, dtype=torch.float64)
                )
                g = torch.autograd.grad((w * losses).sum() / size, list(live.values()))
                with torch.no_grad():
                    for p, gradient_of in zip(live.values(), g):
                        p -= lr * gradient_of
                if later:
                    later()
                for position in range(size):
                    if (slot := int(plan[k].slots[position])) < memory:
                        held[slot] = (raw[position], labels[position], z[position].detach())
            presented += len(plan) * size
        met = met | set(task.classes)
    return network, rrn


@pytest.mark.parametrize("order", ["printed", "fresh"])
@pytest.mark.parametrize("kind, weights", [(ER, (1, 0.5)), (ERACE, (1, 0.5)), (DERpp, (1, 0.2, 0.5))])
def test_relational_training_is_algorithm_1_across_a_task_boundary(kind, weights, order):
    """Six steps a task, warm-up and relation in both, an update every second step: θ, φ and BatchNorm's statistics."""
    stream = toy(tasks=2, each=10)
    fresh = lambda: (torch.manual_seed(0), CNN(stream.shape, stream.classes).double())[1]
    settings = dict(warmup=1, interval=2, order=order)
    learner = Learner(
        fresh(),
        kind(Relation(weights, relation_from_task=1, **settings)),
        classes=range(4),
        inputs=stream.pixels,
        memory=6,
        epochs=2,
        batch=4,
        lr=0.05,
        seed=5,
        dtype=torch.float64,
    )
    torch.manual_seed(5)
    rrn = RelationReplayNet(len(weights)).double()
    network, rrn = literal(
        kind, weights, stream, fresh(), rrn, memory=6, epochs=2, size=4, lr=0.05, seed=5, from_task=1, **settings
    )
    for task in stream:
        learner.update(task)
    ours, theirs = learner.net.state(), network.state_dict()
    for name in theirs:
        assert torch.allclose(ours[name].double(), theirs[name].double(), rtol=0, atol=1e-12), name
    for name, tensor in learner.method.weighting.rrn.state().items():
        assert torch.allclose(tensor, rrn.state_dict()[name], rtol=0, atol=1e-12), name
    assert not torch.equal(
        rrn.losses.weight, (torch.manual_seed(5), RelationReplayNet(len(weights)).double())[1].losses.weight
    ), "the RRN learned"


@pytest.mark.parametrize("hypergradient", ["forward", "double-backward"])
@pytest.mark.parametrize("order, weighting", [("printed", Relation), ("fresh", Relation), ("printed", Split)])
def test_running_statistics_move_once_a_batch_of_the_real_step(order, weighting, hypergradient):
    stream, network = toy(), CNN((1, 8, 8), 4)
    method = DERpp(weighting(order=order, relation_from_task=1, hypergradient=hypergradient))
    Learner(network, method, classes=range(4), inputs=stream.pixels, memory=6, epochs=2, batch=4).update(
        stream.tasks[0]
    )
    assert (
        int(network.body[1].num_batches_tracked) == 2 * 3 * 3 - 2
    )  # epochs × steps × batches a step, but for the empty memory's


def test_the_rrn_has_the_papers_size_and_answers_between_0_and_1():
    assert [sum(p.numel() for p in RelationReplayNet(k).parameters()) for k in (2, 3)] == [130, 179]
    rrn = RelationReplayNet(2)
    losses, norms = torch.rand(5, 2) * 9, torch.rand(5, 2) * 9
    hidden = F.relu(losses @ rrn.losses.weight.T + rrn.losses.bias) + F.relu(
        norms @ rrn.norms.weight.T + rrn.norms.bias
    )
    assert torch.allclose(rrn(losses, norms), 1 / (1 + torch.exp(-(hidden @ rrn.weights.weight.T + rrn.weights.bias))))


def test_the_rrn_neither_learns_nor_rules_in_the_first_task_and_rules_only_after_warm_up():
    stream = toy(tasks=2, each=8)
    weighting = Relation((1, 0.5), warmup=2)
    learner = Learner(
        CNN(stream.shape, 4), ER(weighting), classes=range(4), inputs=stream.pixels, memory=6, epochs=4, batch=4
    )
    before, records = weighting.phi.detach().clone(), []
    learner.update(stream.tasks[0], report=records.append)
    assert torch.equal(weighting.phi, before) and [r["phase"] for r in records] == ["preset"] * 4
    records.clear()
    learner.update(stream.tasks[1], report=records.append)
    assert not torch.equal(weighting.phi, before)
    assert [r["phase"] for r in records] == ["warm-up"] * 2 + ["relation"] * 2
    assert ["weights" in r for r in records] == [False, False, True, True] and all("G" in r for r in records)


@pytest.mark.parametrize("epochs, interval, updates", [(1, None, 6), (20, None, 3), (1, 4, 2)])
def test_interval_counts_main_net_steps_within_the_epoch(epochs, interval, updates):
    weighting = Relation(interval=interval, relation_from_task=1)
    weighting.begin_epoch(0, 0, epochs)
    assert sum(weighting.due(k) for k in range(6)) == updates


def step_of(method, net, new, replay, spare=()) -> Step:
    memory = Memory(4, torch.zeros(1, 3, 8, 8), {"logits": (CLASSES,)}, torch.float64)
    return Step(0, net, SGD(0.1), memory, torch.zeros(B, 3, 8, 8), new.y, torch.full((B,), 4), new, replay, spare)


def test_consolidate_descends_the_memory_alone_once_warm():
    method, net, new, replay, _ = situation(DERpp)
    method.weighting = Consolidate((1, 0.2, 0.5), warmup=1)
    method.weighting.begin(method, net, seed=0)
    method.weighting.begin_epoch(task=1, epoch=1, epochs=2)
    before = net.theta.detach().clone()
    losses = lambda theta: method.terms(net.at(theta, virtual=True), new, replay).losses
    expected = before - 0.1 * gradient(lambda t: (0.2 * losses(t)[:, 1] + 0.5 * losses(t)[:, 2]).mean(), net.theta)
    train_step(method, step_of(method, net, new, replay))
    assert torch.allclose(net.theta, expected, rtol=0, atol=1e-14)
    for task, epoch in ((0, 1), (1, 0)):
        method.weighting.begin_epoch(task, epoch, epochs=2)
        assert method.weighting.phase != "relation"


def test_consolidate_keeps_both_memory_terms_of_a_method_with_one_draw():
    class OneDraw(DERpp):
        draws = 1

        def rehearse(self, memory):
            return [everlearn.distance(memory), everlearn.cross_entropy(memory)]

    stream = toy()
    method = OneDraw(Consolidate((1, 0.2, 0.5)))
    learner = Learner(CNN(stream.shape, 4), method, classes=range(4), inputs=stream.pixels, memory=6, epochs=2, batch=4)
    for task in stream:
        learner.update(task)
    assert torch.allclose(method.weighting.rehearsal, torch.tensor([0, 0.2, 0.5]))


def test_consolidate_keeps_a_term_on_new_samples_that_preserves_the_old():
    """Such as a distillation: it is not what the new task is learned by."""

    class Both(ER):
        names, weights, preset = ("new", "old heads", "memory"), (), None

        def learn(self, new):
            return [everlearn.cross_entropy(new), everlearn.Term(new.z.square().mean(1), new, preserves=True)]

    stream = toy()
    method = Both(Consolidate((1, 0.2, 0.5), warmup=0, relation_from_task=1))
    learner = Learner(CNN(stream.shape, 4), method, classes=range(4), inputs=stream.pixels, memory=6, epochs=1, batch=4)
    learner.update(stream.tasks[0])
    assert torch.allclose(method.weighting.rehearsal, torch.tensor([0, 0.2, 0.5]))


def test_vanilla_descends_both_losses_by_one_backward():
    method, net, new, replay, outer = situation(DERpp)
    weighting = method.weighting = EndToEnd((1, 0.2, 0.5), warmup=0, relation_from_task=1)
    weighting.begin(method, net, seed=0)
    weighting.begin_epoch(0, 0, 2)
    theta, rrn = net.theta.detach().clone().requires_grad_(), copy.deepcopy(weighting.rrn.unbind())
    terms = method.terms(net.at(theta, virtual=True), new, replay)
    w = rrn(terms.losses.detach(), norms(terms))
    total = (w * terms.losses).sum() / B + method.outer(net.at(theta, virtual=True), outer)
    total.backward()
    torch.optim.Adam(rrn.parameters(), lr=1e-3, weight_decay=1e-4).step()
    train_step(method, step_of(method, net, new, replay, outer))
    assert torch.allclose(net.theta, theta - 0.1 * theta.grad, rtol=0, atol=1e-13)
    for name, tensor in weighting.rrn.state().items():
        assert torch.allclose(tensor, rrn.state_dict()[name], rtol=0, atol=1e-13), name


def test_split_keeps_the_outer_rows_out_of_the_step():
    assert pools(Split(), 2) == ("inner", "inner", "outer", "outer")
    assert pools(Split(order="fresh"), 1) == ("inner", "inner", "outer")


def pools(weighting, draws: int) -> tuple[str, ...]:
    """Which rows each draw of a step is from, for a method with so many of its own."""
    return tuple(draw.pool for draw in weighting.draws((Draw(),) * draws))


@pytest.mark.parametrize("kind", [Relation, Split, EndToEnd])
def test_the_weightings_draws_are_like_the_methods_own(kind):
    own = (Draw(size=8), Draw(size=4, views=(None, None)))
    for number, draw in enumerate(kind().draws(own)):
        assert draw._replace(pool="all") == own[number % 2]


class NoForwardMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Peculiar(nn.Module):
    """A linear layer and an operation of one's own, or the distances to learned prototypes."""

    def __init__(self, own: bool):
        super().__init__()
        self.own, self.head, self.prototypes = own, nn.Linear(64, 4), nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        z = self.head(x.flatten(1))
        return NoForwardMode.apply(z) if self.own else -torch.cdist(z, self.prototypes, p=1.0)


@pytest.mark.parametrize("own, named", [(True, "NoForwardMode"), (False, "cdist")])
def test_an_operation_without_forward_mode_is_named(own, named):
    with pytest.raises(BadInput, match=f"{named}.*hypergradient=double-backward"):
        peculiar(own, "forward")


def test_double_backward_helps_where_forward_mode_cannot():
    learner = peculiar(True, "double-backward")
    assert not torch.equal(
        learner.method.weighting.phi, peculiar(True, "double-backward", tasks=0).method.weighting.phi
    )


def test_a_whole_run_by_double_backward_is_measured_and_reviewed():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), Doubled())
    settings = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=2, memory=10)
    result = everlearn.run("rer", network=network, hypergradient="double-backward", **settings)
    assert result["network"] == "Sequential" and result["class_il"]["acc"] > 25
    with pytest.raises(BadInput, match="NoForwardMode"):
        everlearn.run("rer", network=nn.Sequential(nn.Flatten(), nn.Linear(64, 4), Doubled()), **settings)


class Doubled(nn.Module):
    def forward(self, x):
        return NoForwardMode.apply(x)


def peculiar(own: bool, mode: str, tasks: int = 1) -> Learner:
    stream = toy()
    torch.manual_seed(0)
    learner = Learner(
        Peculiar(own),
        ER(Relation(relation_from_task=1, hypergradient=mode)),
        classes=range(4),
        inputs=stream.pixels,
        memory=6,
        batch=4,
    )
    for task in stream.tasks[:tasks]:
        learner.update(task)
    return learner


def test_a_method_of_ones_own_becomes_relational_in_one_line():
    from everlearn import Method, Term, cross_entropy

    class Gentle(Method):
        """CE on new samples, and on the memory the squared error of the probabilities."""

        names, draws, remembers = ("new", "memory"), 1, True
        remember = ER.remember

        def learn(self, new):
            return [cross_entropy(new)]

        def rehearse(self, memory):
            truth = F.one_hot(memory.y.clamp(min=0), memory.z.shape[1])
            return [Term((memory.z.softmax(1) - truth).square().sum(1) * (memory.y >= 0), memory)]

    stream = toy(tasks=2, each=40)
    records = []
    learner = Learner(
        CNN(stream.shape, 4),
        Gentle(weighting=Relation()),
        classes=range(4),
        inputs=stream.pixels,
        memory=10,
        epochs=4,
        batch=4,
        lr=0.1,
    )
    for task in stream:
        learner.update(task, report=records.append)
    assert records[-1]["phase"] == "relation" and 0 < records[-1]["weights"]["new"]["mean"] < 1
    assert learner.evaluate(stream).class_il[1] > 60


def test_in_bfloat16_forward_mode_still_agrees_with_reverse_mode():
    """Up to rounding; the batch's function of θ is bfloat16's own."""
    torch.manual_seed(0)
    net = MainNet(ResNet18((3, 8, 8), CLASSES, width=8), precision="bfloat16")
    x, y = torch.randn(B, 3, 8, 8), torch.randint(CLASSES, (B,))
    losses = lambda theta: F.cross_entropy(net.at(theta, virtual=True)(x)[0], y, reduction="none")
    v = torch.randn_like(net.theta.detach())
    reverse = torch.stack([gradient(lambda t, j=j: losses(t)[j], net.theta) @ v for j in range(B)])
    assert relative(slope(losses, net.theta, v), reverse) < 0.05


def test_a_run_in_bfloat16_can_be_reviewed():
    stream = toy(tasks=2, each=12, channels=3)
    learner = Learner(
        ResNet18(stream.shape, 4, width=8),
        ER(Relation()),
        classes=range(4),
        inputs=stream.pixels,
        memory=8,
        batch=4,
        lr=0.01,
        precision="bfloat16",
    )
    for task in stream:
        learner.update(task)
    review = learner.method.weighting.review(learner, stream.tasks[:1], stream.tasks[1])
    assert 0 < review["validation"]["weights"]["new"] < 1 and review["similarity"]["new"] == [2, 3]
    x, y = stream.tasks[1].test
    only = dataclasses.replace(stream.tasks[1], test=(x[y == 3], y[y == 3]))
    seen = learner.method.weighting.review(learner, stream.tasks[:1], only)["similarity"]
    assert seen["new"] == [3] and {len(row) for row in seen["G"]} == {1}, (
        "nothing is said of a class without test images"
    )


def test_what_a_new_class_does_to_others_is_seen_among_the_classes_it_is_learned_with():
    stream = toy(tasks=2, each=12)
    learner = learner_of("rer-ace", stream)
    for task in stream:
        learner.update(task)
    G = learner.method.weighting.review(learner, stream.tasks[:1], stream.tasks[1])["similarity"]["G"]
    assert all(g != 0 for row in G for g in row), "ER-ACE's loss of a class alone would be 0 once all are met"


def test_balanced_refuses_a_memory_it_cannot_foresee():
    from everlearn.weightings import Balanced

    with pytest.raises(BadInput, match="GSS fills its memory otherwise"):
        Balanced((1, 1)).check(everlearn.GSS())
    assert pools(Balanced(), 2) == ("all", "all", "balanced", "balanced")
    assert pools(Balanced(order="fresh"), 1) == ("all", "all", "balanced")


@pytest.mark.parametrize("kind", METHODS)
def test_labelled_asks_of_the_outer_draws_their_labels_alone(kind):
    """L = Σ_draws (1/B) Σ_i −log softmax(z_i)[y_i]; for methods that rehearse nothing else it is their own."""
    method, net, _, _, outer = situation(kind)
    seen = net.at(net.theta, virtual=True)
    by_hand = sum(-z.log_softmax(1)[range(B), b.y].mean() for z, b in zip(seen(*(b.x for b in outer)), outer))
    found = Labelled().outer(method, seen, outer).detach()
    assert relative(found, by_hand.detach()) < 1e-12
    assert (relative(found, Relation().outer(method, seen, outer).detach()) < 1e-12) == (kind is not DERpp)


def test_averaged_takes_the_rows_away_normalised_the_sum_and_annealed_the_size():
    from everlearn.weightings import Annealed, Averaged, Normalised

    weights = torch.tensor([[0.2, 0.4], [0.6, 1.0]], dtype=torch.float64)
    averaged, normalised = Averaged(), Normalised((1, 0.5))
    assert torch.allclose(averaged.used(weights), torch.tensor([[0.4, 0.7], [0.4, 0.7]], dtype=torch.float64))
    normalised.preset = torch.tensor([1.0, 0.5], dtype=torch.float64)
    rows = normalised.used(weights)
    assert torch.allclose(rows.sum(dim=1), torch.tensor(1.5).double()) and torch.allclose(rows[0], weights[0] * 2.5)
    annealed = Annealed((1, 0.5))
    annealed.preset, terms = normalised.preset, type("", (), {"losses": weights})
    loss = lambda phase: float(setattr(annealed, "phase", phase) or annealed.loss(None, None, terms))
    assert loss("warm-up") == pytest.approx(10 * loss("relation")) == pytest.approx((0.2 + 0.2 + 0.6 + 0.5) / 2)


@pytest.mark.parametrize("kind", ["averaged", "normalised"])
def test_a_net_whose_weights_are_used_otherwise_still_learns_from_its_own_step(kind):
    """Past the warm-up φ's virtual step is the one with w(φ), whatever the Main Net is given of it."""
    from everlearn.weightings import Averaged, Normalised

    stream, steps = toy(tasks=2, each=40), []

    class Watched({"averaged": Averaged, "normalised": Normalised}[kind]):
        def _learn(self, method, step, terms, weights, inner, outer, stepped):
            (g,) = torch.autograd.grad(
                weighed(
                    method.terms(step.net.at(step.net.theta, virtual=True), step.new, inner).losses, weights.detach()
                ),
                step.net.theta,
            )
            steps.append(torch.allclose(stepped, step.net.theta.detach() - step.sgd.lr * g, rtol=0, atol=1e-12))
            super()._learn(method, step, terms, weights, inner, outer, stepped)

    settings = dict(classes=range(4), inputs=stream.pixels, memory=10, epochs=2, batch=4, lr=0.05, dtype=torch.float64)
    learner = Learner(CNN(stream.shape, 4), ER(weighting=Watched(warmup=1)), **settings)
    for task in stream:
        learner.update(task)
    assert len(steps) == 20 and all(steps)
