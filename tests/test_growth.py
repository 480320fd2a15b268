"""A head that grows: whatever the method and weighting, nobody needs to know how many classes there will be."""

import copy
import json

import pytest
import torch
from conftest import built, toy
from test_contract import TABLE, tasks
from torch import nn
from torch.nn import functional as F

import everlearn
from everlearn import BadInput, Learner, Pixels
from everlearn.core import theta
from everlearn.core.layout import Layout
from everlearn.core.memory import Memory
from everlearn.core.plan import Draw, plan_epoch, reservoir
from everlearn.core.state import Stateful, as_bytes, from_bytes
from everlearn.learner import growth
from everlearn.learner.growth import head_of, reshape
from everlearn.networks import MLP, build

STREAM = toy(tasks=3, each=8, side=4)
ENGINE = dict(momentum=0.5, weight_decay=1e-3)


def network(outputs: int = 6, seed: int = 0) -> MLP:
    """The same but for the outputs beyond the first two, however many there are."""
    torch.manual_seed(seed)
    made = MLP(STREAM.shape, 2, hidden=16)
    wide = nn.Linear(16, outputs)
    with torch.no_grad():
        for mine, own in zip(wide.parameters(), made.head.parameters()):
            mine[:2] = own[:outputs]
    made.head = wide
    return made


def learner_of(name: str, outputs: int = 6, seed: int = 0, options={}, **settings) -> Learner:
    settings = dict(memory=8, epochs=2, batch=4, lr=0.05, inputs=STREAM.pixels) | ENGINE | settings
    return Learner(network(outputs, seed), built(name, **options), **settings)


def same(one: dict, other: dict) -> bool:
    """The same names and bits; iCaRL's mean of a class not met is not a number."""
    equal = lambda a, b: a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
    return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)


def told(state: dict) -> tuple[dict, dict]:
    """A state without what it says of the classes to come, and that."""
    known = json.loads(from_bytes(state["learner.known"]))
    return {key: tensor for key, tensor in state.items() if key != "learner.known"}, known


# Over every method and weighting --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", TABLE)
def test_how_many_classes_there_will_be_need_not_be_known_nor_have_outputs(name):
    """Announced or not, with a head too wide, too narrow or just right for what comes: the same bits of everything."""
    ends = []
    narrow = 9 if name == "joint" else 2  # its first task needs outputs that a narrow head does not have
    for outputs, classes in ((9, 6), (narrow, None)):
        learner, sizes = learner_of(name, outputs, classes=classes), []
        for task in tasks(learner, STREAM):
            learner.update(task)
            sizes.append((learner.classes, learner.net.module.head.out_features))
        assert sizes == ([(6, 6)] if learner.method.merges else [(2, 2), (4, 4), (6, 6)])
        ends.append((learner.state(), learner.evaluate(STREAM)))
    ((state, known), accuracies), ((other, open_), seen) = [(told(state), seen) for state, seen in ends]
    assert (known["labels"].pop("limit"), open_["labels"].pop("limit")) == (6, None) and known == open_
    assert same(state, other) and seen == accuracies


@pytest.mark.parametrize("name", TABLE)
def test_saved_and_loaded_between_tasks_is_kept_to_the_bit(name, tmp_path):
    rows = "balanced:6" if name in ("er", "der", "rder", "er+consolidate", "der+++balanced") else 6
    kept, moved = learner_of(name, memory=rows), learner_of(name, memory=rows)
    for number, task in enumerate(tasks(kept, STREAM)):
        kept.update(task)
        moved.update(task)
        moved.save(tmp_path)
        moved = Learner.load(tmp_path, network(outputs=number + 1, seed=7))
        assert same(kept.state(), moved.state())
    assert kept.evaluate(STREAM) == moved.evaluate(STREAM)
    assert type(moved.method) is type(kept.method) and moved.training == kept.training


@pytest.mark.parametrize("name", TABLE)
def test_left_in_the_middle_of_a_task_that_grew_the_head_it_ends_to_the_same_bits(name):
    whole, left = learner_of(name, epochs=3), []
    for task in tasks(whole, STREAM):
        whole.update(task, on_epoch=lambda learner, record: left.append(learner.state()))
    again = learner_of(name, outputs=3, epochs=3, seed=5)
    for state in left[1::3][-2:]:  # after the second epoch of the last two tasks
        again.restore(state)
        for task in tasks(again, STREAM)[again.tasks :]:
            again.update(task)
        assert same(again.state(), whole.state())


@pytest.mark.parametrize("name", ["der++", "si", "oewc", "rder"])
def test_a_state_made_with_weights_laid_out_as_on_a_gpu_goes_on_where_they_are_not(name, monkeypatch):
    settings = dict(memory=8, epochs=2, batch=4, lr=0.02, momentum=0.5, inputs=STREAM.pixels, dtype=torch.float64)
    as_on_a_gpu = lambda *given, **_: Layout(*given, channels_last=True)
    make = lambda: Learner(build("cnn", STREAM.shape, 6, 0), built(name), **settings)
    other = make()
    with monkeypatch.context() as patch:
        patch.setattr(theta, "Layout", as_on_a_gpu)
        one = make().update(STREAM.tasks[0])
    plain = one.net.plain(one.net.theta.detach())
    assert not torch.equal(plain, one.net.theta) and torch.equal(one.net.laid_out(plain), one.net.theta)
    other.restore(one.state())
    assert torch.equal(other.net.theta, plain)
    with monkeypatch.context() as patch:
        patch.setattr(theta, "Layout", as_on_a_gpu)
        one.update(STREAM.tasks[1])
    other.update(STREAM.tasks[1])
    assert torch.allclose(one.net.plain(one.net.theta), other.net.theta, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["er", "rder", "icarl", "si"])
def test_a_run_over_a_stream_is_a_learner_taught_and_tested(name, tmp_path):
    settings = dict(tasks=3, classes=["0", "1", "2", "3", "4", "5"], epochs=2, batch=64, memory=20, lr=0.05)
    result = everlearn.run(name, out=tmp_path, device="cpu", **settings)
    stream = everlearn.load("digits", tasks=3, classes=settings["classes"])
    torch.manual_seed(0)
    experiment = everlearn.Experiment.read(result["experiment"])
    learner = Learner(
        everlearn.networks.build("mlp", stream.shape, 6, 0),
        experiment.build(),
        classes=range(6),
        memory=20,
        training=experiment.training,
        inputs=stream.pixels,
    )
    rows = []
    for task in stream:
        learner.update(task)
        rows.append(learner.evaluate(stream))
    assert result["class_il"]["matrix"] == [row.class_il for row in rows]
    assert result["task_il"]["matrix"] == [row.task_il for row in rows]
    (folder,) = {path.parent for path in tmp_path.rglob("learner.safetensors")}
    (state, _), (kept, known) = told(learner.state()), told(Learner.load(folder).state())
    assert same(state, kept) and known["labels"]["names"] == settings["classes"]


# Against plain loops, in float64 --------------------------------------------------------------------------------------
ROWS, BATCH, LR = 6, 4, 0.05


class ByHand:
    """A network with outputs for all classes, new ones 0 until they are met, of which only those met are looked at."""

    def __init__(self, momentum: float, decay: float):
        self.net = network(2).double()
        self.net.head = nn.Linear(16, 6).double()
        with torch.no_grad():
            for wide, own in zip(self.net.head.parameters(), network(2).double().head.parameters()):
                wide.zero_()[:2] = own
        self.momentum, self.decay, self.met = momentum, decay, 0
        self.weights = list(self.net.parameters())
        self.velocity = [torch.zeros_like(weight) for weight in self.weights]
        self.x, self.y, self.z = [None] * ROWS, [None] * ROWS, [None] * ROWS  # the memory
        self.presented = 0

    def asked(self, x) -> torch.Tensor:
        return self.net((x.double() / 255 - 0.5) / 0.25)[:, : self.met]

    def step(self, gradients) -> None:
        with torch.no_grad():
            for weight, gradient, velocity in zip(self.weights, gradients, self.velocity):
                velocity.copy_(gradient + self.decay * weight + self.momentum * velocity)
                weight -= LR * velocity

    def rehearsed(self, rows, loss) -> torch.Tensor:
        """The mean over the drawn rows of a loss; one that holds no sample yet counts 0."""
        return sum(loss(row) for row in rows if self.x[row] is not None) / len(rows) if len(rows) else 0.0

    def labelled(self, row) -> torch.Tensor:
        return F.cross_entropy(self.asked(self.x[row][None]), self.y[row][None])

    def dark(self, row) -> torch.Tensor:
        then = torch.zeros(self.met, dtype=torch.float64)  # what was not met then is 0
        then[: len(self.z[row])] = self.z[row]
        return ((self.asked(self.x[row][None])[0] - then) ** 2).sum() / self.met

    def learn(self, task: int, x, y, draws: int, loss, epochs: int = 2) -> None:
        before, self.met = self.met, 2 * (task + 1)
        self.begin(before)
        for epoch in range(epochs):
            drawn = dict(capacity=ROWS, presented=self.presented, slot_rule=reservoir) if draws else {}
            plan = plan_epoch(0, task, epoch, samples=len(x), batch=BATCH, draws=[Draw()] * draws, **drawn)
            for order, rows, slots, _ in plan:
                z = self.asked(x[order])
                value = loss(self, z, x[order], y[order], [] if rows is None else rows.split(BATCH))
                gradients = torch.autograd.grad(value, self.weights)
                self.step(self.way(gradients))
                for n, slot in enumerate([] if slots is None else slots.tolist()):
                    if slot < ROWS:
                        self.x[slot], self.y[slot], self.z[slot] = x[order[n]], y[order[n]], z[n].detach()
                self.presented += BATCH
        self.end()

    def begin(self, before: int) -> None: ...

    def way(self, gradients):
        return gradients

    def end(self) -> None: ...


class Taught(ByHand):
    """LwF: the network as it was before this task, and its classes."""

    def begin(self, before):
        self.old, self.teacher = before, copy.deepcopy(self.net)

    def then(self, x) -> torch.Tensor:
        return self.teacher((x.double() / 255 - 0.5) / 0.25)[:, : self.old].detach()


class Important(ByHand):
    """SI: a pull of each weight to where it was, by how much it mattered."""

    importance = path = anchor = None

    def begin(self, before):
        if self.anchor is None:
            self.importance = [torch.zeros_like(weight) for weight in self.weights]
            self.path = [torch.zeros_like(weight) for weight in self.weights]
            self.anchor = [weight.detach().clone() for weight in self.weights]

    def way(self, gradients):
        pulled = [
            gradient + 2 * 0.5 * importance * (weight.detach() - anchor)
            for gradient, importance, weight, anchor in zip(gradients, self.importance, self.weights, self.anchor)
        ]
        for path, gradient, way in zip(self.path, gradients, pulled):
            path += LR * gradient * way
        return pulled

    def end(self):
        for n, weight in enumerate(self.weights):
            moved = weight.detach() - self.anchor[n]
            self.importance[n] += self.path[n].clamp(min=0) / (moved**2 + 1.0)
            self.anchor[n], self.path[n] = weight.detach().clone(), torch.zeros_like(weight)


def er(by, z, x, y, drawn):
    return F.cross_entropy(z, y) + by.rehearsed(drawn[0], by.labelled)


def derpp(by, z, x, y, drawn):
    return F.cross_entropy(z, y) + 0.2 * by.rehearsed(drawn[0], by.dark) + 0.5 * by.rehearsed(drawn[1], by.labelled)


def er_ace(by, z, x, y, drawn):
    own = torch.tensor([c in y.tolist() for c in range(by.met)])  # no class without samples has an output
    return F.cross_entropy(z.masked_fill(~own, -torch.inf), y) + by.rehearsed(drawn[0], by.labelled)


def lwf(by, z, x, y, drawn):
    if not by.old:
        return F.cross_entropy(z, y)
    wanted, now = (by.then(x) / 2).softmax(dim=1), (z[:, : by.old] / 2).log_softmax(dim=1)
    return F.cross_entropy(z[:, by.old :], y - by.old) - (wanted * now).sum() / len(y)  # the new head alone


def si(by, z, x, y, drawn):
    return F.cross_entropy(z, y)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.7, 1e-2)])
@pytest.mark.parametrize(
    ("name", "kind", "draws", "loss"),
    [
        ("er", ByHand, 1, er),
        ("der++", ByHand, 2, derpp),
        ("er-ace", ByHand, 1, er_ace),
        ("lwf", Taught, 0, lwf),
        ("si", Important, 0, si),
    ],
)
def test_a_head_that_grows_is_a_wide_one_of_which_the_classes_met_are_looked_at(
    name, kind, draws, loss, momentum, decay
):
    settings = dict(memory=ROWS, lr=LR, momentum=momentum, weight_decay=decay, dtype=torch.float64)
    learner, by = learner_of(name, outputs=9, **settings), kind(momentum, decay)
    near = lambda one, other: torch.allclose(one, other, rtol=0, atol=1e-9)
    for number, task in enumerate(STREAM):
        learner.update(task)
        by.learn(number, *task.train, draws, loss)
        grown, met = learner.net.module, 2 * (number + 1)
        assert grown.head.weight.shape == (met, 16) and learner.classes == met
        assert near(grown.head.weight, by.net.head.weight[:met]) and near(grown.head.bias, by.net.head.bias[:met])
        assert all(near(one, other) for one, other in zip(grown.body.parameters(), by.net.body.parameters()))
        assert not by.net.head.weight[met:].any() and not by.net.head.bias[met:].any()
        if draws:
            assert torch.equal(learner.memory.x[:ROWS], torch.stack(by.x)) and learner.kept() == count(by.y, met)
        if name == "der++":
            recorded = torch.zeros(ROWS, met, dtype=torch.float64)
            for row, z in zip(recorded, by.z):
                row[: len(z)] = z
            assert near(learner.memory.stored["logits"][:ROWS], recorded)
        if momentum:
            velocity = [whole[:met] if len(whole) == 6 else whole for whole in by.velocity]
            assert near(learner.sgd.velocity, torch.cat([part.flatten() for part in velocity]))


def count(labels, classes: int) -> dict:
    return {c: labels.count(c) for c in range(classes)}


# What could go wrong --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["rer", "er+vanilla", "gss"])
def test_what_is_as_long_as_the_networks_vector_by_chance_does_not_grow_with_it(name):
    """The weights of the Relation Replay Net, its Adam, or GSS's scores: as many as the network of two classes has."""
    size = learner_of(name).method.weighting.rrn.theta.numel() if name != "gss" else 34
    inputs = lambda x: x.flatten(1)[:, :1].repeat(1, size // 2 - 1).double() / 255
    learner = Learner(
        nn.Linear(size // 2 - 1, 2), built(name), memory=33, epochs=2, batch=4, inputs=inputs, dtype=torch.float64
    )
    for number, task in enumerate(STREAM, start=1):
        learner.update(task)
        assert learner.net.theta.numel() == number * size
    held = learner.method.scores if name == "gss" else learner.method.weighting.adam.mean
    assert held.shape == (size,) and torch.isfinite(held).all()


@pytest.mark.filterwarnings("error::everlearn.errors.Notice")  # nothing is lost, so nothing is said to be
@pytest.mark.parametrize("name", ["er", "der++", "icarl", "si", "gss"])
@pytest.mark.parametrize("classes", [None, range(2)])
def test_a_state_from_before_the_head_grew_takes_all_of_it_back(name, classes):
    learner, states = learner_of(name, outputs=2, classes=classes), []
    for task in STREAM:
        states.append(learner.state())
        learner.update(task)
    whole = learner.state()
    for tasks_learned, state in enumerate(states):
        learner.restore(state)
        assert learner.tasks == tasks_learned and same(state, learner.state())
        assert learner.net.module.head.out_features == max(2, 2 * tasks_learned)
        for task in STREAM.tasks[tasks_learned:]:
            learner.update(task)
        assert same(whole, learner.state())


def test_layers_frozen_after_the_learner_was_made_are_refused_before_the_head_grows():
    learner = learner_of("er")
    learner.update(STREAM.tasks[0])
    before = learner.state()
    learner.net.module.body.requires_grad_(False)
    with pytest.raises(everlearn.BadInput, match="frozen or unfrozen after the learner was made"):
        learner.update(STREAM.tasks[1])
    learner.net.module.body.requires_grad_(True)
    assert same(before, learner.state())
    learner.update(STREAM.tasks[1])
    assert learner.classes == 4


def test_what_a_state_cannot_be_restored_into_is_as_it_was_before():
    learner = learner_of("der++")
    learner.update(STREAM.tasks[0])
    before, head = learner.state(), learner.net.module.head.weight
    other = Learner(nn.Sequential(nn.Flatten(), nn.Linear(16, 9)), "der++", memory=8, epochs=2, batch=4)
    for task in STREAM:
        other.update(task)
    with pytest.raises(everlearn.BadInput, match="this state is of another network"):
        learner.restore(other.state())
    assert same(before, learner.state()) and learner.net.module.head.weight is head
    learner.update(STREAM.tasks[1])
    assert learner.classes_.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(validation=1.5), "leaves none to learn from"),
        (dict(validation=([], [])), "no sample"),
        (dict(patience=2), "patience needs data to test on"),
    ],
)
def test_classes_of_a_task_that_is_refused_get_no_outputs(given, words):
    for taught in (0, 1):
        learner = learner_of("der++", outputs=9)
        for task in STREAM.tasks[:taught]:
            learner.update(task)
        before = learner.state()
        with pytest.raises(everlearn.BadInput, match=words):
            learner.update(STREAM.tasks[taught], **given)
        assert same(before, learner.state()) and learner.net.module.head.out_features == (2 if taught else 9)
        whole = learner_of("der++", outputs=9)
        for task in STREAM:
            whole.update(task)
        for task in STREAM.tasks[taught:]:
            learner.update(task)
        assert same(whole.state(), learner.state()), "and it goes on as if nothing had been said"


def test_a_method_that_refuses_a_task_has_not_begun_it():
    learner = learner_of("icarl", memory=3)
    learner.update(STREAM.tasks[0])
    before = learner.state()
    with pytest.raises(everlearn.BadInput, match="a memory of 3 is too small for 4"):
        learner.update(STREAM.tasks[1])
    assert same(before, {**learner.state(), **{name: before[name] for name in ("learner.task", "learner.trained")}})
    learner.update(STREAM.tasks[0])
    assert learner.tasks == 2 and learner.classes == 2


def test_all_classes_that_were_named_compete_from_the_start_and_one_more_may_still_come():
    listed, counted = learner_of("er", outputs=4, classes=range(4)), learner_of("er", outputs=4, classes=4)
    listed.update(STREAM.tasks[0])
    assert listed.classes_.tolist() == [0, 1, 2, 3] and listed.predict_proba(STREAM.tasks[0].test[0]).shape[1] == 4
    counted.update(STREAM.tasks[0])
    assert counted.classes_.tolist() == [0, 1]
    listed.update(STREAM.tasks[2])
    assert listed.classes_.tolist() == [0, 1, 2, 3, 4, 5] and listed.net.module.head.out_features == 6


class Lasting(everlearn.ER):
    """With a teacher from the first task on, an average of the network, and a mask of its weights."""

    teacher = mask = None

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.average = everlearn.Average(0.9)

    def begin_task(self, learner, task):
        if self.teacher is None:
            self.teacher, self.mask = everlearn.Snapshot(learner.net), learner.net.theta > 0

    def after_step(self, step, gradient, direction):
        self.average.update(step.net)

    def grow(self, learner):
        self.grown = [*getattr(self, "grown", []), learner.classes]


def test_what_a_method_of_ones_own_keeps_of_the_network_follows_its_head():
    learner = Learner(network(6), Lasting(), memory=8, epochs=2, batch=4, inputs=STREAM.pixels)
    x = STREAM.pixels(STREAM.tasks[0].test[0])
    for number, task in enumerate(STREAM, start=1):
        learner.update(task)
        if number == 1:
            first, mask = learner.method.teacher(x), learner.method.mask
    answer = learner.method.teacher(x)
    assert answer.shape[1] == 6 and not answer[:, 2:].any()
    assert torch.allclose(answer[:, :2], first, rtol=0, atol=1e-6)  # a wider head may sum in another order
    assert learner.method.mask.dtype == torch.bool and learner.method.mask.sum() == mask.sum()
    assert learner.method.average.mean.shape == learner.net.theta.shape and learner.method.grown == [4, 6]
    with learner.method.average.applied(learner.net):
        assert learner.logits(STREAM.tasks[0].test[0]).shape[1] == 6


@pytest.mark.parametrize(
    "one, other, words",
    [
        (["a", "b"], ["b", "a"], "this state's classes are a, b, and the learner was told b, a"),
        (["a", "b"], range(2), "the learner was told 0, 1"),
        (None, ["a", "b"], "this state's classes are any that come, and the learner was told a, b"),
        (4, 3, "this state's classes are up to 4, and the learner was told up to 3"),
        (["a", "b"], ["a", "b"], None),
        (4, 4, None),
        (["a", "b"], None, None),  # nobody has said otherwise: they are the state's
    ],
)
def test_a_state_of_other_classes_is_refused(one, other, words):
    make = lambda classes: Learner(nn.Linear(3, 2), "er", classes=classes, memory=4, epochs=1)
    state, learner = make(one).state(), make(other)
    if words is None:
        return learner.restore(state)
    with pytest.raises(BadInput, match=words):
        learner.restore(state)
    assert learner.labels.names == list(other if not isinstance(other, int) else [])


@pytest.mark.parametrize("inputs", (Pixels(mean=(0.5,)), lambda x: x.float() / 2))
def test_a_state_made_with_other_inputs_is_refused(inputs):
    make = lambda inputs: Learner(nn.Linear(4, 2), "er", classes=2, memory=4, inputs=inputs)
    with pytest.raises(BadInput, match="in another way than `inputs` says now"):
        make(Pixels()).restore(make(inputs).state())
    make(inputs).restore(make(inputs).state())


# Parts ----------------------------------------------------------------------------------------------------------------
class Answers(nn.Module):
    """A network whose answer is one of its layers', or none's."""

    def __init__(self, answer: str, head: bool = False):
        super().__init__()
        self.first, self.second, self.answer = nn.Linear(3, 4), nn.Linear(4, 4), answer
        if head:
            self.head = self.first

    def forward(self, x):
        one = self.first(x)
        two = self.second(one)
        return {"first": one, "second": two, "sum": one + two, "cut": two[:, :2]}[self.answer]


def test_the_head_is_the_linear_layer_whose_answer_is_the_networks():
    x = torch.zeros(2, 3)
    found = lambda network: head_of(theta.MainNet(network), x)
    assert found(Answers("second")) == "second" and found(Answers("first", head=True)) == "first"
    assert found(nn.Linear(3, 2)) == "" and found(nn.Sequential(nn.Linear(3, 2))) == "0"
    for network in (Answers("cut"), nn.Sequential(nn.Flatten(), nn.ReLU(), Lone())):
        with pytest.raises(BadInput, match="the network's answer is not a plain linear layer's, so it cannot grow"):
            found(network)
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))
    with pytest.raises(BadInput, match="not a plain linear layer's"):
        found(normed)
    frozen = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    frozen[1].bias.requires_grad_(False)
    with pytest.raises(BadInput, match="last layer, 1, is frozen, so new classes cannot be learned"):
        found(frozen)
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].bias = tied[0].bias
    with pytest.raises(BadInput, match="last layer, 1, shares its weights with another, and cannot grow"):
        found(tied)


class Lone(nn.Module):
    """A parameter, and no linear layer."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale


def test_looking_for_the_head_leaves_the_network_as_it_was():
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).train()
    net = theta.MainNet(network)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert head_of(net, torch.randn(2, 3)) == "3"
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert network[1].training and not any(m._forward_hooks for m in network.modules())
    assert isinstance(network[3].weight, nn.Parameter), "it is at rest"


def test_what_is_kept_beside_samples_takes_other_shapes_and_new_places_hold_0():
    memory = Memory(2, torch.zeros(1, 2), {"a": (2,), "b": (2, 2)})
    memory.stored["a"] += 1
    memory.stored["b"] += 2
    kept = memory.stored["a"]
    reshape(memory, {"a": (2,), "b": (3, 1)})
    assert memory.stored["a"] is kept, "the same shape is the same tensor"
    assert memory.stored["b"][0].tolist() == [[2], [2], [0]] and memory.stored["b"].shape == (3, 3, 1)
    reshape(memory, {"a": (1,)})
    assert memory.stored["a"].tolist() == [[1]] * 3


class Holder(Stateful):
    apart = ("scores",)

    def __init__(self, like, inner=None):
        self.like, self.scores, self.short = torch.ones(like), torch.ones(like), torch.ones(1)
        self.inner, self.number = inner, like


class Further(Holder):
    apart = ("more",)

    def __init__(self, like, inner=None):
        super().__init__(like, inner)
        self.more = torch.ones(like)


def test_tensors_like_theta_follow_but_for_those_set_apart():
    of = Further(6, Holder(6))
    shape = torch.Size([6])
    assert growth.like_theta(of, shape) == ["like", "inner.like"] and growth.like_theta(of, torch.Size([5])) == []
    growth._follow(of, shape, lambda vector: torch.cat([vector, torch.zeros(2)]), "", 3)
    assert [len(t) for t in (of.like, of.scores, of.more, of.short, of.inner.like, of.inner.scores)] == [
        8,
        6,
        6,
        1,
        8,
        6,
    ]
    assert of.like[6:].tolist() == [0, 0]


@pytest.mark.parametrize("given", [None, Pixels((0.5,), (0.25,))])
def test_a_state_from_before_the_first_sample_takes_back_what_inputs_were_found(given):
    make = lambda: Learner(network(6), built("er"), memory=8, epochs=1, batch=4, inputs=given)
    learner = make()
    start = learner.state()
    learner.update(STREAM.tasks[0])
    assert learner.inputs is not None
    kept, taught = learner.inputs, learner.state()
    learner.restore(start)
    assert learner.inputs is (None if given is None else kept)
    again = make()
    again.restore(taught)
    assert again.inputs.document() == kept.document()


def test_inputs_of_ones_own_are_to_be_given_again():
    own = lambda x: x.float().flatten(1) / 255
    make = lambda **more: Learner(nn.Linear(16, 2), built("er"), memory=8, epochs=1, batch=4, **more)
    learner = make(inputs=own)
    learner.update(STREAM.tasks[0])
    state = learner.state()
    with pytest.raises(BadInput, match="this learner was taught with inputs of its own; give them again: inputs="):
        make().restore(state)
    other = make(inputs=lambda x: x.float().flatten(1) / 128)
    with pytest.raises(BadInput, match="made the network's input in another way than `inputs` says now"):
        other.restore(state)
    other.changed_inputs = True
    other.restore(state)
    assert other.tasks == 1


def test_a_network_that_cannot_have_other_outputs_says_so_and_keeps_its_own():
    class Exact(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(16, 6)

        def forward(self, x):
            z = self.head(x.flatten(1))
            if z.shape[1] != 6:
                raise ValueError("six or nothing\nand more")
            return z

    module = Exact()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    learner = Learner(module, built("er"), memory=8, epochs=1, batch=4, inputs=STREAM.pixels)
    with pytest.raises(BadInput, match=r"the network cannot have 2 outputs instead \(six or nothing\); give `classes`"):
        learner.update(STREAM.tasks[0])
    assert module.head.out_features == 6 and learner.classes == 0 and learner.head is None
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


class Masked(everlearn.ER):
    """Made anew in each task, as long as θ, and so in no state."""

    derived = ("mask",)

    def begin_task(self, learner, task):
        self.mask = torch.ones_like(learner.net.theta)


@pytest.mark.parametrize("method", [Masked, everlearn.ER])
def test_what_is_derived_and_as_long_as_the_networks_vector_is_not_asked_for(method, tmp_path):
    """ER's two weights are as many as the parameters of one linear layer."""
    x, y = torch.randn(20, 1, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    network = lambda: nn.Linear(1, 2, bias=False)
    learner = Learner(network(), method(), epochs=2).update(x, y)
    learner.save(tmp_path / "it")
    other = Learner.load(tmp_path / "it", network(), method=method())
    state = learner.state() | {"learner.known": told_as_before(learner.state())}
    again = Learner(network(), method(), epochs=2)
    again.restore(state)
    for one in (learner, other, again):
        one.update(x + 3, y + 2)
    assert same(learner.state(), other.state()) and same(learner.state(), again.state())


def told_as_before(state: dict) -> torch.Tensor:
    """What states said that were written when derived tensors were named as laid out like θ."""
    known = json.loads(from_bytes(state["learner.known"]))
    known["plain"] += ["method.mask", "method.weighting.row"]
    return as_bytes(json.dumps(known))
