"""Every loss and every step against a literal transcription, in float64."""

import inspect
import math

import pytest
import torch
from conftest import toy
from torch import nn

from everlearn import DER, ER, ERACE, Batch, DERpp, FineTune, Fixed, Learner, cross_entropy, distance
from everlearn.core.memory import Memory
from everlearn.core.plan import Draw, plan_epoch, reservoir
from everlearn.core.step import SGD
from everlearn.core.terms import EMPTY, Terms, weighed
from everlearn.data.streams import Pixels
from everlearn.metrics import guesses, summary
from everlearn.networks import CNN, MLP, ResNet18
from everlearn.registry import find, known
from everlearn.weightings.adam import Adam
from everlearn.weightings.diagnostics import labels

B, C = 6, 5


def batch(seed: int, recorded: bool = False) -> Batch:
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(B, C, dtype=torch.float64, generator=random)
    y = torch.randint(C, (B,), generator=random)
    stored = {"logits": torch.randn(B, C, dtype=torch.float64, generator=random)} if recorded else {}
    return Batch(z, y, z, stored=stored)


def ce(z, y, classes=range(C)) -> float:
    return -math.log(math.exp(z[y]) / sum(math.exp(z[c]) for c in classes))


def test_cross_entropy_is_minus_the_log_of_the_softmax():
    b = batch(0)
    assert cross_entropy(b).loss.tolist() == pytest.approx(
        [ce(z, y) for z, y in zip(b.z.tolist(), b.y.tolist())], abs=1e-12
    )


def test_distance_is_the_mean_over_classes_of_the_squared_difference():
    b = batch(1, recorded=True)
    by_hand = [sum((p - q) ** 2 for p, q in zip(z, r)) / C for z, r in zip(b.z.tolist(), b.stored["logits"].tolist())]
    assert distance(b).loss.tolist() == pytest.approx(by_hand, abs=1e-12)


def test_an_empty_memory_counts_nothing_and_moves_nothing():
    z = torch.randn(B, C, dtype=torch.float64, requires_grad=True)
    memory = Memory(2, torch.zeros(1, 1, 2, 2), {"logits": (C,)}, torch.float64)
    (empty,) = memory.draw(torch.zeros(B, dtype=torch.long), [B])
    assert not empty.there.any() and empty.y.tolist() == [0] * B, "a label any loss can read"
    new, empty = batch(0), empty._replace(z=z)
    for term in (cross_entropy(empty), distance(empty)):
        for losses in (term.masked(), Terms([cross_entropy(new), term]).losses[:, 1]):
            assert losses.tolist() == [0.0] * B
            assert torch.autograd.grad(losses.sum(), z, retain_graph=True)[0].abs().sum() == 0
    outer = inspect.unwrap(DERpp.outer)(DERpp(), lambda *batches, there: [z for _ in batches], (empty, empty))
    assert float(outer.detach()) == 0 and torch.autograd.grad(outer, z)[0].abs().sum() == 0


def test_rows_of_a_memory_that_is_there_in_part_count_by_themselves():
    memory = Memory(2, torch.zeros(1, 1, 2, 2), {"logits": (C,)}, torch.float64)
    logits = torch.randn(1, C, dtype=torch.float64)
    memory.write(torch.tensor([1]), torch.ones(1, 1, 2, 2), torch.tensor([3]), logits=logits)
    (drawn,) = memory.draw(torch.tensor([0, 1]), [2])
    drawn = drawn._replace(z=torch.randn(2, C, dtype=torch.float64))
    assert cross_entropy(drawn).masked().tolist() == [0, pytest.approx(ce(drawn.z[1].tolist(), 3), abs=1e-12)]
    apart = float((drawn.z[1] - logits[0]).square().mean())
    assert distance(drawn).masked().tolist() == [0, pytest.approx(apart, abs=1e-12)]
    assert labels(Terms([cross_entropy(drawn)]))[:, 0].tolist() == [EMPTY, 3], "and are of no class in a record"


def test_er_is_cross_entropy_on_both():
    new, memory = batch(0), batch(1)
    losses = Terms(ER().learn(new) + ER().rehearse(memory)).losses.tolist()
    assert losses == [
        pytest.approx([ce(a, i), ce(b, j)], abs=1e-12)
        for a, i, b, j in zip(new.z.tolist(), new.y.tolist(), memory.z.tolist(), memory.y.tolist())
    ]


def test_er_ace_tells_new_samples_apart_from_their_batch_and_from_the_unseen_only():
    method = ERACE()
    learner = type("", (), {"seen": {0, 1}, "classes": C, "device": "cpu"})
    inspect.unwrap(ERACE.begin_task)(method, learner, type("", (), {"classes": (2, 3)}))
    new = batch(0)._replace(
        y=torch.tensor([2, 2, 2, 2, 2, 2])
    )  # 3 is of this task but not of this batch; 4 is not yet seen
    assert method.learn(new)[0].loss.tolist() == pytest.approx([ce(z, 2, (2, 4)) for z in new.z.tolist()], abs=1e-12)
    memory = batch(1)
    assert method.rehearse(memory)[0].loss.tolist() == pytest.approx(
        [ce(z, y) for z, y in zip(memory.z.tolist(), memory.y.tolist())], abs=1e-12
    )


def test_der_and_der_plus_plus_rehearse_what_they_recorded():
    dark, labelled = batch(1, recorded=True), batch(2, recorded=True)
    kd = [sum((p - q) ** 2 for p, q in zip(z, r)) / C for z, r in zip(dark.z.tolist(), dark.stored["logits"].tolist())]
    labels = [ce(z, y) for z, y in zip(labelled.z.tolist(), labelled.y.tolist())]
    assert [term.loss.tolist() for term in DER().rehearse(dark)] == [pytest.approx(kd, abs=1e-12)]
    assert [t.loss.tolist() for t in DERpp().rehearse(dark, labelled)] == [
        pytest.approx(kd, abs=1e-12),
        pytest.approx(labels, abs=1e-12),
    ]


def test_weighed_is_the_mean_over_rows_of_the_weighted_sum_over_terms():
    losses, weights = torch.rand(B, 3, dtype=torch.float64), torch.rand(B, 3, dtype=torch.float64)
    by_hand = sum(sum(w * loss for w, loss in zip(*row)) for row in zip(weights.tolist(), losses.tolist())) / B
    assert float(weighed(losses, weights)) == pytest.approx(by_hand, abs=1e-12)


METHODS = {
    "finetune": (FineTune, ()),
    "er": (ER, (1, 0.7)),
    "er-ace": (ERACE, (1, 1)),
    "der": (DER, (1, 0.3)),
    "der++": (DERpp, (1, 0.1, 0.5)),
}


def by_hand(
    name: str, weights, stream, network, *, memory: int, epochs: int, size: int, lr: float, seed: int
) -> nn.Module:
    """The whole method as one would write it from its paper: python lists for a memory, torch's own optimiser."""
    optimiser = torch.optim.SGD(network.parameters(), lr=lr)
    held: dict[int, tuple] = {}
    presented, met = 0, set()
    draws = {"finetune": 0, "der++": 2}.get(name, 1)
    for t, task in enumerate(stream):
        x, y = task.train
        met |= set(task.classes)
        for epoch in range(epochs):
            plan = plan_epoch(
                seed,
                t,
                epoch,
                samples=len(x),
                batch=size,
                draws=[Draw()] * draws,
                capacity=memory if draws else 0,
                presented=presented,
                slot_rule=reservoir if draws else None,
            )
            for k in range(len(plan)):
                raw, labels = x[plan[k].order], y[plan[k].order]
                prepare = lambda images: (images.double() / 255 - 0.5) / 0.25
                z = network(prepare(raw))
                if name == "er-ace":
                    allowed = set(labels.tolist()) | set(range(stream.classes)) - met
                    z_new = torch.where(
                        torch.tensor([c in allowed for c in range(stream.classes)]),
                        z,
                        torch.tensor(-math.inf, dtype=z.dtype),
                    )
                    loss = nn.functional.cross_entropy(z_new, labels) * weights[0]
                else:
                    loss = nn.functional.cross_entropy(z, labels) * (weights[0] if weights else 1)
                for number, rows in enumerate(plan[k].draws.split(size) if draws else ()):
                    drawn = [held.get(int(row)) for row in rows]
                    if drawn[0] is None:
                        continue
                    images, targets, logits = (torch.stack(column) for column in zip(*drawn))
                    answer = network(prepare(images))
                    if name.startswith("der") and number == 0:
                        loss = loss + weights[1] * nn.functional.mse_loss(answer, logits)
                    else:
                        loss = loss + weights[-1] * nn.functional.cross_entropy(answer, targets)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                for position in range(size if draws else 0):
                    if (slot := int(plan[k].slots[position])) < memory:
                        held[slot] = (raw[position], labels[position], z[position].detach())
            presented += len(plan) * size
    return network


@pytest.mark.parametrize("net", [MLP, CNN])
@pytest.mark.parametrize("name", METHODS)
def test_training_is_the_method_as_written_down(name, net):
    stream = toy(tasks=2, each=13)
    kind, weights = METHODS[name]
    fresh = lambda: (torch.manual_seed(0), net(stream.shape, stream.classes).double())[1]
    literal = by_hand(name, weights, stream, fresh(), memory=7, epochs=3, size=4, lr=0.05, seed=3)
    network = fresh()
    learner = Learner(
        network,
        kind(Fixed(weights)),
        classes=range(4),
        inputs=stream.pixels,
        memory=7,
        epochs=3,
        batch=4,
        lr=0.05,
        seed=3,
        dtype=torch.float64,
    )
    for task in stream:
        learner.update(task)
    for (key, ours), theirs in zip(network.state_dict().items(), literal.state_dict().values()):
        assert torch.allclose(ours.double(), theirs.double(), rtol=0, atol=1e-12), key


def test_joint_forward_gives_all_batches_one_pass():
    stream = toy()
    passes = []
    network = CNN(stream.shape, 4)
    network.register_forward_hook(
        lambda module, inputs, output: passes.append(len(inputs[0])) if module.training else None
    )
    for forward, expected in (("separate", [4, 4, 4]), ("joint", [12])):
        passes.clear()
        learner = Learner(
            network, DERpp(), classes=range(4), inputs=stream.pixels, memory=5, epochs=1, batch=4, forward=forward
        )
        learner.update(stream.tasks[0])
        assert passes == expected * 3


@pytest.mark.parametrize(
    "settings", [dict(), dict(momentum=0.9), dict(weight_decay=0.01), dict(momentum=0.9, weight_decay=0.01)]
)
def test_sgd_moves_as_torchs_does(settings):
    ours, rule = torch.ones(4, dtype=torch.float64), SGD(0.1, **settings)
    theirs = nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimiser = torch.optim.SGD([theirs], lr=0.1, **settings)
    for seed in range(5):
        theirs.grad = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        rule.direction(ours, 100 * theirs.grad, virtual=True)  # a virtual step leaves no trace
        ours = ours - 0.1 * rule.direction(ours, theirs.grad)
        optimiser.step()
    assert torch.allclose(ours, theirs.detach(), rtol=0, atol=1e-14)


def test_adam_moves_as_torchs_does():
    ours, theirs = torch.ones(4, dtype=torch.float64), nn.Parameter(torch.ones(4, dtype=torch.float64))
    rule, optimiser = Adam(ours, 1e-3, 1e-4), torch.optim.Adam([theirs], lr=1e-3, weight_decay=1e-4)
    for seed in range(20):
        theirs.grad = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        ours = ours - 1e-3 * rule.direction(ours, theirs.grad)
        optimiser.step()
    assert torch.allclose(ours, theirs.detach(), rtol=0, atol=1e-14)


def test_metrics_on_a_matrix_worked_out_by_hand():
    result = summary([[90, 10, 0], [70, 80, 20], [60, 85, 95]], untrained=[10, 20, 30])
    assert result["acc"] == 80 and result["bwt"] == ((60 - 90) + (85 - 80)) / 2
    assert result["forgetting"] == ((90 - 60) + (85 - 85)) / 2 and result["fwt"] == ((10 - 20) + (20 - 30)) / 2


def test_task_il_looks_only_at_the_tasks_own_classes():
    logits = torch.tensor([[9.0, 0, 1, 0], [0, 0, 0, 5.0]])
    assert [guess.tolist() for guess in guesses(logits, (2, 3))] == [[0, 3], [2, 3]]


def test_a_crop_and_flip_are_the_window_of_the_padded_image():
    pixels = Pixels(pad=2, flip=True, top=1)
    x = torch.randint(0, 255, (5, 3, 6, 6), dtype=torch.uint8)
    view = torch.tensor([[0, 0, 0], [2, 2, 0], [4, 1, 1], [3, 4, 0], [2, 2, 1]])
    for image, (down, right, flip), seen in zip(x, view.tolist(), pixels(x, view)):
        window = nn.functional.pad(image, (2, 2, 2, 2))[:, down : down + 6, right : right + 6].float()
        assert torch.equal(seen, window.flip(2) if flip else window)
    assert torch.equal(pixels(x)[1], x[1].float())


def test_normalisation_is_mean_and_standard_deviation_a_channel():
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615)
    x = torch.randint(0, 255, (2, 3, 4, 4), dtype=torch.uint8)
    by_hand = (x.double() / 255 - torch.tensor(mean).double()[:, None, None]) / torch.tensor(std).double()[
        :, None, None
    ]
    assert torch.allclose(Pixels(mean, std)(x).double(), by_hand, atol=1e-5)


def test_resnet_18_has_the_published_number_of_parameters():
    assert sum(p.numel() for p in ResNet18((3, 32, 32), 10).parameters()) == 11_173_962


@pytest.mark.parametrize("name", known("network"))
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_a_built_in_network_takes_any_image(name, shape):
    assert find("network", name)(shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


def test_batches_of_a_rowwise_network_share_a_pass_and_nothing_else_changes():
    stream, passes = toy(), []
    trained = []
    for rowwise in (True, False):
        torch.manual_seed(0)
        network = MLP(stream.shape, 4)
        network.rowwise = rowwise
        network.register_forward_hook(lambda module, x, z: passes.append(len(x[0])) if module.training else None)
        learner = Learner(
            network,
            DERpp(),
            classes=range(4),
            inputs=stream.pixels,
            memory=5,
            epochs=1,
            batch=4,
            lr=0.01,
            dtype=torch.float64,
        )
        learner.update(stream.tasks[0])
        trained.append(learner.net.theta.detach())
    assert passes == [12] * 3 + [4] * 9
    assert torch.allclose(*trained, rtol=0, atol=1e-13)
