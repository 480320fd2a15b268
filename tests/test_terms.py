"""The building blocks of a loss, each against a literal transcription in float64, and Retain, which is made of them."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from conftest import built, learner_of, toy
from test_capture import watched as recorded  # noqa: F401
from torch import nn
from torch.nn import functional as F

import everlearn
from everlearn import Batch, DERpp, Experiment, Learner, Training, cross_entropy
from everlearn.core.plan import Draw, plan_epoch, reservoir
from everlearn.core.terms import Term, distance, seen_by
from everlearn.methods import Retain
from everlearn.networks import CNN, MLP
from everlearn.terms import Adjusted, Decoupled, Distilled, Projected, Refreshed, agreement
from everlearn.terms.decoupled import apart
from everlearn.terms.distilled import distillation
from everlearn.weightings import Relation, outer

pytestmark = pytest.mark.usefixtures("stand_ins")

B, C = 5, 6
OLD, NEW, UNSEEN = (0, 1), (2, 3), (4, 5)


def batch(seed: int = 0, **more) -> Batch:
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(B, C, dtype=torch.float64, generator=random)
    return Batch(z, torch.tensor([2, 3, 3, 2, 2]), z, **more)


def taught_twice(part, width: int = 16) -> tuple[Learner, everlearn.Stream]:
    """A learner before its second task of three, in float64, the part told of it."""
    stream = toy(tasks=3)
    network = MLP(stream.shape, C, hidden=width)
    learner = Learner(network, classes=range(C), inputs=stream.pixels, memory=8, epochs=2, batch=4, dtype=torch.float64)
    learner.update(stream.tasks[0])
    part.begin_task(learner, stream.tasks[1])
    return learner, stream


def softmax(values: list[float]) -> list[float]:
    return [math.exp(v) / sum(map(math.exp, values)) for v in values]


class Cosine(DERpp):
    """Its loss divides by the length of recorded logits, which is 0 in rows of the memory that are still empty."""

    names, draws, weights = ("new", "memory"), 1, (1.0, 1.0)

    def rehearse(self, memory):
        kept = memory.stored["logits"]
        return [Term(1 - (memory.z * kept).sum(1) / kept.square().sum(1).sqrt(), memory)]


@pytest.mark.parametrize("weighting", [None, Relation(warmup=0, relation_from_task=1)])
def test_a_row_of_an_empty_memory_is_left_out_even_where_its_loss_is_no_number(weighting):
    stream = toy()
    learner = Learner(MLP(stream.shape, 4), Cosine(weighting), memory=64, classes=range(4), epochs=1, batch=4)
    learner.update(stream.tasks[0])
    assert learner.tasks == 1 and len(learner.memory) < 64


class Late(everlearn.ER):
    """Its loss on new samples is no number from one step on, or that on the memory has a gradient that is none."""

    def __init__(self, at: int = 99, gradient: bool = False):
        super().__init__()
        self.at, self.gradient, self.step = at, gradient, 0

    def select(self, step):
        self.step = step.number

    def learn(self, new):
        return [Term(cross_entropy(new).loss * (math.nan if self.step >= self.at else 1), new)]

    def rehearse(self, memory):
        return [Term((memory.z * 0).sum(1).sqrt(), memory)] if self.gradient else super().rehearse(memory)


@pytest.mark.parametrize(
    ("method", "said", "unsaid"),
    [
        (Late(0), r"first in step 1: new\); so early it is usually a division by 0, .* not scaled$", "learning"),
        (Late(1), r"first in step 2: new\); so early .* or a learning rate as large as 0\.03$", "may help"),
        (Late(3), r"first in step 4: new\); a smaller learning rate than 0\.03 may help, such as", "division"),
        (Late(gradient=True), r"first in step 3: new, memory\); so early it is usually a division by 0", "may help"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*changes in training")
def test_a_loss_that_is_no_number_is_named_with_what_is_likely(method, said, unsaid):
    stream = toy()
    learner = Learner(MLP(stream.shape, 4), method, memory=2, classes=range(4), epochs=1, batch=2)
    with pytest.raises(everlearn.EverlearnError, match=said) as error:
        learner.update(stream.tasks[0])
    assert unsaid not in str(error.value)


class Later(Late):
    """As above, from one mini-batch on."""

    def select(self, step):
        self.step = step.number + len(step.memory) // 2


@pytest.mark.parametrize(
    ("at", "said"), [(0, r"after 0 samples \(new\); so early"), (4, "after 8 .* smaller learning")]
)
@pytest.mark.filterwarnings("ignore:.*changes in training")
def test_a_mini_batch_whose_loss_is_no_number_is_named_likewise(at, said):
    x, y = toy().tasks[0].train
    learner = Learner(MLP((1, 8, 8), 4), Later(at), memory=20, classes=range(4))
    with pytest.raises(everlearn.EverlearnError, match=said):
        for n in range(0, len(x), 2):
            learner.observe(x[n : n + 2], y[n : n + 2])


# Each as an equation --------------------------------------------------------------------------------------------------
def test_a_decoupled_cross_entropy_is_within_the_new_and_unseen_and_rho_over_t_against_the_old():
    part, new = Decoupled("rho", rho=0.3), batch()
    taught_twice(part)
    within, between = part(new)
    for row, (z, y) in enumerate(zip(new.z.tolist(), new.y.tolist())):
        fresh = sum(math.exp(z[c]) for c in (*NEW, *UNSEEN))
        assert float(within.loss[row]) == pytest.approx(-math.log(math.exp(z[y]) / fresh), abs=1e-12)
        by_hand = 0.3 / 1 * -math.log(fresh / sum(map(math.exp, z)))
        assert float(between.loss[row]) == pytest.approx(by_hand, abs=1e-12)


def test_with_a_share_of_1_the_two_parts_are_the_whole_and_in_the_first_task_the_second_is_0():
    mask, new = torch.tensor([c not in OLD for c in range(C)]), batch()
    whole = cross_entropy(new, mask).loss + apart(new, mask).loss
    assert torch.allclose(whole, cross_entropy(new).loss, atol=1e-12)
    assert apart(new, torch.ones(C, dtype=torch.bool)).loss.tolist() == [0.0] * B


@pytest.mark.parametrize("balance", ["rule", "both"])
def test_the_rule_is_100_over_how_often_a_sample_is_rehearsed(balance):
    part = Decoupled(balance)
    learner, stream = taught_twice(part)
    assert part.share == 1, "2 epochs · 12 samples / memory 8 are 3 rehearsals"
    learner.epochs, learner.tasks = 300, 3
    part.begin_task(learner, stream.tasks[1])
    assert part.share == pytest.approx(100 / (300 * 12 / 8))


PI = [1 / 4] * 2 + [1 / 4 + 1 / 2] * 2 + [0] * 2  # two old classes, two new ones


@pytest.mark.parametrize("part", [Adjusted(), Decoupled("prior"), Decoupled("both")])
def test_a_prior_adjusted_cross_entropy_weighs_each_class_by_its_frequency(part):
    taught_twice(part)
    new = batch()
    terms = [part(new)] if isinstance(part, Adjusted) else part(new)
    whole = sum(term.loss for term in terms)
    for row, (z, y) in enumerate(zip(new.z.tolist(), new.y.tolist())):
        mass = [p * math.exp(value) for p, value in zip(PI, z)]
        assert float(whole[row]) == pytest.approx(-math.log(mass[y] / sum(mass)), abs=1e-12)


def test_distillation_on_new_images_is_lwfs():
    part, new = Distilled(2.0), batch()
    learner, stream = taught_twice(part)
    x = learner.inputs(stream.tasks[1].train[0][:B])
    with learner.net.evaluating():
        (target,) = learner.net.at(learner.net.theta)(x)
    term = part(new._replace(x=x))
    assert term.preserves
    for row, (z, z_old) in enumerate(zip(new.z.tolist(), target.tolist())):
        wanted, own = (softmax([value[c] / 2 for c in OLD]) for value in (z_old, z))
        by_hand = -sum(p * math.log(q) for p, q in zip(wanted, own))
        assert float(term.loss[row]) == pytest.approx(by_hand, abs=1e-12)
    asked = new._replace(x=x, stored={"taught": target[:, list(OLD)].detach()})
    assert torch.equal(part(asked).loss, term.loss), "asked beforehand or not"
    assert torch.equal(distillation(new, target[:, list(OLD)], torch.tensor(OLD), 2.0).loss, term.loss)


def test_backward_feature_projection_and_its_projector_are_their_equations():
    part = Projected(lr=0.1)
    learner, stream = taught_twice(part, width=16)
    x = learner.inputs(stream.tasks[1].train[0][:B])
    features = torch.randn(B, 16, dtype=torch.float64)
    with torch.no_grad():
        part.projector += 0.1 * torch.randn(16, 16, dtype=torch.float64)
    seen = batch()._replace(x=x, features=features)
    A = part.projector.clone().requires_grad_()
    before = part.teacher.features(x)
    loss = (torch.einsum("ij,bj->bi", A, features) - before).square().sum(1) / 16
    assert torch.allclose(part(seen).loss, loss, atol=1e-12)
    (by_hand,) = torch.autograd.grad(loss.mean(), A)
    step = type("", (), {"replay": (batch(), seen)})()
    part.select(step)
    assert torch.equal(step.replay[1].stored["before"], before)
    part.remember(step, type("", (), {"batches": [batch(), step.replay[1]]}))
    assert torch.allclose(part.projector, A.detach() - 0.1 * by_hand, atol=1e-12)


def test_agreement_is_the_squared_distance_of_two_views_probabilities():
    one, other = batch(0), batch(1)
    loss = agreement(one._replace(others=(other,))).loss
    for row in range(B):
        p, q = softmax(one.z[row].tolist()), softmax(other.z[row].tolist())
        assert float(loss[row]) == pytest.approx(sum((a - b) ** 2 for a, b in zip(p, q)), abs=1e-12)


@pytest.mark.parametrize(("average", "older"), [(0.0, True), (0.9, True), (0.9, False), (0.9, "centred")])
def test_refreshed_logits_are_the_tested_networks_of_the_classes_that_were_met(average, older):
    stream = toy(tasks=3)
    network = MLP(stream.shape, C)
    own = dict(memory=8, epochs=2, batch=4, average=average, dtype=torch.float64)
    learner = Learner(network, DERpp(), classes=range(C), inputs=stream.pixels, **own)
    learner.update(stream.tasks[0])
    learner.update(stream.tasks[1])
    learner.seen, before = {*OLD}, learner.memory.stored["logits"].clone()  # as at the end of the second task
    Refreshed(older).end_task(learner, stream.tasks[1])
    x, y = learner.memory.held()
    assert {*y.tolist()} & {*OLD} and {*y.tolist()} & {*NEW}, "or nothing is shown"
    now = [learner.logits(sample[None])[0].tolist() for sample in x]
    olds = [row for row, label in enumerate(y.tolist()) if label in OLD]
    for row, label in enumerate(y.tolist()):
        for c in range(C):
            known = c in (*OLD, *NEW) if label in NEW else older and c in NEW
            expected = now[row][c] if known else float(before[row, c])
            if older == "centred" and label in OLD and c in NEW:
                expected -= sum(now[i][c] - float(before[i, c]) for i in olds) / len(olds)
            assert float(learner.memory.stored["logits"][row, c]) == pytest.approx(expected, abs=1e-12)


# As parts of a method -------------------------------------------------------------------------------------------------
class Whole(DERpp):
    """All of them in one method: DER++ on one draw in two views, and each block there is."""

    names = ("new", "apart", "old heads", "dark", "memory", "agree", "features")
    weights = preset = (1.0, 1.0, 1.0, 0.1, 0.5, 0.1, 0.1)
    draws = (Draw(views=(None, None)),)
    features = True

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.decoupled, self.distilled, self.projected, self.adjusted = (
            Decoupled(),
            Distilled(),
            Projected(),
            Adjusted(),
        )

    def learn(self, new: Batch) -> list[Term]:
        return [*self.decoupled(new), self.distilled(new)]

    def rehearse(self, memory: Batch) -> list[Term]:
        return [distance(memory), self.adjusted(memory.others[0]), agreement(memory), self.projected(memory)]


def learned(capture: bool = False, weighting=None, **settings) -> Learner:
    stream = toy(tasks=3)
    torch.manual_seed(0)
    network = CNN(stream.shape, C)
    own = dict(memory=8, epochs=2, batch=4, lr=0.05, average="task", inputs=stream.pixels) | settings
    learner = Learner(network, Whole(weighting), **own)
    learner.capture = capture
    for task in stream:
        learner.update(task)
    return learner


@pytest.mark.parametrize("weighting", ["fixed", "relation", "consolidate"])
def test_parts_of_a_method_are_weighed_recorded_and_go_on_after_an_interruption(recorded, weighting):  # noqa: F811
    make = lambda: registry_of(weighting)
    one, other = learned(True, make()), learned(False, make())
    assert torch.equal(one.net.theta, other.net.theta) and torch.isfinite(one.net.theta).all()
    stream, states = toy(tasks=3), []
    whole = learner_with(make())
    for task in stream:
        whole.update(task, report=lambda record: states.append(whole.state()))
    for state in states[::2]:
        again = learner_with(make())
        again.restore(state)
        for task in stream.tasks[again.tasks :]:
            again.update(task)
        assert all(torch.equal(value, again.state()[name]) for name, value in whole.state().items())


def registry_of(name: str):
    return everlearn.registry.find("weighting", name)()


def learner_with(weighting) -> Learner:
    torch.manual_seed(0)
    stream = toy(tasks=3)
    own = dict(memory=8, epochs=2, batch=4, lr=0.05, average="task", inputs=stream.pixels)
    return Learner(CNN(stream.shape, C), Whole(weighting), **own)


def test_a_rebound_tensor_of_a_part_is_seen_where_steps_are_recorded(recorded):  # noqa: F811
    class Counting(Decoupled):
        def __call__(self, new):
            self.count = getattr(self, "count", 0) + 1
            return super().__call__(new)

    class Wrong(Whole):
        def __init__(self):
            super().__init__()
            self.decoupled = Counting()

    stream = toy(tasks=3)
    learner = Learner(CNN(stream.shape, C), Wrong(), memory=8, batch=4, inputs=stream.pixels)
    learner.capture = True
    with pytest.raises(everlearn.BadInput, match=r"binds Wrong\.decoupled anew"):
        learner.update(stream.tasks[0])


def test_what_has_a_teacher_lives_on_tasks_and_observes_no_mini_batch():
    stream = toy()
    with pytest.raises(everlearn.BadInput, match="Retain keeps what it needs at the end of a task"):
        learner_of("retain", stream).observe(*stream.tasks[0].train)


def test_the_rule_is_300_over_how_often_the_memory_was_rehearsed_and_never_more_than_1():
    """R = 50 · 10,000 / 200 = 2,500 on CIFAR-10, and 13.5 on digits."""
    images = SimpleNamespace(train=(None, range(10_000)))
    shares = lambda memory, epochs, task: [
        Decoupled().shared(SimpleNamespace(tasks=t, capacity=memory, epochs=epochs), task) for t in range(5)
    ]
    assert shares(200, 50, images) == [0.12, 0.12, 0.06, 0.04, 0.03]
    assert shares(500, 50, images) == [0.3, 0.3, 0.15, 0.1, 0.075]
    assert shares(200, 10, SimpleNamespace(train=(None, range(270)))) == [1.0] * 5


# Retain ---------------------------------------------------------------------------------------------------------------
def retained(
    stream, network: nn.Module, refresh: bool, older: bool | str, averaged: bool, *, memory: int, epochs: int, size: int
) -> dict:
    """Retain as one would write it down, its average too: python lists for a memory, torch's own optimiser."""
    optimiser, held, presented, seen, steps = torch.optim.SGD(network.parameters(), lr=0.05), {}, 0, set(), 0
    prepare = lambda images: (images.double() / 255 - 0.5) / 0.25
    mean = None
    for t, task in enumerate(stream):
        x, y = task.train
        old = sorted(seen)
        fresh = torch.tensor([c not in seen for c in range(stream.classes)])
        teacher = CNN(stream.shape, stream.classes).double()
        teacher.load_state_dict(network.state_dict())
        if averaged and old:
            teacher.load_state_dict(mean, strict=False)
        teacher.eval()
        rho = min(1, 300 / (max(1, t) * epochs * len(x) / memory))
        mix = torch.tensor([(c in task.classes) / 2 + (c in seen or c in task.classes) / (2 * t + 2) for c in range(6)])
        prior = (mix.double() / mix.sum()).log()
        for epoch in range(epochs):
            plan = plan_epoch(
                0,
                t,
                epoch,
                samples=len(x),
                batch=size,
                draws=[Draw()] * 2,
                capacity=memory,
                presented=presented,
                slot_rule=reservoir,
            )
            for row in plan:
                raw, labels = x[row.order], y[row.order]
                z = network(prepare(raw))
                fresh_z = (z + prior).masked_fill(~fresh, -math.inf)
                loss = F.cross_entropy(fresh_z, labels)
                if old:
                    loss = loss + rho * ((z + prior).logsumexp(1) - fresh_z.logsumexp(1)).mean()
                    target = (teacher(prepare(raw)).detach()[:, old] / 2).softmax(1)
                    loss = loss - (target * (z[:, old] / 2).log_softmax(1)).sum(1).mean()
                for number, rows in enumerate(row.draws.split(size)):
                    drawn = [held.get(int(place)) for place in rows]
                    if drawn[0] is None:
                        continue
                    images, targets, logits = (torch.stack(column) for column in zip(*drawn))
                    answer = network(prepare(images))
                    terms = 0.1 * F.mse_loss(answer, logits), 0.5 * F.cross_entropy(answer + prior, targets)
                    loss = loss + terms[number]
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                now = {key: value.clone() for key, value in network.state_dict().items() if value.is_floating_point()}
                d = min(0.9, (1 + steps) / (10 + steps))
                mean = now if mean is None else {key: d * mean[key] + (1 - d) * now[key] for key in now}
                steps += 1
                for position, slot in enumerate(row.slots.tolist()):
                    if slot < memory:
                        held[slot] = (raw[position], labels[position], z[position].detach())
            presented += len(plan) * size
        seen |= set(task.classes)
        tested = CNN(stream.shape, stream.classes).double()
        tested.load_state_dict(mean, strict=False)
        said = {slot: tested.eval()(prepare(image[None]))[0].detach() for slot, (image, *_) in held.items()}
        others = [said[slot] - logits for slot, (_, label, logits) in held.items() if int(label) not in task.classes]
        for slot, (image, label, logits) in held.items() if refresh else ():
            own = int(label) in task.classes
            known = [c in seen if own else bool(older) and c in task.classes for c in range(6)]
            now = said[slot] - (sum(others) / len(others) if older == "centred" and not own else 0)
            held[slot] = (image, label, torch.where(torch.tensor(known), now, logits))
    return mean


@pytest.mark.parametrize(
    ("refresh", "older", "averaged"),
    [(False, True, False), (True, True, False), (True, False, True), (True, "centred", True)],
)
def test_retain_and_its_average_are_as_written_down(refresh, older, averaged):
    stream = toy(tasks=3, each=13)
    fresh = lambda: (torch.manual_seed(0), CNN(stream.shape, stream.classes).double())[1]
    literal, network = fresh(), fresh()
    mean = retained(stream, literal, refresh, older, averaged, memory=7, epochs=3, size=4)
    settings = dict(memory=7, epochs=3, batch=4, lr=0.05, average=0.9, dtype=torch.float64)
    method = Retain(balance="both", refresh=refresh, refresh_older=older, averaged_teacher=averaged)
    learner = Learner(network, method, classes=range(6), inputs=stream.pixels, **settings)
    for task in stream:
        learner.update(task)
    for (key, ours), theirs in zip(network.state_dict().items(), literal.state_dict().values()):
        assert torch.allclose(ours.double(), theirs.double(), rtol=0, atol=1e-11), key
    with learner.sgd.average.applied(learner.net):
        for key, value in network.state_dict().items():
            if key in mean:
                assert torch.allclose(value, mean[key], rtol=0, atol=1e-11), key
    literal.load_state_dict(mean, strict=False)
    x = stream.tasks[1].test[0]
    assert torch.allclose(learner.logits(x), literal.eval()((x.double() / 255 - 0.5) / 0.25), atol=1e-10)


def test_any_method_may_be_tested_averaged_and_training_is_the_same():
    stream, ends = toy(), []
    for average in (None, 0.0, 0.9):
        learner = learner_of("er", stream, average=average)
        for task in stream:
            learner.update(task)
        ends.append((learner.net.theta.detach().clone(), learner.logits(stream.tasks[0].test[0])))
    assert all(torch.equal(a[0], b[0]) for a, b in pairwise(ends))
    assert torch.equal(ends[0][1], ends[1][1]) and not torch.equal(ends[0][1], ends[2][1])


def test_an_average_is_a_setting_of_the_training_and_older_runs_keep_their_hashes():
    plain, told = Experiment.of("er"), Experiment.of("er", average=0)
    assert plain == told and "average" not in plain.document()["training"]
    for given, kept in (("0.99", 0.99), ("task", "task")):
        assert Experiment.of("er", average=given).document()["training"]["average"] == kept
    own, off = Experiment.of("retain"), Experiment.of("retain", average=0)
    assert (own.training.average, off.training.average) == (0.999, 0.0)
    for experiment in (plain, own, off):
        assert Experiment.parse(experiment.document()) == experiment
    with pytest.raises(everlearn.BadInput, match=r"average 1\.0 must be a number below 1"):
        Training(average=1.0)
    with pytest.raises(everlearn.BadInput, match="average 'tasks' is neither 'task'"):
        Experiment.of("er", average="tasks")


def test_an_option_that_came_later_leaves_older_runs_their_names_and_what_they_mean():
    given = dict(memory=500, precision="bfloat16", network="resnet18")
    first = dict(refresh=False, refresh_older=True, averaged_teacher=False)
    second = dict(refresh=True, refresh_older=False, averaged_teacher=True)
    before, between, now = (Experiment.of("retain", "cifar10", **given, **own) for own in (first, second, {}))
    names = ("cifar10-retain-m500-e50-s0-5479bdb6", "cifar10-retain-m500-e50-s0-164c9f20")
    assert (before.name, between.name) == names, "as in results/cifar10"
    assert not {*first} & {*before.document()["method"]["options"]} and now not in (before, between)
    for experiment, own in ((before, first), (between, second), (now, second | dict(refresh_older="centred"))):
        again = Experiment.parse(experiment.document())
        built = vars(again.build())
        assert again == experiment and {name: built[name] for name in own} == own
        assert {name: again.settings()[name] for name in own} == own


def test_a_wrong_word_for_what_is_refreshed_is_told_all_that_is_right():
    with pytest.raises(everlearn.BadInput, match="refresh_older 'centered' is not true or false or 'centred'"):
        Experiment.of("retain", refresh_older="centered")


def test_an_average_over_half_a_task_knows_how_many_steps_the_task_has():
    stream, decays = toy(tasks=2, each=13), []
    learner = learner_of("er", stream, epochs=3, batch=4, average="task")
    for task, samples in zip(stream, (13, 9)):
        learner.update(*(half[:samples] for half in task.train))
        decays.append(learner.sgd.average.decay)
    assert decays == [12 / 14, 9 / 11]  # of three epochs of four and of three steps


def test_an_exported_network_is_the_one_that_is_tested(tmp_path):
    stream = toy()
    learner = learner_of("retain", stream, average=0.9)
    for task in stream:
        learner.update(task)
    learner.export(tmp_path / "network.pt")
    network = CNN(stream.shape, stream.classes)
    network.load_state_dict(torch.load(tmp_path / "network.pt"))
    x = stream.tasks[0].test[0]
    assert torch.equal(network.eval()(stream.pixels(x)), learner.logits(x))


# What the relation's outer loss is on ---------------------------------------------------------------------------------
def test_a_relation_may_learn_some_weights_and_leave_the_others_at_their_preset():
    weighting = Relation(weights=(1, 0.3, 0.1, 0.2, 0.5), learned=("apart",))
    stream = toy(tasks=2, each=40)
    learner = Learner(
        CNN(stream.shape, 4),
        Retain(weighting, balance="plain"),
        classes=range(4),
        inputs=stream.pixels,
        memory=8,
        epochs=2,
        batch=4,
    )
    kept = []
    for task in stream:
        learner.update(task, report=kept.append)
    means = {name: weights["mean"] for name, weights in kept[-1]["weights"].items()}
    assert means.pop("apart") not in (0.3, 0.5)
    assert means == {"new": 1.0, "old heads": pytest.approx(0.1), "dark": pytest.approx(0.2), "memory": 0.5}
    with pytest.raises(everlearn.BadInput, match="unknown term of DERpp 'apart'"):
        Experiment.of("der++", weighting="relation", learned="apart")
    experiment = Experiment.of("der++", weighting="relation", learned="new,dark")
    assert experiment.weighting["learned"] == ("new", "dark") and experiment == Experiment.parse(experiment.document())


def test_the_derivative_by_weights_that_are_learned_is_that_of_the_unrolled_step():
    """φ's gradient through the learned columns alone, against autograd through the whole step in float64."""
    torch.manual_seed(0)
    weighting, k = Relation(weights=(1, 0.2, 0.5), learned=("new",)), 3
    method = DERpp(weighting)
    stream = toy()
    network = MLP(stream.shape, 4, hidden=8)
    learner = Learner(network, method, classes=range(4), inputs=stream.pixels, memory=8, batch=4, dtype=torch.float64)
    losses, norms = torch.rand(4, k, dtype=torch.float64), torch.rand(4, k, dtype=torch.float64)
    terms = type(
        "", (), {"losses": losses, "batches": [Batch(losses, losses, z) for z in norms.T[..., None]], "size": 4}
    )
    weights = weighting.weigh(terms)
    assert weights[:, 1:].tolist() == [[0.2, 0.5]] * 4
    G = torch.rand(4, k, dtype=torch.float64)
    (ours,) = torch.autograd.grad(weights, weighting.phi, G, retain_graph=True)
    (by_hand,) = torch.autograd.grad((weights[:, 0] * G[:, 0]).sum(), weighting.phi)
    assert torch.equal(ours, by_hand) and learner.tasks == 0


def test_in_turns_a_fifth_of_the_memory_is_held_out_and_every_row_has_its_turn():
    turns = []
    for epoch in range(5):
        plan = plan_epoch(
            0,
            1,
            epoch,
            samples=400,
            batch=8,
            draws=outer.drawn((Draw(),), 1, Relation.POOLS["turns"], "usual"),
            capacity=40,
            presented=100,
            slot_rule=reservoir,
        )
        inner, held = (set(torch.cat([row.draws.split(8)[part] for row in plan]).tolist()) for part in (0, 1))
        assert held == {row for row in range(40) if row % 5 == epoch} and inner == set(range(40)) - held
        turns += held
    assert sorted(turns) == list(range(40))


def test_a_memory_too_small_for_turns_never_draws_what_is_not_there():
    for epoch in range(5):
        settings = dict(samples=12, batch=2, capacity=8, presented=0, slot_rule=reservoir)
        plan = plan_epoch(0, 0, epoch, draws=outer.drawn((Draw(),), 1, Relation.POOLS["turns"], "usual"), **settings)
        for step, row in enumerate(plan[2:], 2):
            assert max(row.draws.tolist()) < min(8, 2 * step)


def test_a_mixed_outer_loss_is_that_of_both_halves():
    torch.manual_seed(0)
    method, weighting, linear = DERpp(), Relation(outer_views="mixed"), nn.Linear(7, C).double()
    make = lambda: Batch(
        torch.randn(B, 7, dtype=torch.float64),
        torch.randint(C, (B,)),
        stored={"logits": torch.randn(B, C, dtype=torch.float64)},
    )
    dark, labelled = make(), make()
    linear.requires_grad_(False)
    ours = weighting.outer(method, lambda *xs, there: [linear(x) for x in xs], (dark, labelled))
    by_hand = 0.0
    for row in range(B):
        for one in (row, row - 1):
            z = linear((dark.x[row] + dark.x[row - 1]) / 2)
            by_hand += 0.5 * float((z - dark.stored["logits"][one]).square().mean()) / B
            z = linear((labelled.x[row] + labelled.x[row - 1]) / 2)
            by_hand += 0.5 * float(-z.log_softmax(0)[labelled.y[one]]) / B
    assert float(ours) == pytest.approx(by_hand, abs=1e-12)


def test_a_strong_view_leaves_a_square_out_and_changes_every_sample_by_itself():
    x = torch.ones(6, 2, 8, 10)
    seen = outer.strong(x)
    left_out = (seen == 0).all(dim=1)
    assert left_out.sum(dim=(1, 2)).tolist() == [4 * 5] * 6 and len(set(seen.amax(dim=(1, 2, 3)).tolist())) == 6
    assert outer.strong(torch.ones(3, 4)).shape == (3, 4)
    draws = Relation(outer_views="strong").draws((Draw(), Draw(views=(None, None))))
    assert [draw.views for draw in draws] == [(None,), (None, None), (outer.strong,), (outer.strong,) * 2]


@pytest.mark.parametrize("way", ["forward", "double-backward"])
def test_new_samples_have_their_share_of_the_outer_loss(way):
    """∂outer/∂w for outer = (1 − s) L(memory) + s CE(new), s = 1/(t + 1), by double backward through the step."""
    stream, seen = toy(), []
    weighting = Relation(outer_new=True, interval=1, warmup=0, hypergradient=way)
    settings = dict(classes=range(4), inputs=stream.pixels, memory=8, batch=4, epochs=1, dtype=torch.float64)
    learner = Learner(MLP(stream.shape, 4, hidden=8), everlearn.ER(weighting), **settings)
    learner.update(stream.tasks[0])
    learn = weighting._learn

    def watched(method, step, terms, weights, inner, held, stepped):
        net, lr = step.net, step.sgd.lr
        theta, w = net.theta.detach().requires_grad_(), weights.detach().requires_grad_()
        losses = method.terms(net.at(theta, virtual=True), step.new, inner).losses
        (gradient,) = torch.autograd.grad((w * losses).sum() / len(w), theta, create_graph=True)
        bound = net.at(theta - lr * gradient, virtual=True)
        new, memory = (cross_entropy(part).masked().mean() for part in seen_by(bound, step.new, held[0]))
        (by_hand,) = torch.autograd.grad(0.5 * memory + 0.5 * new, w)
        learn(method, step, terms, weights, inner, held, stepped)
        seen.append((by_hand, step.tape.last()["G"] * (-lr / len(w))))

    weighting._learn = watched
    learner.update(stream.tasks[1])
    assert len(seen) == 3 and all(torch.allclose(*pair, rtol=0, atol=1e-12) for pair in seen)


@pytest.mark.parametrize(
    "options", [dict(outer_rows="turns"), dict(outer_views="strong"), dict(outer_views="mixed"), dict(outer_new=True)]
)
def test_each_outer_loss_learns_is_recorded_and_written_down_only_where_it_is_chosen(recorded, options):  # noqa: F811
    stream, ends = toy(), []
    for capture in (True, False):
        learner = learner_of("rder", stream, options=options, epochs=4)
        learner.capture = capture
        for task in stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)
    (name,) = options
    plain, own = Experiment.of("rder"), Experiment.of("rder", **options)
    assert name not in dict(plain.weighting.options) and own.weighting[name] == options[name]


def test_weightings_that_say_which_rows_take_no_turns():
    for name in ("split", "balanced"):
        with pytest.raises(everlearn.BadInput, match="unknown outer_rows 'turns'"):
            built(f"der+++{name}", outer_rows="turns")


@pytest.mark.parametrize("balance", ["rule", "prior", "both", "rho", "plain"])
def test_classes_that_come_again_are_new_again(balance):
    stream = toy(tasks=2, each=12)
    learner = Learner(CNN(stream.shape, 4), built("retain", balance=balance), memory=8, epochs=1, batch=4, lr=0.01)
    for task in (*stream, stream.tasks[0]):
        learner.update(task)
    assert learner.method.decoupled.fresh.tolist() == [True, True, False, False]
    assert torch.isfinite(learner.net.theta).all()
