"""oEWC, SI and LwF against hand transcriptions, in float64."""

import math

import pytest
import torch
from conftest import toy
from torch import nn

from everlearn import OEWC, SI, Batch, ICaRL, Learner, LwF
from everlearn.methods.oewc import fisher
from everlearn.networks import CNN

pytestmark = pytest.mark.usefixtures("stand_ins")


def learner_of(method, network, stream, **settings) -> Learner:
    settings = dict(epochs=2, batch=4, lr=0.05) | settings
    return Learner(
        network, method, classes=range(stream.classes), inputs=stream.pixels, dtype=torch.float64, **settings
    )


class TwoParameters(nn.Module):
    """z = (a m, b m) for an image of mean m."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([0.3, -0.2], dtype=torch.float64))

    def forward(self, x):
        return x.mean(dim=(1, 2, 3))[:, None] * self.weights


def test_the_fisher_of_two_parameters_is_the_closed_form():
    """∂ log p(y) / ∂ a = m (1[y = 0] − p₀), and likewise for b."""
    stream, network = toy(tasks=1, each=11), TwoParameters()
    learner = learner_of(OEWC(), network, stream)
    x, y = stream.tasks[0].train
    expected = torch.zeros(2, dtype=torch.float64)
    for image, label in zip(x, y.tolist()):
        m = float(((image.double() / 255 - 0.5) / 0.25).mean())
        odds = [math.exp(m * w) for w in (0.3, -0.2)]
        for c in range(2):
            expected[c] += (m * ((label == c) - odds[c] / sum(odds))) ** 2 / len(x)
    assert torch.allclose(fisher(learner, stream.tasks[0]), expected, rtol=0, atol=1e-12)


def test_the_fisher_of_a_batchnorm_network_takes_one_sample_at_a_time():
    stream = toy(tasks=1, each=20)
    learner = learner_of(OEWC(), CNN(stream.shape, 2), stream)
    learner.update(stream.tasks[0])
    network = learner.net.unbind().eval()
    total = 0
    for image, label in zip(*stream.tasks[0].train):
        z = network(learner.inputs(image[None]))
        g = torch.autograd.grad(nn.functional.cross_entropy(z, label[None]), list(network.parameters()))
        total = total + torch.cat([part.flatten() for part in g]).square() / 20
    network.train()
    assert torch.allclose(fisher(learner, stream.tasks[0]), total, rtol=0, atol=1e-12)
    assert torch.allclose(learner.method.fisher, total, rtol=0, atol=1e-12) and learner.net.module.training


def test_oewc_pulls_towards_where_each_task_ended_by_a_running_fisher():
    stream = toy(tasks=3)
    method = OEWC(strength=7.0, decay=0.9)
    learner, ends, fishers = learner_of(method, CNN(stream.shape, 6), stream), [], []
    for task in stream:
        learner.update(task)
        ends.append(learner.net.theta.detach().clone())
        fishers.append(fisher(learner, task))
    expected = 0.9 * (0.9 * fishers[0] + fishers[1]) + fishers[2]
    assert torch.allclose(method.fisher, expected, rtol=0, atol=1e-12) and torch.equal(method.anchor, ends[-1])
    theta = ends[-1].clone().requires_grad_()
    g = torch.randn_like(theta)
    (pull,) = torch.autograd.grad(7.0 * (method.fisher * (theta - method.anchor + 0.1) ** 2).sum(), theta)
    with torch.no_grad():
        learner.net.theta += 0.1
    step = type("", (), {"net": learner.net, "sgd": learner.sgd})
    assert torch.allclose(method.direction(g, step), g + pull, rtol=0, atol=1e-12)


def test_the_importance_of_a_quadratic_is_the_drop_in_loss_along_each_parameter():
    """On ½ Σ hₚ θₚ², small steps: ωₚ is the drop ½ hₚ (θ₀² − θ₁²) of that parameter's own part."""
    h, start = torch.tensor([1.0, 4.0, 0.0], dtype=torch.float64), torch.tensor([2.0, -1.0, 3.0], dtype=torch.float64)
    method, theta, lr = SI(damping=0.1), start.clone(), 1e-4
    net = type("", (), {"theta": theta})
    learner = type("", (), {"net": net, "tasks": 0})
    step = type("", (), {"net": net, "sgd": type("", (), {"lr": lr})})
    method.begin_task(learner, None)
    for _ in range(5000):
        g = h * theta
        way = method.direction(g, step)
        theta -= lr * way
        method.after_step(step, g, way)
    drop = h * (start**2 - theta**2) / 2
    assert torch.allclose(method.path, drop, rtol=1e-3)
    method.end_task(learner, None)
    assert torch.allclose(method.importance, drop / ((theta - start) ** 2 + 0.1), rtol=1e-3)
    assert torch.equal(method.anchor, theta) and method.path.abs().sum() == 0


def test_si_pulls_with_twice_its_importance_and_does_not_count_the_pull_as_a_gradient():
    theta = torch.tensor([1.0, 2.0], dtype=torch.float64)
    net = type("", (), {"theta": theta})
    step = type("", (), {"net": net, "sgd": type("", (), {"lr": 0.5})})
    method = SI(strength=3.0)
    method.begin_task(type("", (), {"net": net, "tasks": 0}), None)
    method.importance += torch.tensor([1.0, 0.0])
    method.anchor -= 1.0
    g = torch.tensor([10.0, 10.0], dtype=torch.float64)
    way = method.direction(g, step)
    assert way.tolist() == [10 + 2 * 3 * 1 * 1, 10] and not method.path.any(), "a virtual step leaves no trace"
    method.after_step(step, g, way)
    assert method.path.tolist() == [0.5 * 10 * 16, 0.5 * 10 * 10]


def test_lwf_distils_the_old_heads_of_the_network_before_the_task():
    stream = toy(tasks=2)
    method = LwF(temperature=2.0)
    learner = learner_of(method, CNN(stream.shape, 4), stream)
    method.tell("begin_task", learner, stream.tasks[0])
    x = learner.inputs(stream.tasks[1].train[0][:5])
    z = torch.randn(5, 4, dtype=torch.float64)
    batch = Batch(x, stream.tasks[1].train[1][:5], z=z)
    assert method.learn(batch)[1].loss.tolist() == [0.0] * 5, "there is nothing old yet"
    learner.update(stream.tasks[0])
    before = learner.logits(stream.tasks[1].train[0][:5])
    method.tell("begin_task", learner, stream.tasks[1])
    with torch.no_grad():
        learner.net.theta += 1.0
    soft = lambda logits: [math.exp(v / 2) / sum(math.exp(w / 2) for w in logits) for v in logits]
    by_hand = [
        -sum(p * math.log(q) for p, q in zip(soft(old[:2]), soft(new[:2])))
        for old, new in zip(before.tolist(), z.tolist())
    ]
    assert method.learn(batch)[1].loss.tolist() == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("head, classes", [("own", (2, 3)), ("all", range(4))])
def test_lwfs_new_samples_compete_in_their_own_head_or_in_all(head, classes):
    stream, method = toy(tasks=2), LwF(head=head)
    learner = learner_of(method, CNN(stream.shape, 4), stream)
    learner.update(stream.tasks[0])
    method.begin_task(learner, stream.tasks[1])
    x, y = (rows[:5] for rows in stream.tasks[1].train)
    z = torch.randn(5, 4, dtype=torch.float64)
    by_hand = [
        -math.log(math.exp(of[label]) / sum(math.exp(of[c]) for c in classes))
        for of, label in zip(z.tolist(), y.tolist())
    ]
    loss = method.learn(Batch(learner.inputs(x), y, z=z))[0].loss
    assert loss.tolist() == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(
    "method, settings",
    [
        (OEWC, {"strength": -1}),
        (OEWC, {"decay": 2}),
        (SI, {"damping": 0}),
        (LwF, {"temperature": 0}),
        (LwF, {"head": "old"}),
        (ICaRL, {"reduction": "none"}),
    ],
)
def test_settings_that_cannot_be_are_refused(method, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        method(**settings)
