"""GEM, A-GEM, iCaRL and GSS against hand transcriptions, in float64."""

import copy
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import toy
from torch import nn
from torch.nn import functional as F

from everlearn import AGEM, GEM, GSS, BadInput, Batch, Draw, ICaRL, Learner
from everlearn.core.plan import chances
from everlearn.methods import agem, gem, gss, icarl
from everlearn.networks import CNN, MLP

pytestmark = pytest.mark.usefixtures("stand_ins")


def learner_of(method, network, stream, **settings) -> Learner:
    settings = dict(epochs=2, batch=4, lr=0.05, memory=8) | settings
    return Learner(
        network, method, classes=range(stream.classes), inputs=stream.pixels, dtype=torch.float64, **settings
    )


def loss_at(learner, theta, x, y) -> torch.Tensor:
    return F.cross_entropy(learner.net.at(theta)(learner.inputs(x))[0], y)


# GEM and A-GEM -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("constraints", range(1, 10))
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_gems_projection_meets_the_conditions_of_kuhn_and_tucker(constraints, margin):
    random = torch.Generator().manual_seed(constraints)
    for _ in range(20):
        G = torch.randn(constraints, 12, generator=random, dtype=torch.float64)
        g = torch.randn(12, generator=random, dtype=torch.float64)
        v = gem.dual(G @ G.T, G @ g, margin)
        slope = G @ G.T @ v + G @ g  # of the dual problem; for margin 0 it is G g̃, which must not be negative
        assert (v >= margin - 1e-9).all() and (slope >= -1e-4).all() and ((v - margin) * slope).abs().max() < 1e-4
        projected = gem.project(g, G, margin)
        if (G @ g >= 0).all():
            assert torch.equal(projected, g)
        else:
            assert torch.allclose(projected, g + G.T @ v, rtol=0, atol=1e-12)
            assert (G @ projected >= -1e-4).all(), "no past task's loss rises"


def test_gems_projection_does_not_depend_on_the_gradients_size():
    random = torch.Generator().manual_seed(0)
    G, g = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in ((3, 12), (12,)))
    for size in (1e-6, 1e6):
        assert torch.allclose(
            gem.project(size * g, size * G, 0.0) / size, gem.project(g, G, 0.0), rtol=1e-9, atol=1e-12
        )


def test_gem_takes_the_gradient_of_each_past_tasks_whole_memory():
    stream = toy(tasks=3)
    learner = learner_of(GEM(margin=0.0), MLP(stream.shape, 6), stream)
    for task in stream.tasks[:2]:
        learner.update(task)
    learner.method.begin_task(learner, stream.tasks[2])
    (x0, y0), (x1, y1) = learner.method.episodes(learner)
    assert set(y0.tolist()) <= {0, 1} and set(y1.tolist()) <= {2, 3} and len(x0) == len(x1) == 4
    theta = learner.net.theta
    G = torch.stack([torch.autograd.grad(loss_at(learner, theta, x, y), theta)[0] for x, y in ((x0, y0), (x1, y1))])
    g = -G.sum(dim=0)  # against both
    step = SimpleNamespace(net=learner.net)
    learner.method.select(step)
    assert torch.allclose(learner.method.direction(g, step), gem.project(g, G, 0.0), rtol=0, atol=1e-9)


def constraints_of(kind: str, random: np.random.Generator) -> np.ndarray:
    """Gradients of up to 19 past tasks: of no order, some the same, all on one line, nearly the same, of all sizes."""
    tasks, size = random.integers(1, 20), random.integers(1, 40)
    G = random.normal(size=(tasks, size))
    near = lambda: G[random.integers(tasks, size=tasks)] + 1e-8 * random.normal(size=G.shape)
    return {
        "any": lambda: G,
        "same": lambda: G[random.integers(tasks, size=tasks)],
        "parallel": lambda: G[:1] * random.choice([1, -1, 1e-3], size=(tasks, 1)),
        "near": near,
        "sizes": lambda: G * 10.0 ** random.integers(-6, 3, size=(tasks, 1)),
    }[kind]()


@pytest.mark.parametrize("kind", ["any", "same", "parallel", "near", "sizes"])
def test_gems_dual_problem_is_solved_as_quadprog_solves_it(kind):
    """Four hundred problems of each kind, gradients along and against the constraints and of 0; to a part in 1e8."""
    quadprog, random = pytest.importorskip("quadprog"), np.random.default_rng(0)
    for number in range(400):
        G, margin = constraints_of(kind, random), (0.0, 0.5)[number % 2]
        g = (random.normal(size=G.shape[1]), -G.sum(axis=0), np.zeros(G.shape[1]))[number % 3]
        ours = gem.dual(*(torch.from_numpy(of) for of in (G @ G.T, G @ g)), margin).numpy()
        size, one = (G @ G.T).diagonal().mean(), np.eye(len(G))
        theirs = quadprog.solve_qp(G @ G.T / size + 1e-6 * one, -G @ g / size, one, margin * one.diagonal())[0]
        assert np.abs(ours - theirs).max() <= 1e-8 * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("tasks", [3, gem.FEW, gem.FEW + 2])
def test_gems_projection_of_nearly_parallel_gradients_in_float32_is_that_in_float64(tasks, monkeypatch):
    monkeypatch.setattr(gem, "PIECE", 30_000)  # in pieces of which the last is smaller
    random = torch.Generator().manual_seed(tasks)
    line = torch.randn(100_000, generator=random)
    G = line + 1e-3 * torch.randn(tasks, len(line), generator=random)
    g = torch.randn(len(line), generator=random) - 0.1 * line
    exact = gem.project(g.double(), G.double(), 0.5)
    assert (gem.project(g, G, 0.5) - exact).norm() < 1e-6 * exact.norm() and not torch.equal(exact, g.double())


def test_gem_leaves_a_gradient_that_is_no_number_to_the_end_of_the_epoch():
    g, G = torch.tensor([math.nan, 1.0]).double(), torch.eye(2).double()
    assert torch.equal(gem.project(g, G, 0.5).isnan(), g.isnan())
    for tasks in (gem.FEW, gem.FEW + 1):
        G = torch.eye(tasks, 2).double()
        assert gem.project(g, G, 0.5)[1] == 1 and gem.project(g, G, 0.5)[0].isnan()


def test_gem_without_gradients_on_the_past_is_fine_tuning():
    for tasks in (gem.FEW, gem.FEW + 1):
        assert torch.equal(gem.project(-torch.ones(3), torch.zeros(tasks, 3), 0.5), -torch.ones(3))


def test_gems_step_waits_for_no_value_until_the_past_has_more_tasks_than_choices_can_be_tried_of():
    method = GEM()
    assert method.captures
    for tasks, waits in ((gem.FEW, False), (gem.FEW + 1, True)):
        method.past = [Batch(torch.zeros(1, 1), torch.zeros(1))] * tasks
        assert method.captures is not waits


def test_agem_leaves_an_agreeing_gradient_alone_and_projects_an_opposing_one():
    g, agreeing = torch.tensor([1.0, 2.0]).double(), torch.tensor([1.0, 0.0]).double()
    assert torch.equal(agem.project(g, agreeing), g)
    assert agem.project(g, torch.tensor([-2.0, 0.0]).double()).tolist() == [0.0, 2.0]
    assert torch.equal(agem.project(g, torch.zeros(2).double()), g), "an empty memory opposes nothing"


def test_agems_reference_is_the_gradient_of_its_memory_batch():
    stream = toy(tasks=2)
    learner = learner_of(AGEM(), MLP(stream.shape, 4), stream)
    learner.update(stream.tasks[0])
    learner.method.begin_task(learner, stream.tasks[1])
    x, y = (rows[:5] for rows in learner.memory.held())
    theta = learner.net.theta
    (r,) = torch.autograd.grad(loss_at(learner, theta, x, y), theta)
    g = torch.randn_like(r) - r
    step = SimpleNamespace(net=learner.net, references=(Batch(learner.inputs(x), y),))
    learner.method.select(step)
    expected = g - min(float(g @ r), 0) / float(r @ r) * r
    assert torch.allclose(learner.method.direction(g, step), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", [AGEM, GEM])
@pytest.mark.parametrize("memory", [8, 9, 10])
def test_past_tasks_share_the_whole_memory(method, memory):
    stream = toy(tasks=3)
    learner = learner_of(method(), MLP(stream.shape, 6), stream, memory=memory)
    kept = []
    for number, task in enumerate(stream, start=1):
        learner.update(task)
        sizes = learner.method.sizes.tolist()
        assert sum(sizes) == memory == len(learner.memory) and max(sizes) - min(sizes) <= 1
        owners = [{int(c) // 2 for c in y} for _, y in learner.method.episodes(learner)]
        assert owners == [{t} for t in range(number)]
        kept.append(learner.method.episodes(learner)[0][0].clone())
    assert torch.equal(kept[2], kept[0][: len(kept[2])]), "what is kept of a task is part of what was kept of it before"


# iCaRL ---------------------------------------------------------------------------------------------------------------
def test_herding_takes_the_best_next_sample_of_all():
    features = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean = features.numpy().mean(axis=0)
    chosen: list[int] = []
    for _ in range(3):
        apart = lambda i: np.linalg.norm(mean - features.numpy()[[*chosen, i]].mean(axis=0))
        chosen.append(min((i for i in range(8) if i not in chosen), key=apart))
    assert icarl.herd(features, 3).tolist() == chosen
    assert sorted(icarl.herd(features, 20).tolist()) == list(range(8)), "there are no more than eight"
    assert icarl.herd(features[:0], 3).tolist() == [], "nor fewer than none"
    worst = max(
        itertools.combinations(range(8), 3), key=lambda s: np.linalg.norm(mean - features.numpy()[list(s)].mean(0))
    )
    assert set(worst) != set(chosen)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_icarls_loss_is_the_binary_cross_entropy_with_distilled_targets(reduction):
    stream = toy(tasks=3)
    learner = learner_of(ICaRL(reduction=reduction), CNN(stream.shape, 6), stream)
    learner.update(stream.tasks[0])
    x, y = (rows[:5] for rows in stream.tasks[1].train)
    before = learner.logits(x)
    learner.method.begin_task(learner, stream.tasks[1])
    with torch.no_grad():
        learner.net.theta += 1.0
    z = torch.randn(5, 6, dtype=torch.float64)
    (term,) = learner.method.learn(Batch(learner.inputs(x), y, z=z))
    sigma = lambda v: 1 / (1 + math.exp(-v))
    by_hand = []
    for i in range(5):
        targets = [sigma(before[i, 0]), sigma(before[i, 1]), float(y[i] == 2), float(y[i] == 3)]  # 4 and 5: not met
        parts = [-q * math.log(sigma(v)) - (1 - q) * math.log(1 - sigma(v)) for q, v in zip(targets, z[i].tolist())]
        by_hand.append(sum(parts) / (4 if reduction == "mean" else 1))
    assert term.loss.tolist() == pytest.approx(by_hand, abs=1e-12)


def test_icarl_trains_on_the_new_samples_and_the_memory_and_shares_it_among_the_classes():
    stream = toy(tasks=2)
    learner = learner_of(ICaRL(), CNN(stream.shape, 4), stream, memory=9)
    learner.update(stream.tasks[0])
    first = {c: learner.memory.held()[0][learner.memory.held()[1] == c].clone() for c in (0, 1)}
    assert [len(rows) for rows in first.values()] == [4, 4]
    x, y = learner.method.training_set(learner, stream.tasks[1])
    assert len(x) == 12 + 8 and y[12:].tolist() == [0] * 4 + [1] * 4
    learner.update(stream.tasks[1])
    assert learner.memory.held()[1].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for c in (0, 1):
        assert torch.equal(learner.memory.held()[0][learner.memory.held()[1] == c], first[c][:2]), "the first it had"


def test_icarl_predicts_the_class_whose_mean_feature_is_nearest():
    stream = toy(tasks=2)
    learner = learner_of(ICaRL(), CNN(stream.shape, 4), stream)
    learner.update(stream.tasks[0])
    network = learner.net.unbind().eval()
    unit = lambda v: v / np.linalg.norm(v)
    feature = lambda image: unit(network.body(learner.inputs(image[None])).detach().numpy()[0])
    x, y = learner.memory.held()
    means = [unit(np.mean([feature(x[i]) for i in range(len(x)) if y[i] == c], axis=0)) for c in (0, 1)]
    test = torch.cat([task.test[0] for task in stream])
    by_hand = [min((0, 1), key=lambda c: np.linalg.norm(feature(image) - means[c])) for image in test]
    assert learner.predict(test).tolist() == by_hand
    assert not torch.isfinite(learner.method.predict(learner, test)[:, 2:]).any(), "classes not met are no answer"


def test_a_network_without_a_linear_layer_has_no_features():
    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Conv2d(1, 2, 8)

        def forward(self, x):
            return self.body(x).flatten(1)

    stream = toy(tasks=1)
    network = Convolution()
    before = network.body.weight.detach().clone()
    with pytest.raises(BadInput, match="no linear layer"):
        learner_of(ICaRL(), network, stream).update(stream.tasks[0])
    assert torch.equal(network.body.weight, before.double()), "said before any training"


def test_icarl_refuses_a_memory_with_no_room_for_every_class():
    stream = toy(tasks=2)
    with pytest.raises(BadInput, match="a memory of 3 is too small for 4"):
        learner_of(ICaRL(), CNN(stream.shape, 4), stream, memory=3).update(stream.tasks[0])


# GSS -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [0, 39])  # with 39 some gradients are as small as 1e-18
def test_gss_scores_a_sample_by_its_nearest_gradient(seed):
    torch.manual_seed(seed)
    stream = toy(tasks=1)
    learner = learner_of(GSS(), CNN(stream.shape, 2), stream)
    learner.update(stream.tasks[0])
    network = learner.net.unbind().eval()
    x, y = stream.tasks[0].train

    def gradient(i):
        g = torch.autograd.grad(
            F.cross_entropy(network(learner.inputs(x[i][None])), y[i][None]), list(network.parameters())
        )
        return torch.cat([part.flatten() for part in g])

    cosine = lambda a, b: float(a @ b / (a.norm() * b.norm()))
    by_hand = [max(cosine(gradient(i), gradient(j)) for j in range(4, 9)) for i in range(4)]
    batch = lambda rows: Batch(learner.inputs(x[rows]), y[rows])
    network.train()
    scores = gss.similarity(*gss.gradients(learner.net, batch(range(4)), batch(range(4, 9))))
    assert scores.tolist() == pytest.approx(by_hand, abs=1e-10) and learner.net.module.training


def test_a_gradient_of_an_empty_row_is_nobodys_neighbour():
    new = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert gss.similarity(new, torch.tensor([[-1.0, 0.0], [0.0, 0.0]])).tolist() == [-1.0, 0.0]
    assert gss.similarity(new, torch.zeros(2, 2)).tolist() == [0.0, 0.0]


def test_gss_replaces_as_algorithm_2_says():
    """Row i is met with probability Cᵢ / Σ C and gives way with probability Cᵢ / (Cᵢ + c); never for c ≥ 1."""
    scores = torch.tensor([0.5, 0.25, 0.0, 1.25, 9.0]).double()  # four rows and the spare one
    place = lambda c, meets, lot, free=4: int(
        gss.rows_taken(scores, *(torch.tensor([v]).double() for v in (c, free, meets, lot)))
    )
    assert [place(0.2, meets, 0.0) for meets in (0.0, 0.2, 0.26, 0.37, 0.38, 0.99)] == [0, 0, 1, 1, 3, 3]
    for row, meets in ((0, 0.1), (1, 0.3), (3, 0.9)):
        bar = float(scores[row] / (scores[row] + 0.2))
        assert place(0.2, meets, bar - 1e-6) == row and place(0.2, meets, bar + 1e-6) == 4
    assert place(1.0, 0.1, 0.0) == place(1.5, 0.1, 0.0) == 4
    assert place(1.5, 0.9, 0.9, free=2) == 2, "while there is room everything is kept"
    both = gss.rows_taken(scores, *(torch.tensor([v, v]).double() for v in (0.2, 4.0, 0.1, 0.0)))
    assert both.tolist() == [4, 0], "two for one row: the last arrival has it"


def test_the_lots_are_drawn_by_the_plan():
    drawn = chances(np.random.default_rng(0), 5, 8, 2, 3)
    assert drawn[..., 0].tolist() == [[5, 6, 7], [8, 8, 8]]
    assert (drawn[..., 1:] >= 0).all() and (drawn[..., 1:] < 1).all() and len(np.unique(drawn[..., 1:])) == 12


def test_gss_keeps_the_score_of_what_it_keeps():
    stream = toy(tasks=2, each=40)
    learner = learner_of(GSS(), MLP(stream.shape, 4), stream)
    learner.update(stream.tasks[0])
    before, scores = learner.memory.x.clone(), learner.method.scores.clone()
    assert len(learner.memory) == 8 and (learner.memory.y[:8] >= 0).all()
    learner.update(stream.tasks[1])
    changed = (learner.memory.x != before).flatten(1).any(dim=1)[:8]
    assert changed.sum() > 0 and torch.equal(learner.method.scores[:8][~changed], scores[:8][~changed])
    assert (learner.method.scores[:8][changed] < 1).all(), "what came later had a cosine below 0"


def test_a_row_on_the_edge_of_its_share_is_the_next_ones():
    """Row i is met from the sum of the scores before it on; one with a score of 0 never is."""
    scores = torch.tensor([0.0, 0.5, 0.0, 0.5, 1.0]).double()
    met = lambda meets: int(
        gss.rows_taken(scores, *(torch.tensor([v], dtype=torch.float64) for v in (0.1, 4.0, meets, 0.0)))
    )
    assert [met(meets) for meets in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1, 1, 3, 3, 3]
    bar = 0.5 / (0.5 + 0.25)
    at = lambda lot: int(
        gss.rows_taken(scores, *(torch.tensor([v], dtype=torch.float64) for v in (0.25, 4.0, 0.1, lot)))
    )
    assert at(bar - 1e-9) == 1 and at(bar + 1e-9) == 4
    three = gss.rows_taken(
        scores, *(torch.tensor(v, dtype=torch.float64) for v in ([0.1] * 3, [3.0, 2.0, 3.0], [0.1] * 3, [0.0] * 3))
    )
    assert three.tolist() == [4, 2, 3], "two for one free row: the last arrival has it"


def test_gss_scores_are_kept_for_the_rows_that_are_left():
    method = GSS()
    method.begin_task(learner := SimpleNamespace(capacity=4, device="cpu"), None)
    assert method.scores.shape == (5,) and method.scores.dtype == torch.float64 and not method.scores.any()
    method.scores += torch.arange(5.0)
    method.begin_task(learner, None)
    assert method.scores.tolist() == [0, 1, 2, 3, 4], "they are made once"
    method.forget(learner, torch.tensor([1, 3]))
    assert method.scores.tolist() == [1, 3, 0, 0, 0]


def test_gss_takes_each_samples_gradient_in_evaluation_mode_and_none_of_an_empty_row():
    stream = toy(tasks=1)
    learner = learner_of(GSS(), CNN(stream.shape, 2), stream)
    x, y = learner.inputs(stream.tasks[0].train[0][:3]), stream.tasks[0].train[1][:3]
    learner.net.train()
    (whole,) = gss.gradients(learner.net, Batch(x, y))
    twice, some = gss.gradients(learner.net, Batch(x, y), Batch(x, y, there=torch.tensor([True, False, True])))
    torch.testing.assert_close(twice, whole)
    torch.testing.assert_close(some[[0, 2]], whole[[0, 2]])
    assert whole.any(dim=1).all() and not some[1].any()


def test_in_its_first_task_agem_takes_no_second_gradient():
    method, g = AGEM(), torch.ones(3)
    method.begin_task(SimpleNamespace(tasks=0), None)
    step = SimpleNamespace(against=None)
    method.select(step)
    assert method.direction(g, step) is g and not method.constrained
    method.begin_task(SimpleNamespace(tasks=1), None)
    assert method.constrained
    along = torch.tensor([1.0, 0.0, 0.0])
    assert torch.equal(agem.project(g, along * 0), g) and torch.equal(agem.project(g, -along), g - along)
    assert torch.equal(agem.project(torch.tensor([0.0, 1, 1]), along), torch.tensor([0.0, 1, 1]))


def test_gem_without_a_past_has_no_constraint_and_forgets_empty_ones():
    method, g = GEM(), torch.ones(3)
    held = (torch.arange(3.0)[:, None], torch.tensor([0, 1, 1]))
    learner = SimpleNamespace(tasks=0, memory=SimpleNamespace(held=lambda: held), inputs=lambda x: x + 1)
    method.sizes = torch.tensor([1, 0, 2])
    method.begin_task(learner, None)
    assert [batch.x[:, 0].tolist() for batch in method.past] == [[1], [2, 3]]
    assert [batch.y.tolist() for batch in method.past] == [[0], [1, 1]]
    method.past, step = [], SimpleNamespace(against=None)
    method.select(step)
    assert method.direction(g, step) is g


@pytest.mark.parametrize("method", [AGEM, GEM])
def test_asked_for_a_direction_again_the_network_stays_as_it_was(method):
    class Twice(method):
        def direction(self, gradient, step):
            asked.append(super().direction(gradient, step))
            return super().direction(gradient, step)

    stream, asked, counted = toy(tasks=2), [], []
    network = CNN(stream.shape, 4)
    for of in (method, Twice):
        learner = learner_of(of(), copy.deepcopy(network), stream)
        for task in stream:
            learner.update(task)
        counted.append({name: tensor.clone() for name, tensor in learner.net.state().items()})
    assert asked and all(torch.equal(tensor, counted[1][name]) for name, tensor in counted[0].items())


def test_between_tasks_gem_holds_no_sample_besides_its_memory():
    stream = toy(tasks=2)
    learner = learner_of(GEM(), MLP(stream.shape, 4), stream)
    for task in stream:
        learner.update(task)
    assert not learner.method.past


def test_past_tasks_rows_are_shared_out_to_the_last_and_follow_what_is_forgotten():
    stream = toy(tasks=3, each=12)
    learner = learner_of(AGEM(), MLP(stream.shape, 6), stream, memory=8, epochs=1)
    shares = []
    for task in stream:
        learner.update(task)
        shares.append(learner.method.sizes.tolist())
    assert shares == [[8], [4, 4], [3, 3, 2]]
    method = learner.method
    method.forget(learner, torch.tensor([0, 3, 4, 7]))
    assert method.sizes.tolist() == [1, 2, 1]
    again = AGEM()
    again.restore({"sizes": torch.tensor([2, 1])})
    assert again.sizes.tolist() == [2, 1]
    again.restore({})
    assert getattr(again, "sizes", None) is None


def test_episodes_keep_their_first_rows_and_take_new_samples_by_the_seed_and_the_task():
    stream = toy(tasks=2, each=12)
    learner = learner_of(AGEM(), MLP(stream.shape, 4), stream, memory=6, epochs=1, seed=3)
    learner.update(stream.tasks[0])
    first = learner.memory.held()[0].clone()
    order = np.random.default_rng([3, 1]).permutation(12)
    assert torch.equal(first, stream.tasks[0].train[0][order[:6]])
    learner.update(stream.tasks[1])
    order = np.random.default_rng([3, 2]).permutation(12)
    expected = torch.cat([first[:3], stream.tasks[1].train[0][order[:3]]])
    assert torch.equal(learner.memory.held()[0], expected)


def test_herding_is_of_as_many_as_there_are_and_of_none():
    features = torch.eye(3)
    assert sorted(icarl.herd(features, 5).tolist()) == [0, 1, 2] and icarl.herd(features, 2).shape == (2,)
    assert icarl.herd(features, 0).shape == (0,) and icarl.herd(features, 0).dtype == torch.long
    means = icarl.class_means(torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 8.0]]), torch.tensor([0, 2, 2]), 3)
    assert means[[0, 2]].tolist() == [[1, 0], [0, 1]] and means[1].isnan().all()


def test_icarl_classifies_by_logits_until_it_holds_a_sample_and_never_as_a_class_not_met():
    stream = toy(tasks=2)
    learner = learner_of(ICaRL(), MLP(stream.shape, 4), stream, epochs=1)
    x = stream.tasks[0].test[0]
    assert torch.equal(learner.method.predict(learner, x), learner.logits(x))
    learner.update(stream.tasks[0])
    scores = learner.method.predict(learner, x)
    assert (scores[:, 2:] == -torch.inf).all() and torch.isfinite(scores[:, :2]).all()
    features = F.normalize(learner.features(x), dim=1)
    assert torch.allclose(-scores[:, :2], torch.cdist(features, learner.method.means[:2]), atol=1e-9)
    learner.memory.fill(*(rows[:0] for rows in learner.memory.held()))
    learner.method.forget(learner, torch.zeros(0, dtype=torch.long))
    assert learner.method.means is None and torch.equal(learner.method.predict(learner, x), learner.logits(x))
    with pytest.raises(BadInput, match="unknown reduction 'total'"):
        ICaRL(reduction="total")


def test_what_gss_forgot_it_may_keep_again():
    stream = toy(tasks=1, each=20)
    learner = learner_of(GSS(), MLP(stream.shape, 2), stream, memory=40, epochs=1)
    learner.update(stream.tasks[0])
    assert learner.forget(lambda x, y: y == 0) == {0: 10} and learner.kept() == {0: 0, 1: 10}
    learner.update(stream.tasks[0])
    assert learner.kept() == {0: 10, 1: 10}


def test_gss_keeps_more_beside_a_sample_and_what_fills_its_memory_between_tasks_refuses_to():
    class Kept(GSS):
        keeps = ("logits",)

    stream = toy(tasks=1, each=20)
    learner = learner_of(Kept(), MLP(stream.shape, 2), stream, memory=40, epochs=1)
    learner.update(stream.tasks[0])
    assert learner.memory.stored["logits"][: len(learner.memory)].any(dim=1).all()
    for method in (AGEM, GEM, ICaRL):
        wrong = type("Wrong", (method,), {"keeps": ("logits",)})
        with pytest.raises(BadInput, match="Wrong fills its memory between tasks and has no logits to keep then"):
            learner_of(wrong(), MLP(stream.shape, 2), stream)
    drawn = type("Drawn", (GSS,), {"draws": (Draw("balanced"),)})
    with pytest.raises(BadInput, match="Drawn fills its memory in its own way, so no draw of it can be balanced"):
        learner_of(drawn(), MLP(stream.shape, 2), stream)


def test_within_a_task_icarl_is_tested_by_its_logits_for_its_means_are_the_last_tasks():
    x = torch.randn(240, 6, generator=torch.Generator().manual_seed(0)) + 6 * torch.eye(6).repeat(40, 1)
    y = torch.arange(240) % 6
    network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6))
    learner = Learner(network, "icarl", memory=60, epochs=8, batch=16, lr=0.05)
    learner.update(x[y < 3], y[y < 3])
    seen: list = []
    learner.update(x[y >= 3], y[y >= 3], validation=0.25, on_epoch=lambda _, record: seen.append(record["validation"]))
    assert max(seen[:4]) > 0.5 and learner.score(x, y) > 0.9


def test_within_the_first_epoch_of_a_task_icarl_is_tested_by_its_logits_too():
    stream = toy()
    learner = learner_of(ICaRL(), CNN(stream.shape, 4), stream)
    learner.update(stream.tasks[0])
    x = stream.tasks[1].test[0]
    by_means = learner.method.predict(learner, x)
    assert by_means[:, 2:].isinf().all(), "no means of classes to come"
    for _ in learner.updating(stream.tasks[1]):
        assert torch.equal(learner.method.predict(learner, x), learner.logits(x))
    assert learner.tasks == 2 and not torch.equal(learner.method.predict(learner, x), learner.logits(x))
