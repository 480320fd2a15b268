"""Every method, on every shared property."""

import ast
import copy
import graphlib
import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import LABELS, learner_of, toy
from torch import nn

import everlearn
from everlearn import ER, DERpp, Experiment, Learner, registry
from everlearn.core.part import Part
from everlearn.experiments.defaults import defaults
from everlearn.networks import CNN, MLP, build
from everlearn.weightings.base import weights_of

SOURCE = Path(everlearn.__file__).parent
# Every method, every relational one, and every weighting on DER++, which has the most terms; some on ER, too.
TABLE = [name for name in LABELS if not name.startswith(("er+a", "er+n", "er-ace+"))]
TABLE += [
    "der+consolidate",
    "der+relation",
    "gss+consolidate",
    "gss+relation",
    "retain+consolidate",
    "retain+relation",
]  # any weighting, any method that rehearses
METHODS = {name: registry.find("method", name) for name in registry.METHODS}


def test_every_method_is_public_and_in_the_reference():
    text = (Path(__file__).parents[1] / "docs/reference/python.md").read_text()
    for method in METHODS.values():
        assert getattr(everlearn, method.__name__) is method and method.__name__ in everlearn.__all__
        assert f".. autoclass:: everlearn.{method.__name__}\n" in text


def learn(name: str, stream, *given, **settings) -> Learner:
    learner = learner_of(name, stream, *given, **settings)
    for task in tasks(learner, stream):
        learner.update(task)
    return learner


def tasks(learner: Learner, stream) -> list:
    return [stream.merged()] if learner.method.merges else stream.tasks


@pytest.mark.parametrize("name", TABLE)
def test_in_bfloat16_it_learns_as_in_float32_but_for_rounding(name):
    """With BatchNorm, whose layers have inputs of one precision and weights of another there."""
    stream, found = toy(tasks=2, each=8), []
    for precision in ("float32", "bfloat16"):
        learner = learn(name, stream, network=build("cnn", stream.shape, 4, 0), epochs=1, lr=0.005, precision=precision)
        found.append(learner.net.plain(learner.net.theta.detach()))
    full, low = found
    assert 0 < (low - full).norm() < 0.02 * full.norm()


@pytest.mark.parametrize("name", TABLE)
def test_the_first_step_with_an_empty_memory_is_finite(name):
    stream = toy(tasks=1, each=4)
    assert torch.isfinite(learn(name, stream, epochs=1).net.theta).all()


@pytest.mark.parametrize("name", TABLE)
def test_the_same_seed_twice_is_bit_identical_and_another_seed_is_not(name):
    stream = toy()
    one, again, other = learn(name, stream, 1), learn(name, stream, 1), learn(name, stream, 2)
    assert torch.equal(one.net.theta, again.net.theta) and not torch.equal(one.net.theta, other.net.theta)


@pytest.mark.parametrize("name", TABLE)
def test_resumed_equals_uninterrupted_after_any_epoch(name):
    stream, settings = toy(), dict(epochs=3, momentum=0.5, weight_decay=1e-3)
    whole, saved = learner_of(name, stream, **settings), []
    keep = lambda record=None: saved.append({key: tensor.clone() for key, tensor in whole.state().items()})
    for task in tasks(whole, stream):
        whole.update(task, report=keep)
        keep()
    for number, state in enumerate(saved):
        again = learner_of(name, stream, **settings)
        if number % 2:  # whatever it learned before
            again.update(tasks(again, stream)[0])
        with torch.no_grad():
            again.net.theta.fill_(7.0)  # whatever it began with
        again.restore(state)
        for task in tasks(again, stream)[again.tasks :]:
            again.update(task)
        assert again.tasks == whole.tasks and torch.equal(again.net.theta, whole.net.theta)
        one, other = again.state(), whole.state()
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
        assert again.evaluate(stream) == whole.evaluate(stream)


def same(one: dict, other: dict) -> bool:  # iCaRL's mean of a class not met is not a number
    plain = lambda tensor: tensor.nan_to_num(7.0)
    return one.keys() == other.keys() and all(torch.equal(plain(one[key]), plain(other[key])) for key in one)


@pytest.mark.parametrize("name", TABLE)
def test_a_deep_copy_goes_on_as_the_learner_does_and_leaves_it_alone(name):
    stream = toy(tasks=3)
    learner = learner_of(name, stream, momentum=0.5)
    *before, last = tasks(learner, stream)
    for task in before:
        learner.update(task)
    copied, before = copy.deepcopy(learner), learner.state()
    copied.update(last)
    assert same(before, learner.state())
    learner.update(last)
    assert same(learner.state(), copied.state()) and learner.evaluate(stream) == copied.evaluate(stream)
    copied.restore(before)
    assert same(before, copied.state())


@pytest.mark.parametrize("name", TABLE)
def test_a_task_left_between_two_steps_is_gone_on_with_or_taken_back(name):
    stream = toy()
    whole, broken = (learner_of(name, stream, momentum=0.5) for _ in range(2))
    *before, last = tasks(whole, stream)
    for task in before:
        whole.update(task)
        broken.update(task)
    state = broken.state()
    whole.update(last)
    for taken_back in (False, True):
        broken.restore(state)
        for steps in (1, 2):  # left twice, the second time after it was gone on with
            teaching = broken.updating(last)
            for _ in range(steps):
                next(teaching)
            teaching.close()
        if taken_back:
            broken.restore(state)
        broken.update(last)
        assert same(whole.state(), broken.state()) and whole.evaluate(stream) == broken.evaluate(stream)


def test_a_task_that_was_refused_leaves_the_learner_as_it_was():
    stream = toy()
    learner = learner_of("er", stream)
    with pytest.raises(everlearn.BadInput, match=r"cannot be learned from"):
        learner.update(None)
    learner.update(stream.tasks[0])
    assert learner.tasks == 1


def test_a_state_stays_what_it_was():
    stream = toy()
    learner = learner_of("rder", stream)
    learner.update(stream.tasks[0])
    state = learner.state()
    before = {key: tensor.clone() for key, tensor in state.items()}
    learner.update(stream.tasks[1])
    assert all(torch.equal(state[key], before[key]) for key in state)


def test_runs_that_take_turns_keep_their_arithmetic_until_the_last_is_gone():
    from everlearn.experiments import arithmetic as runs

    flags = lambda: [getattr(*flag) for flag in runs.FLAGS]
    fake = type("", (), {"device": torch.device("cuda")})
    before = flags()
    one, other = (runs.arithmetic(fake, "float32", deterministic=True) for _ in range(2))
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert flags() == [False, False, False, True], "float32 and deterministic, still"
    other.__exit__(None, None, None)
    assert flags() == before


@pytest.mark.parametrize("name", TABLE)
def test_seeds_together_equal_seeds_apart(name):
    """Two learners that take turns, step by step, as runs on one GPU do."""
    stream = toy()
    together = [learner_of(name, stream, seed) for seed in (1, 2)]
    for task in tasks(together[0], stream):
        for _ in zip(*(learner.updating(task) for learner in together), strict=True):
            pass
    for seed, learner in zip((1, 2), together):
        assert torch.equal(learner.net.theta, learn(name, stream, seed).net.theta)


@pytest.mark.parametrize("name", TABLE)
def test_it_beats_chance(name):
    stream = toy(tasks=2, each=40)
    accuracies = learn(name, stream, epochs=3).evaluate(stream)
    assert accuracies.task_il[1] > 75
    if name != "finetune":
        assert sum(accuracies.class_il) / 2 > 45


@pytest.mark.parametrize("name", TABLE)
def test_the_network_is_the_owners_again_afterwards(name):
    stream = toy()
    network = CNN(stream.shape, stream.classes)
    learner = learn(name, stream, network=network)
    assert all(isinstance(p, nn.Parameter) and p.is_leaf for p in network.parameters())
    x = stream.tasks[0].test[0]
    with learner.sgd.average.applied(learner.net):
        assert torch.equal(learner.logits(x), network.eval()(stream.pixels(x)))
    assert torch.cat([p.detach().flatten() for p in network.parameters()]).equal(learner.net.theta.detach())


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if issubclass(method, ER)])
def test_running_statistics_move_once_a_batch(name):
    stream, network = toy(tasks=1), CNN((1, 8, 8), 2)
    learner = learn(name, stream, network=network, epochs=1)
    draws = learner.method.draws  # the first step's are of an empty memory
    assert int(network.body[1].num_batches_tracked) == 3 * (1 + draws) - draws


def test_any_module_will_do_frozen_tied_and_recurrent_ones_too():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Linear(8, 8)
            self.frozen.requires_grad_(False)
            self.rnn = nn.GRU(8, 8, batch_first=True)
            self.one = nn.Linear(8, 8)
            self.two = nn.Linear(8, 8)
            self.two.weight = self.one.weight
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            out, _ = self.rnn(self.frozen(x[:, 0]))
            return self.head(torch.relu(self.two(torch.relu(self.one(out[:, -1])))))

    stream, network = toy(), Odd()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    learn("er", stream, network=network)
    moved = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}
    assert "rnn.weight_hh_l0" in moved and not {"frozen.weight", "frozen.bias"} & moved
    assert network.two.weight is network.one.weight


def test_dropout_is_seeded_and_leaves_the_callers_randomness_alone():
    stream = toy()
    network = lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 4))
    torch.manual_seed(7)
    expected = torch.rand(1)
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        module = network()
        torch.manual_seed(7)
        learner = Learner(module, everlearn.ER(), classes=range(4), inputs=stream.pixels, memory=8, batch=4)
        for task in stream:
            learner.update(task)
        runs.append(learner.net.theta.detach().clone())
        assert torch.equal(torch.rand(1), expected)
    assert torch.equal(*runs)


def test_float64_and_augmentation_run_through_every_part():
    stream = toy(channels=3, pixels=everlearn.Pixels((0.5,) * 3, (0.25,) * 3, pad=2, flip=True))
    learner = learn("rder", stream, dtype=torch.float64)
    assert learner.net.theta.dtype == torch.float64 and torch.isfinite(learner.net.theta).all()


@pytest.mark.parametrize(
    "bad, match",
    [
        (dict(epochs=0), "epochs 0"),
        (dict(memory=0), "memory 0"),
        (dict(lr=-1), "lr -1"),
        (dict(forward="both"), "both"),
    ],
)
def test_a_learner_refuses_what_cannot_be(bad, match):
    with pytest.raises(everlearn.BadInput, match=match):
        Learner(MLP((1, 8, 8), 4), everlearn.ER(), classes=range(4), **bad)


def test_more_classes_than_announced_and_images_of_another_shape_are_refused():
    stream = toy(tasks=2)
    learner = Learner(MLP((1, 8, 8), 2), everlearn.ER(), classes=2, inputs=stream.pixels, memory=8, batch=4)
    learner.update(stream.tasks[0])
    with pytest.raises(everlearn.BadInput, match=r"labels 2, 3 would make 4 classes, .* told classes=2"):
        learner.update(stream.tasks[1])
    other = toy(side=6).tasks[0]
    with pytest.raises(everlearn.BadInput, match="one kind"):
        learner.update(other)


def test_a_loss_that_is_no_number_stops_the_run():
    with pytest.raises(everlearn.EverlearnError, match="no longer a finite number in epoch 1 of task 1"):
        learn("er", toy(), network=nn.Sequential(nn.Flatten(), nn.Linear(64, 4), Explode()))


class Explode(nn.Module):
    def forward(self, x):
        return x * float("inf")


def test_an_experiments_hash_depends_on_every_setting_and_on_nothing_else():
    base = Experiment.of("er", memory=50)
    assert base.hash == Experiment.of("er", stream="digits", memory="50", seed=0, lr=0.1).hash
    for other in (dict(memory=51), dict(memory=50, lr=0.2), dict(memory=50, seed=1), dict(memory=50, weights=(1, 0.5))):
        assert Experiment.of("er", **other).hash != base.hash
    assert Experiment.of("finetune", memory=50).hash == Experiment.of("finetune", memory=60).hash, (
        "fine-tuning keeps no memory"
    )


def test_the_published_defaults():
    weights = lambda method, memory: Experiment.of(method, "cifar10", memory=memory).weighting["weights"]
    assert [weights("der++", m) for m in (50, 200, 500, 5120)] == [
        (1, 0.1, 0.5),
        (1, 0.1, 0.5),
        (1, 0.2, 0.5),
        (1, 0.1, 1),
    ]
    assert weights("rer", 200) == weights("rer-ace", 200) == (1, 0.5) and weights("rder", 200) == (1, 0.2, 0.5)
    er = Experiment.of("er", "cifar10")
    assert er.training == everlearn.Training(epochs=50, batch=32, lr=0.03, momentum=0, weight_decay=0)
    assert er.network.name == "resnet18" and er.stream["tasks"] == 5


def test_a_methods_weights_are_its_own_by_name_and_as_an_object():
    for method, name in ((ER(), "er"), (DERpp(), "der++"), (everlearn.LwF(), "lwf")):
        one, other = Experiment.of(method), Experiment.of(name)
        assert one == other and one.hash == other.hash and one.weighting["weights"] == (method.weights or (1, 1))


def test_ones_own_data_have_the_same_defaults_whatever_they_are_called():
    of = lambda stream: defaults("er", "fixed", stream)
    assert of("folder:data/mnist") == of("folder:data/birds") == of("npz:x-mnist")
    assert of("mnist") == of("fashion-mnist") != of("folder:data/mnist")


def test_an_odd_number_of_classes_is_dealt_as_evenly_as_can_be():
    dealt = lambda classes, tasks: [t.classes for t in everlearn.load("digits", classes=range(classes), tasks=tasks)]
    assert dealt(7, None) == [(0, 1), (2, 3), (4, 5, 6)]
    assert dealt(10, 4) == [(0, 1), (2, 3, 4), (5, 6), (7, 8, 9)]
    assert dealt(1, None) == [(0,)]


def test_classes_are_kept_in_the_order_given_and_dealt_to_tasks(digits):
    stream = everlearn.load("digits", classes=["8", "9", 0, 1], tasks=2)
    assert stream.names == ("8", "9", "0", "1") and [t.classes for t in stream] == [(0, 1), (2, 3)]
    eights = digits.tasks[4].train[0][digits.tasks[4].train[1] == 8]
    assert torch.equal(stream.tasks[0].train[0][: len(eights)], eights)
    assert sum(len(t.train[0]) for t in digits) == 1347 and sum(len(t.test[0]) for t in digits) == 450


# As the picture of the imports has it; the version is known to all.
ORDER = ("version", *runpy.run_path(str(Path(__file__).parents[1] / "docs" / "imports.py"))["PARTS"])


def imports(path: Path, functions: bool = True) -> set[str]:
    """What a module imports of the package, inside its functions too or not; not what only a type checker sees."""
    found, todo = set(), [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
        elif functions or not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            within = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {whole if module(whole) else node.module for whole in within.values()}
    return {name for name in found if name.startswith("everlearn.")}


def module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def test_imports_point_one_way():
    """Each part of the package knows those before it in ORDER; the registry alone finds by name what comes after it."""
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if not part.startswith("__"):
            known = {name.split(".")[1] for name in imports(path, functions=part != "registry")}
            upward = [name for name in known if ORDER.index(name) > ORDER.index(part)]
            assert not upward, (path, upward)


def test_no_module_imports_one_that_imports_it():
    graph = {}
    for path in SOURCE.rglob("*.py"):
        own = ".".join(("everlearn", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        graph[own] = imports(path, functions=False)
        # What is imported brings its package along.
        graph[own] |= {up for name in graph[own] for up in packages(name) if not f"{own}.".startswith(f"{up}.")}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(graph)


def packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(2, len(parts))]


def test_importing_everlearn_brings_in_nothing_heavy():
    heavy = ["sklearn", "rich", "typer", "optuna", "PIL", "pandas", "matplotlib", "torchvision", "torch._dynamo"]
    code = "import torch, sys; before = set(sys.modules); import everlearn"
    code += f"; print([m for m in {heavy} if m in sys.modules and m not in before])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_other_images_under_the_same_name_are_another_experiment(tmp_path):
    import numpy as np

    def write(seed: int) -> str:
        random = np.random.default_rng(seed)
        images = lambda n: random.integers(0, 256, (n, 8, 8), dtype=np.uint8)
        np.savez(
            tmp_path / "mine.npz",
            x_train=images(40),
            y_train=np.arange(40) % 4,
            x_test=images(8),
            y_test=np.arange(8) % 4,
        )
        return Experiment.of("er", f"npz:{tmp_path}/mine.npz", tasks=2, epochs=1, batch=4)

    first = write(0)
    one = everlearn.run("er", f"npz:{tmp_path}/mine.npz", tasks=2, epochs=1, batch=4)
    second = write(1)
    other = everlearn.run("er", f"npz:{tmp_path}/mine.npz", tasks=2, epochs=1, batch=4)
    assert first.hash != second.hash and write(0).hash == first.hash
    assert one["experiment"]["stream"]["source"] != other["experiment"]["stream"]["source"]


def test_a_result_in_memory_is_the_result_on_disk(tmp_path):
    settings = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=1, memory=10)
    first = everlearn.run("er", out=tmp_path, **settings)
    assert everlearn.run("er", out=tmp_path, **settings) == first


def test_a_learner_says_what_does_not_fit_together():
    stream = toy()
    make = lambda method, network=None, **more: Learner(
        network or MLP(stream.shape, 4), method, classes=range(4), inputs=stream.pixels, batch=4, **more
    )
    with pytest.raises(everlearn.BadInput, match="FineTune rehearses none"):
        make(everlearn.FineTune(everlearn.Relation()))
    with pytest.raises(everlearn.BadInput, match="4 logits, one per class"):
        make(everlearn.ER(), MLP(stream.shape, 3)).update(stream.tasks[0])
    with pytest.raises(everlearn.BadInput, match="precision 'bf16'"):
        make(everlearn.ER(), precision="bf16")
    with pytest.raises(everlearn.BadInput, match="split"):
        make(everlearn.ER(everlearn.Split()), memory=4)
    with pytest.raises(everlearn.BadInput, match="remembers = True"):
        make(type("Mine", (everlearn.Method,), {"draws": 1})())
    method = everlearn.ER()
    make(method)
    with pytest.raises(everlearn.BadInput, match="this ER object teaches another learner"):
        make(method)
    with pytest.raises(everlearn.BadInput, match="this Fixed object teaches another learner"):
        make(everlearn.ER(method.weighting))
    for wrong in (dict(lr=float("inf")), dict(momentum=float("nan")), dict(weight_decay=-1), dict(epochs=0)):
        with pytest.raises(everlearn.BadInput, match="must be a number"):
            make(everlearn.ER(), **wrong)

    class Forgetful(everlearn.ER):
        names = ("new",)

    with pytest.raises(everlearn.BadInput, match="Forgetful has 2 loss terms and names 1"):
        make(Forgetful()).update(stream.tasks[0])


def test_a_learner_says_what_is_wrong_with_a_task():
    stream = toy()
    (x, y), test, classes = stream.tasks[0].train, stream.tasks[0].test, stream.tasks[0].classes
    given = lambda train: everlearn.Task(train, test, classes)
    for task, words in (
        (given((x, y.int())), "labels.long()"),
        (given((x[:0], y[:0])), "at least one"),
        (given((x, y[:-1])), "there must be one for each"),
        (given((x, y[:, None])), "there must be one for each"),
        (given((x.flatten(1), y)), r"they must be \[N, channels, height, width\]"),
        (given((x, y + 2)), r"labels \[2, 3\] are not among the task's classes \[0, 1\]"),
        (given((x / 255, y)), r"images are floats.*Pixels\(top=1\)"),
    ):
        learner = Learner(
            MLP(stream.shape, 4), everlearn.ER(), classes=range(4), memory=8, batch=4, inputs=stream.pixels
        )
        with pytest.raises(everlearn.BadInput, match=words):
            learner.update(task)
    with pytest.raises(everlearn.BadInput, match="classes must be a list"):
        everlearn.Task((x, y), test, 2)
    with pytest.raises(everlearn.BadInput, match="not the class ER"):
        Learner(MLP(stream.shape, 4), everlearn.ER, classes=range(4))
    learner = Learner(
        MLP(stream.shape, 4), everlearn.ER(), classes=range(4), memory=8, batch=4, inputs=everlearn.Pixels(top=1)
    )
    learner.update(given((x / 255, y)))
    assert repr(stream.tasks[0]).startswith("<Task: classes 0, 1; ") and "2 tasks, 4 classes" in repr(stream)


def test_a_method_that_remembers_has_its_memory_written_unless_it_says_otherwise():
    class Plain(everlearn.Method):
        """ER, from the contract alone."""

        names, draws, remembers = ("new", "memory"), 1, True

        def rehearse(self, memory):
            return [everlearn.cross_entropy(memory)]

    settings = dict(memory=20, epochs=1, classes=["0", "1", "2", "3"], tasks=2)
    assert everlearn.run(Plain(), **settings)["class_il"] == everlearn.run("er", **settings)["class_il"]


def test_a_run_trains_a_copy_of_ones_network():
    network = MLP((1, 8, 8), 4)
    settings = dict(memory=20, epochs=1, classes=["0", "1", "2", "3"], tasks=2, network=network)
    assert everlearn.run("er", **settings)["class_il"] == everlearn.run("er", **settings)["class_il"]
    for wrong, words in ((MLP((1, 8, 8), 3), "4 logits, one per class"), (7, "7 is not a network; give a name")):
        with pytest.raises(everlearn.BadInput, match=words):
            everlearn.run("er", **settings | dict(network=wrong))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(method=7), "is not a method; it must be a class derived from everlearn.Method"),
        (dict(method=MLP), "is not a method"),
        (dict(method="everlearn.networks:MLP"), "is not a method"),
        (dict(weighting=7), "is not a weighting; it must be a class derived from everlearn.Weighting"),
        (dict(weighting=ER), "is not a weighting"),
        (dict(weighting="everlearn.methods:ER"), "is not a weighting"),
        (dict(stream=7), "7 is not a stream"),
        (dict(stream="everlearn.version:__version__"), "is not a stream; it must be a class or function"),
    ],
)
def test_what_is_of_another_kind_is_refused(given, words):
    with pytest.raises(everlearn.BadInput, match=words):
        everlearn.run(**given)


def test_a_stream_of_ones_own_is_asked_for_with_the_options_it_is_given(tmp_path):
    (tmp_path / "mine.py").write_text(STREAM)
    settings = dict(stream=f"{tmp_path}/mine.py:make", epochs=1, batch=4, memory=10)
    assert [everlearn.run(side=side, **settings)["network"] for side in (8, 32)] == ["CNN", "ResNet18"]
    with pytest.raises(everlearn.BadInput, match=r"mine.py:make needs its option 'side'"):
        everlearn.run(**settings)


STREAM = """
import torch
from everlearn import Pixels, Stream, Task

def make(side: int, each: int = 8):
    x, y = torch.zeros(each, 1, side, side, dtype=torch.uint8), torch.arange(each) % 2
    return Stream("mine", (Task((x, y), (x, y), (0, 1)),), ("a", "b"), Pixels())
"""


def test_terms_of_ones_own_have_weight_1_and_others_keep_those_they_inherit():
    class Renamed(DERpp):
        names = ("new", "dark", "labelled")

    class Fewer(DERpp):
        names = ("new", "memory")

    assert (Renamed.weights, Renamed.preset) == (DERpp.weights, DERpp.preset)
    assert (Fewer.weights, Fewer.preset) == ((), None)
    assert weights_of(Fewer().weighting, Fewer()) == (1, 1)


def test_a_run_of_ones_own_method_is_kept_if_the_method_lies_in_a_file(tmp_path):
    (tmp_path / "mine.py").write_text(METHOD)
    Mine = registry.imported(f"{tmp_path}/mine.py:Mine")
    settings = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=1, memory=10)
    kept = everlearn.run(Mine(scale=0.5), out=tmp_path / "runs", **settings)
    assert kept["experiment"]["method"]["options"] == {"scale": 0.5} and kept["experiment"]["method"]["source"]
    assert everlearn.run(f"{tmp_path}/mine.py:Mine", scale=0.5, out=tmp_path / "runs", **settings) == kept
    (tmp_path / "mine.py").write_text(METHOD.replace("loss * self", "2 * loss * self"))
    other = everlearn.run(f"{tmp_path}/mine.py:Mine", scale=0.5, out=tmp_path / "runs", **settings)
    assert other["provenance"]["settings"] != kept["provenance"]["settings"], "what it was is what it is known by"

    class Local(ER):
        pass

    assert everlearn.run(Local(), **settings)["class_il"] == everlearn.run(ER(), **settings)["class_il"]
    with pytest.raises(everlearn.BadInput, match="Local, made inside a function or at a prompt, has no name"):
        everlearn.run(Local(), out=tmp_path / "runs", **settings)


METHOD = """
import everlearn

class Mine(everlearn.ER):
    def __init__(self, weighting=None, scale: float = 1.0):
        super().__init__(weighting)
        self.scale = scale

    def rehearse(self, memory):
        loss = everlearn.cross_entropy(memory).loss
        return [everlearn.Term(loss * self.scale, memory)]
"""


def test_what_is_done_to_the_network_between_two_tasks_counts():
    stream = toy()
    make = lambda network: Learner(network, everlearn.ER(), classes=range(4), inputs=stream.pixels, memory=8, batch=4)
    cast, plain = CNN(stream.shape, 4), CNN(stream.shape, 4)
    plain.load_state_dict(cast.state_dict())
    learners = make(cast), make(plain)
    for learner in learners:
        learner.update(stream.tasks[0])
    before = {name: tensor.clone() for name, tensor in cast.state_dict().items()}
    answer = learners[0].predict(stream.tasks[0].test[0])
    cast.double()
    assert torch.equal(learners[0].predict(stream.tasks[0].test[0]), answer)
    cast.load_state_dict({name: tensor.clone() for name, tensor in before.items()}, assign=True)
    for learner in learners:
        learner.update(stream.tasks[1])
    one, other = cast.state_dict(), plain.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in other), "cast back and forth is no change"
    assert not any(torch.equal(one[name], before[name]) for name in before), "and it is still this network that learns"
    assert all(
        p.untyped_storage().data_ptr() == learners[0].net.theta.untyped_storage().data_ptr() for p in cast.parameters()
    )
    cast.head.weight.requires_grad_(False)
    with pytest.raises(everlearn.BadInput, match="settle that first"):
        learners[0].update(stream.tasks[1])
    plain.head = nn.Linear(256, 4)
    with pytest.raises(everlearn.BadInput, match="other layers"):
        learners[1].update(stream.tasks[1])


def test_images_of_another_kind_and_networks_of_two_answers_are_refused():
    stream = toy()
    learner = Learner(MLP(stream.shape, 4), everlearn.ER(), classes=range(4), inputs=stream.pixels, memory=8, batch=4)
    learner.update(stream.tasks[0])
    (x, y), task = stream.tasks[1].train, stream.tasks[1]
    with pytest.raises(everlearn.BadInput, match="a learner takes one kind"):
        learner.update(everlearn.Task((x.float(), y), task.test, task.classes))
    for given, words in ((x / 255, "a learner takes one kind|floats"), (x.flatten(1), "one kind")):
        with pytest.raises(everlearn.BadInput, match=words):
            learner.predict(given)
    smaller = Learner(MLP(stream.shape, 4), everlearn.ER(), classes=range(4), memory=5, batch=4)
    with pytest.raises(everlearn.BadInput, match="a memory of 8, and the learner one of 5"):
        smaller.restore(learner.state())

    class Two(MLP):
        def forward(self, x):
            return super().forward(x), x

    with pytest.raises(everlearn.BadInput, match="answers with a tuple"):
        Learner(Two(stream.shape, 4), everlearn.ER(), classes=range(4), memory=8, batch=4).update(stream.tasks[0])
    joint = Learner(MLP(stream.shape, 4), everlearn.Joint(), classes=range(4), inputs=stream.pixels, batch=4)
    joint.update(stream.merged())
    with pytest.raises(everlearn.BadInput, match=r"stream\.merged"):
        joint.update(stream.tasks[1])


def test_an_interrupted_learner_leaves_the_network_to_its_owner():
    stream, network = toy(), MLP((1, 8, 8), 4)
    learner = Learner(network, everlearn.ER(), classes=range(4), inputs=stream.pixels, memory=8, batch=4)
    steps = learner.updating(stream.tasks[0])
    next(steps)
    steps.close()
    assert all(isinstance(p, nn.Parameter) for p in network.parameters()) and len(list(network.parameters())) == 4


def test_an_experiment_writes_out_its_schedule():
    weighting = Experiment.of("rer", epochs=50).weighting
    assert (weighting["warmup"], weighting["interval"]) == (25, 5)
    with pytest.raises(everlearn.BadInput, match="2 loss terms"):
        Experiment.of("er", weights=(1, 1, 1))


def test_run_takes_a_networks_name_or_a_network():
    settings = dict(classes=["0", "1"], tasks=1, epochs=1, memory=10)
    assert everlearn.run("er", network="cnn", **settings)["network"] == "CNN"
    assert everlearn.run("er", network=MLP((1, 8, 8), 2, hidden=7), **settings)["network"] == "MLP"


def test_the_help_of_a_method_is_its_own():
    said = {kind: inspect.getdoc(kind) for kind in METHODS.values()}
    assert "DER++" in said[everlearn.DERpp] and "KD(memory draw 1)" in said[everlearn.DERpp]
    assert len(set(said.values())) == len(said)


@pytest.mark.parametrize("name", METHODS)
def test_a_part_of_any_method_is_told_of_every_task_and_step(name):
    class Told(Part):
        def __init__(self):
            self.hooks = set()

        def begin_task(self, learner, task):
            self.hooks.add("begin_task")

        def end_task(self, learner, task):
            self.hooks.add("end_task")

        def select(self, step):
            self.hooks.add("select")

        def remember(self, step, terms):
            self.hooks.add("remember")

        def forget(self, learner, kept):
            self.hooks.add("forget")

    stream = toy()
    learner = learner_of(name, stream)
    learner.method.told = Told()
    for task in [stream.merged()] if learner.method.merges else stream:
        learner.update(task)
    learner.forget(lambda x, y: y == 0)
    hooks = {"begin_task", "end_task", "select", "remember"} | ({"forget"} if learner.method.remembers else set())
    assert learner.method.told.hooks == hooks
