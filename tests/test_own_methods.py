"""What researchers' own methods may do: draw numbers, keep state of any kind, leave rows empty, have any option."""

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import toy
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import everlearn
from everlearn import ER, Draw, Experiment, Learner, Term, cross_entropy
from everlearn.cli import app as cli
from everlearn.errors import BadInput, Notice
from everlearn.experiments.store import Store
from everlearn.launchers import perform
from everlearn.networks import MLP

OWN = '''
import torch
import everlearn
from everlearn import ER, Stream


class Drawn(ER):
    """It draws numbers wherever it can."""

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.drawn = torch.rand(1)

    def training_set(self, learner, task):
        self.drawn = self.drawn + torch.rand(1)
        return super().training_set(learner, task)

    def begin_task(self, learner, task):
        self.drawn = self.drawn + torch.rand(1)

    def end_task(self, learner, task):
        self.drawn = self.drawn + torch.rand(1)


class Clash(ER):
    def __init__(self, weighting=None, memory: int = 1, seed: int = 3):
        super().__init__(weighting)
        self.memory, self.seed = memory, seed


class Sparse(ER):
    """Only samples of even classes are kept."""

    def remember(self, step, terms):
        step.slots = torch.where(step.y % 2 == 0, step.slots, step.memory.capacity)
        super().remember(step, terms)


def shuffled() -> Stream:
    order = torch.randperm(10).tolist()
    return everlearn.load("digits", classes=order)


def half(todo, job, report):
    from everlearn.launchers import attempted
    yield todo[0], attempted(job, todo[0])
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    return lambda name: f"own.py:{name}"


def test_a_list_of_draws_is_as_good_as_a_tuple_and_what_is_no_draw_is_refused():
    listed = type("Listed", (ER,), {"draws": [Draw(size=8)], "references": [Draw(size=4)]})
    assert [len(of) for of in listed(everlearn.Relation()).all_draws()] == [1, 1, 1]
    with pytest.raises(BadInput, match=r"64 is not a memory batch; draws are a number or a tuple of everlearn.Draw"):
        Learner(nn.Linear(2, 2), type("Wrong", (ER,), {"references": (64,)})(), memory=8)


def test_what_a_method_draws_is_the_seeds_alone(own):
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(drawn))  # whatever the caller's generator is at
        everlearn.run(own("Drawn"), seed=seed, epochs=1, memory=20, out=f"runs{len(drawn)}")
        (place,) = Path(f"runs{len(drawn)}").glob("digits-*")
        drawn.append(float(load_file(place / "learner.safetensors")["method.drawn"]))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_stream_that_draws_is_the_same_for_all_runs(own):
    run = lambda n: everlearn.run("finetune", own("shuffled"), seed=n, epochs=1)["classes"]
    torch.manual_seed(5)
    first = run(0)
    everlearn.experiments.experiment._load.cache_clear()
    assert run(1) == first


def test_an_option_called_as_a_runs_own_is_said_with_method_before(own):
    e = Experiment.of(own("Clash"), memory=50, seed=2, **{"method.memory": 7, "method.seed": 8})
    assert (e.memory, e.seed, dict(e.method.options)) == (50, 2, {"memory": 7, "seed": 8})


def test_a_method_may_leave_rows_of_its_memory_empty(own):
    result = everlearn.run(own("Sparse"), memory=20, epochs=1, out="runs")
    (place,) = Path("runs").glob("digits-*")
    kept = Learner.load(place).kept()
    assert result["class_il"]["acc"] > 0 and all(not kept[f"{c}"] for c in (1, 3, 5, 7, 9)) and kept["0"]


def test_two_terms_have_two_names():
    class Twice(ER):
        names = ("new", "new")

    with pytest.raises(BadInput, match="Twice has two terms of one name among new, new; each needs its own"):
        Learner(nn.Linear(2, 2), Twice())


def test_runs_that_a_launcher_leaves_out_have_failed(own):
    experiments = [Experiment.of(epochs=1, memory=20, seed=seed) for seed in range(2)]
    first, second = perform(experiments, Store("runs"), on=own("half"), device="cpu")
    assert first["class_il"] and "ended without having performed it" in str(second)
    words = f"study digits --only er --seeds 2 --set epochs=1 --on {own('half')} -q".split()
    result = CliRunner().invoke(cli.app, words, prog_name="everlearn")
    assert result.exit_code == 1 and "ended without having performed it" in result.stderr


class Module(ER):
    """Each of these changes in training and is in no state."""

    def make(self):
        return nn.Linear(2, 1)

    def change(self, kept):
        with torch.no_grad():
            kept.weight += 1

    def __init__(self, weighting=None):
        super().__init__(weighting)
        self.own = self.make()

    def rehearse(self, memory) -> list[Term]:
        self.change(self.own)
        return [cross_entropy(memory)]


class Tensors(Module):
    make, change = lambda self: [torch.zeros(2)], lambda self, kept: kept[0].add_(1)


class Named(Module):
    make, change = lambda self: {"a": torch.zeros(2)}, lambda self, kept: kept["a"].add_(1)


class Set(Module):
    make, change = lambda self: set(), lambda self, kept: kept.add(len(kept))


class Array(Module):
    make, change = lambda self: np.zeros(2), lambda self, kept: kept.__iadd__(1)


class Generated(Module):
    make, change = lambda self: random.Random(0), lambda self, kept: kept.random()


@pytest.mark.parametrize("method", [Module, Tensors, Named, Set, Array, Generated])
def test_what_no_state_has_is_told_whatever_its_kind(method):
    x, y = torch.randn(12, 3), [0, 1] * 6
    with pytest.warns(Notice, match=f"{method.__name__}.own changes in training and is not a tensor"):
        Learner(nn.Linear(3, 2), method(), epochs=1, batch=4, memory=6).update(x, y).update(x, y)
    still = type(method.__name__, (method,), {"change": lambda self, kept: None})
    Learner(nn.Linear(3, 2), still(), epochs=1, batch=4, memory=6).update(x, y).update(x, y)


class Hardest(everlearn.ER):
    draws = (everlearn.Draw(size=50),)

    def select(self, step):
        (drawn,) = step.replay
        losses = everlearn.cross_entropy(step.ask(drawn)).masked()
        step.replay = (drawn.rows(losses.topk(len(step.new.y)).indices),)


def test_what_is_chosen_from_in_a_step_may_be_of_any_size_beside_the_batch():
    x, y = torch.randn(64, 6), torch.arange(64) % 2
    learner = everlearn.Learner(torch.nn.Linear(6, 2), Hardest(), batch=32, memory=60, epochs=2).update(x, y)
    assert learner.update(x + 4, y + 2).tasks == 2

    class Chosen(everlearn.ER):
        draws = (everlearn.Draw(size=50),)

    with pytest.raises(everlearn.BadInput, match="a draw of 50 beside batches of 32"):
        everlearn.Learner(torch.nn.Linear(6, 2), Chosen(), batch=32)


class Ring(everlearn.ER):
    slot_rule = None

    def remember(self, step, terms):
        step.memory.write(torch.arange(len(step.new.y)) % 10, step.new.x, step.new.y)


def test_rows_that_are_written_and_never_drawn_are_told_of():
    learner = everlearn.Learner(torch.nn.Linear(6, 2), Ring(), batch=8, memory=10, epochs=1)
    with pytest.warns(Notice, match="Ring writes rows of its memory that are never drawn"):
        learner.update(torch.randn(16, 6), torch.arange(16) % 2)


class Halved(ER):
    """After each task the network is changed, and if it says so, so is what is tested of it."""

    def __init__(self, both: bool = False):
        super().__init__()
        self.both = both

    def end_task(self, learner, task):
        learner.net.theta.detach().mul_(0.5)
        if self.both:
            learner.sgd.average.mean.mul_(0.5)


def test_a_network_that_is_changed_where_its_average_is_tested_is_told_of():
    stream = toy()
    make = lambda method, average: Learner(
        MLP(stream.shape, 4), method, memory=8, classes=range(4), epochs=1, average=average
    )
    with pytest.warns(Notice, match=r"Halved\.end_task changes the network, and what is tested is its moving average"):
        make(Halved(), 0.9).update(stream.tasks[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        for method, average in ((Halved(), 0.0), (Halved(both=True), 0.9), (ER(), 0.9)):
            make(method, average).update(stream.tasks[0])


class Gathered(ER):
    """It gathers how often a class came: once per step, or wherever it is asked for its terms."""

    def __init__(self, once: bool):
        super().__init__()
        self.once, self.came = once, torch.zeros(4)

    def learn(self, new):
        if not self.once:
            self.came += torch.bincount(new.y, minlength=4)
        return super().learn(new)

    def after_step(self, step, gradient, direction):
        if self.once:
            self.came += torch.bincount(step.y, minlength=4)


def test_what_is_gathered_in_learn_is_told_of_where_a_relation_asks_for_it_several_times_a_step():
    stream = toy()
    make = lambda method, weighting: Learner(
        MLP(stream.shape, 4), method, weighting, memory=8, classes=range(4), epochs=1, batch=4
    )
    with pytest.warns(Notice, match=r"Gathered changes came where it says what its terms are, and Relation asks that"):
        often = make(Gathered(False), "relation").update(stream.tasks[0])
    assert often.method.came.sum() > len(stream.tasks[0].train[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        for method, weighting in ((Gathered(True), "relation"), (Gathered(False), "consolidate")):
            once = make(method, weighting).update(stream.tasks[0])
            assert once.method.came.sum() == len(stream.tasks[0].train[1])


class Listed(ER):
    """It makes its state when it is asked for it, of a tensor that is made in inference mode."""

    def begin_task(self, learner, task):
        with torch.inference_mode():
            self.shares = torch.ones(4) / 4

    def state(self):
        return super().state() | {"logarithms": self.shares.log()}


def test_a_state_that_is_made_anew_is_not_taken_for_one_that_was_changed():
    stream = toy()
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        Learner(MLP(stream.shape, 4), Listed(), "relation", memory=8, classes=range(4), epochs=1, batch=4).update(
            stream.tasks[0]
        )


class Projecting(ER):
    """Beside the cross-entropy, what a layer that the network does not use itself makes of the features."""

    names = ("new", "apart", "memory")
    features = True

    def learn(self, new):
        with self.learner.net.autocast:
            made = self.learner.net.module.project(new.features)
        apart = (new.y[:, None] != new.y) * (made @ made.T)
        return [cross_entropy(new), Term(apart.square().mean(dim=1).to(new.z.dtype), new)]


class WithProjector(MLP):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.project = nn.Linear(100, 8)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_layer_that_only_a_loss_uses_is_trained_with_the_network_and_seen_by_a_relation(precision):
    stream, ends = toy(), []
    given: dict = dict(memory=8, classes=range(4), epochs=2, lr=0.1, precision=precision)
    exact = precision == "float32"
    for way in ("forward", "double-backward"):
        torch.manual_seed(0)
        network = WithProjector(stream.shape, 4)
        before = network.project.weight.detach().clone()
        weighting = everlearn.Relation(hypergradient=way, warmup=0, rrn_lr=0.1)
        learner = Learner(network, Projecting(), weighting, **given, dtype=torch.float64 if exact else torch.float32)
        for task in stream.tasks:
            learner.update(task)
        assert not torch.equal(network.project.weight.float(), before)
        ends.append(learner.net.theta.detach().double())
    assert torch.allclose(*ends, rtol=0, atol=1e-10 if exact else 0.05)


class Scheduled(ER):
    """A rate that falls from epoch to epoch."""

    captures = False  # a step recorded on a GPU keeps its rate

    def __init__(self):
        super().__init__()
        self.rates = torch.zeros(0)

    def select(self, step):
        step.sgd.lr = self.learner.training.lr * 0.5**self.learner.epoch
        self.rates = torch.cat([self.rates, torch.tensor([step.sgd.lr])])


def test_a_schedule_of_the_learning_rate_is_a_methods_own_and_begins_anew_in_each_task():
    stream = toy()
    learner = Learner(MLP(stream.shape, 4), Scheduled(), memory=8, classes=range(4), epochs=3, batch=12, lr=0.5)
    for task in stream.tasks:
        learner.update(task)
    assert learner.method.rates.tolist() == [0.5, 0.25, 0.125] * 2
