"""A run that is killed at any instant goes on from its last checkpoint and ends as if nothing had happened."""

import contextlib
import hashlib
import json
import os
import signal
import warnings
from pathlib import Path

import pytest
import torch
from commands import command
from conftest import LABELS, kill_at, learner_of, toy
from safetensors import torch as safetensors
from test_growth import same as same_state
from torch import nn

import everlearn
from everlearn import ER, EverlearnError, Experiment, Fixed, Learner, Snapshot, Term, cross_entropy
from everlearn.core.state import as_bytes
from everlearn.core.terms import distance
from everlearn.errors import BadInput, Notice
from everlearn.experiments import run as runs
from everlearn.experiments import store as stores
from everlearn.experiments.experiment import load
from everlearn.experiments.results import read_lines
from everlearn.experiments.store import CHECKPOINT, Store
from everlearn.learner import endings, unkept
from everlearn.networks import MLP

SETTINGS = dict(classes=["0", "1", "2", "3", "4", "5"], tasks=3, epochs=2, memory=20)


@pytest.fixture(autouse=True)
def every_step(monkeypatch):
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")
    monkeypatch.setattr(os, "fsync", lambda file: None)  # a process that goes takes no disk with it


def same(one: dict, other: dict) -> bool:
    return all(one[key] == other[key] for key in ("experiment", "class_il", "task_il", "classes", "network"))


def told(folder: Path) -> list[dict]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in read_lines(folder)]


def perform(experiment: Experiment, store: Store, report=None, fresh: bool = False) -> dict:
    """Here, as a launcher does it."""
    return runs.finish(runs.recorded(experiment, store, "cpu", report=report, fresh=fresh))


def gone_on(learner: Learner, state: dict, stream) -> Learner:
    """The learner in this state, and taught the tasks that are left."""
    learner.restore(state)
    for task in stream.tasks[learner.tasks :]:
        learner.update(task)
    return learner


class Killed(BaseException):
    """As abrupt as a signal, in one process."""


@pytest.mark.parametrize("name", ["er", "rder", "icarl", "si", "joint", "er-ace+consolidate"])
def test_left_after_any_record_it_goes_on_to_the_same_result(tmp_path, name):
    experiment = Experiment.of(name, **SETTINGS)
    whole = perform(experiment, Store(tmp_path / "whole"))
    expected, store = told(Store(tmp_path / "whole").path(experiment)), Store(tmp_path / "cut")
    while True:
        count = 0

        def report(record):
            nonlocal count
            count += record["event"] not in ("start", "resumed", "step")
            if count == 3:  # records on from wherever it was; it may be that only the first of them was saved
                raise Killed

        with pytest.raises(Killed):
            perform(experiment, store, report=report)
        folder = store.path(experiment).with_name(experiment.name + ".part")
        assert (folder / CHECKPOINT).exists()
        if len(read_lines(folder)) >= len(expected) - 3:
            break
    result = perform(experiment, store)
    assert same(result, whole) and told(store.path(experiment)) == expected
    assert result["provenance"]["resumed"] > 0 and whole["provenance"]["resumed"] == 0
    assert not (store.path(experiment) / CHECKPOINT).exists()


@pytest.mark.parametrize("name", LABELS)
def test_left_after_any_step_a_learner_goes_on_to_the_same_bits(name):
    stream, states, lines = toy(each=9), [], []
    make = lambda: learner_of(name, stream, network=dropping(), momentum=0.5)
    tasks = lambda learner: [stream.merged()] if learner.method.merges else stream.tasks
    whole = make()
    for task in tasks(whole):
        for _ in whole.updating(task, lines.append):
            states.append((len(lines), whole.state()))
    end = whole.state()
    for told, state in states[1::3]:  # at least one of each epoch, also the first step and the last
        again, more = make(), []
        again.restore(state)
        assert same_tensors(again.state(), state)
        for task in tasks(again)[again.tasks :]:
            again.update(task, report=more.append)
        assert same_tensors(again.state(), end)
        assert without_seconds(more) == without_seconds(lines[told:])


def dropping() -> nn.Module:
    """Its masks are random numbers of its own."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))


def same_tensors(one: dict, other: dict) -> bool:
    plain = lambda tensor: tensor.double().nan_to_num(7.0)  # iCaRL's mean of a class not met is not a number
    keys = {key for key in one if key != "epoch.seconds"}
    return one.keys() == other.keys() and all(torch.equal(plain(one[key]), plain(other[key])) for key in keys)


def without_seconds(lines: list[dict]) -> list[dict]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.parametrize(
    "name, more",
    [
        ("er", {}),
        ("er", {"memory": "balanced:20"}),
        ("er", {"memory": 600}),  # a task is smaller: who is in the memory matters
        ("er+balanced", {}),
        ("rder", {"warmup": 1}),
        ("gss", {}),
        ("icarl", {}),
        ("joint", {}),
    ],
)
def test_left_between_two_steps_a_run_goes_on_from_there(tmp_path, monkeypatch, name, more):
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "1000")
    experiment, store = Experiment.of(name, **SETTINGS | more), Store(tmp_path / "cut")
    whole = perform(experiment, Store(tmp_path / "whole"))
    for count in (5, 1, 13, 40):
        steps = runs.recorded(experiment, store, "cpu")
        for _ in range(count):
            next(steps)
        steps.close()
        assert (store.part(experiment) / CHECKPOINT).exists()
    said = []
    result = perform(experiment, store, report=said.append)
    assert said[1]["event"] == "resumed" and said[1]["step"] > 0
    assert same(result, whole) and result["provenance"]["resumed"] == 4
    assert told(store.path(experiment)) == told(Store(tmp_path / "whole").path(experiment))


@pytest.fixture
def own_signals():
    """As a program has them that was started in a terminal: one in the background ignores some."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, way) for number, way in usual.items()}
    yield
    for number, way in before.items():
        signal.signal(number, way)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_waits_for_the_end_of_the_step_and_leaves_a_checkpoint(tmp_path, monkeypatch, number, own_signals):
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "1000")
    experiment, store, heard = Experiment.of("er", **SETTINGS), Store(tmp_path / "cut"), []
    whole = perform(experiment, Store(tmp_path / "whole"))
    usual = {one: signal.getsignal(one) for one in endings.SIGNALS}
    remember = ER.remember

    def signalled(method, step, terms):
        if not heard and method.learner.tasks == 1 and step.number == 3:
            heard.append(step)
            os.kill(os.getpid(), number)
        remember(method, step, terms)

    if number == signal.SIGUSR2:  # a handler that comes back, as a scheduler's may
        monkeypatch.setitem(usual, number, lambda *given: heard.append("handled"))
        signal.signal(number, usual[number])
    monkeypatch.setattr(ER, "remember", signalled)
    if number == signal.SIGUSR2:
        assert same(perform(experiment, store), whole) and heard[1:] == ["handled"]
        signal.signal(number, signal.SIG_DFL)
        return
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as ended:
        perform(experiment, store)
    assert number == signal.SIGINT or ended.value.code == 128 + number
    assert {one: signal.getsignal(one) for one in endings.SIGNALS} == usual
    said = []
    assert same(perform(experiment, store, report=said.append), whole)
    assert said[1] == {"event": "resumed", "task": 1, "epoch": 0, "step": 4}


@pytest.mark.parametrize("number, waits", [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_second_ctrl_c_does_not_wait_and_another_signal_does(tmp_path, monkeypatch, number, waits, own_signals):
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "1000")
    experiment, store, remember = Experiment.of("er", **SETTINGS), Store(tmp_path), ER.remember

    def signalled(method, step, terms):
        for _ in range(2):
            os.kill(os.getpid(), number)
        remember(method, step, terms)

    monkeypatch.setattr(ER, "remember", signalled)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        perform(experiment, store)
    assert (store.part(experiment) / CHECKPOINT).exists() == waits


def test_a_signal_while_a_task_is_measured_does_not_wait_and_leaves_a_checkpoint(tmp_path, monkeypatch, own_signals):
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "1000")
    experiment, store, examine, heard = Experiment.of("rer", **SETTINGS), Store(tmp_path / "cut"), Learner.examine, []
    whole = perform(experiment, Store(tmp_path / "whole"))

    def signalled(learner, stream):
        if learner.tasks == 2 and not heard:
            heard.append(learner)
            os.kill(os.getpid(), signal.SIGTERM)
            heard.append(examine(learner, stream))
        return examine(learner, stream)

    monkeypatch.setattr(Learner, "examine", signalled)
    with pytest.raises(SystemExit):
        perform(experiment, store)
    said = []
    assert same(perform(experiment, store, report=said.append), whole) and len(heard) == 1
    assert said[1] == {"event": "resumed", "task": 2, "epoch": 0, "step": 0}
    assert told(store.path(experiment)) == told(Store(tmp_path / "whole").path(experiment))


def test_a_signal_at_the_very_end_waits_until_the_run_is_complete(tmp_path, monkeypatch, own_signals):
    experiment, store, seal = Experiment.of("er", **SETTINGS), Store(tmp_path), stores._seal
    monkeypatch.setattr(stores, "_seal", lambda part: (os.kill(os.getpid(), signal.SIGINT), seal(part)))
    with pytest.raises(KeyboardInterrupt):
        perform(experiment, store)
    assert store.has(experiment) and [path.name for path in tmp_path.iterdir()] == [experiment.name]


def test_a_run_killed_before_a_learned_task_was_measured_measures_it(tmp_path, monkeypatch):
    experiment, store = Experiment.of("rer", **SETTINGS), Store(tmp_path / "cut")
    whole = perform(experiment, Store(tmp_path / "whole"))
    examine, failing = Learner.examine, [True]

    def killed(learner, stream):
        if learner.tasks == 2 and failing:
            failing.clear()
            raise Killed
        return examine(learner, stream)

    monkeypatch.setattr(Learner, "examine", killed)
    with pytest.raises(Killed):
        perform(experiment, store)
    said = []
    assert same(perform(experiment, store, report=said.append), whole)
    assert said[1] == {"event": "resumed", "task": 2, "epoch": 0, "step": 0}
    assert told(store.path(experiment)) == told(Store(tmp_path / "whole").path(experiment))


def test_progress_is_told_within_an_epoch_and_not_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "TELL", 0.0)
    experiment, said = Experiment.of("er", **SETTINGS), []
    perform(experiment, Store(tmp_path), report=said.append)
    steps = [record for record in said if record["event"] == "step" and (record["task"], record["epoch"]) == (1, 1)]
    count = steps[0]["steps"]
    assert [record["step"] for record in steps] == list(range(1, count + 1)) and count > 5
    assert "step" not in {line["event"] for line in read_lines(Store(tmp_path).path(experiment))}


def test_killed_by_a_signal_at_any_instant_it_is_the_same_run(tmp_path, monkeypatch):
    experiment = Experiment.of("rer", **SETTINGS | dict(epochs=3))
    whole = perform(experiment, Store(tmp_path / "whole"))
    words = "run rer --set classes=0,1,2,3,4,5 --set tasks=3 --epochs 3 --memory 20 --json -q --device cpu --out"
    part = tmp_path / "cut" / (experiment.name + ".part")
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")
    for goal, pause in ((3, 0.0), (9, 0.013)):
        kill_at(goal, pause, part, lambda: everlearn.run(experiment, out=tmp_path / "cut", device="cpu"))
        assert (part / CHECKPOINT).exists()
    result = json.loads(command([*words.split(), str(tmp_path / "cut")]).stdout)
    assert same(result, json.loads(json.dumps(whole))) and result["provenance"]["resumed"] == 2
    relation = [Store(tmp_path / of).path(experiment) / "weighting.safetensors" for of in ("whole", "cut")]
    assert relation[0].read_bytes() == relation[1].read_bytes()


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:50] + b"x" + b[51:], lambda b: b"", lambda b: b"{}"])
def test_a_damaged_checkpoint_is_not_used(tmp_path, damage):
    experiment, store = Experiment.of("er", **SETTINGS), Store(tmp_path)
    whole = runs.finish(runs.Run(experiment, load(experiment.stream), "cpu").steps())
    checkpoint = stopped(experiment, store, Killed()) / CHECKPOINT
    checkpoint.write_bytes(damage(checkpoint.read_bytes()))
    result = perform(experiment, store)
    assert same(result, whole) and result["provenance"]["resumed"] == 0
    assert len(told(store.path(experiment))) == 3 * 3, "and the records are those of one run"


def stopped(experiment: Experiment, store: Store, error: BaseException) -> Path:
    """The folder of a run that an error ended after its first task."""

    def stop(record):
        if record["event"] == "task":
            raise error

    with pytest.raises(type(error)):
        perform(experiment, store, report=stop)
    return store.path(experiment).with_name(experiment.name + ".part")


def test_a_run_that_failed_of_itself_leaves_nothing_and_fresh_begins_anew(tmp_path):
    experiment, store = Experiment.of("er", **SETTINGS), Store(tmp_path)
    stopped(experiment, store, EverlearnError("diverged"))
    assert list(tmp_path.iterdir()) == []
    stopped(experiment, store, Killed())
    assert perform(experiment, store, fresh=True)["provenance"]["resumed"] == 0


@pytest.mark.parametrize("error", [OSError(28, "no space left"), MemoryError(), RuntimeError("CUDA error")])
def test_what_is_not_the_runs_own_fault_leaves_its_checkpoint(tmp_path, error):
    experiment, store = Experiment.of("er", **SETTINGS), Store(tmp_path)
    whole = runs.finish(runs.Run(experiment, load(experiment.stream), "cpu").steps())
    assert (stopped(experiment, store, error) / CHECKPOINT).exists()
    result = perform(experiment, store)
    assert same(result, whole) and result["provenance"]["resumed"] == 1


def test_a_checkpoint_whose_records_were_lost_is_not_used(tmp_path):
    experiment, store = Experiment.of("er", **SETTINGS), Store(tmp_path)
    records = stopped(experiment, store, Killed()) / "metrics.jsonl"
    records.write_bytes(records.read_bytes()[:50])
    assert perform(experiment, store)["provenance"]["resumed"] == 0
    assert len(told(store.path(experiment))) == 3 * 3


def test_a_checkpoint_of_another_run_is_not_gone_on_from(tmp_path):
    first, second = (Experiment.of("er", **SETTINGS | dict(seed=seed)) for seed in (0, 1))
    whole, store = perform(first, Store(tmp_path / "whole")), Store(tmp_path / "cut")
    stopped(second, store, Killed()).rename(store.part(first))
    with pytest.warns(Notice, match=r"the checkpoint in .*\.part is another experiment's; the run starts again"):
        result = perform(first, store)
    assert same(result, whole) and told(store.path(first)) == told(Store(tmp_path / "whole").path(first))


def test_records_changed_before_a_checkpoint_are_not_gone_on_from(tmp_path):
    experiment, store = Experiment.of("er", **SETTINGS), Store(tmp_path)
    whole = perform(experiment, Store(tmp_path / "whole"))
    records = stopped(experiment, store, Killed()) / "metrics.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"epoch": 0', b'"epoch": 7', 1))
    with pytest.warns(Notice, match=r"goes with other records than metrics\.jsonl has; the run starts again"):
        assert same(perform(experiment, store), whole)
    assert told(store.path(experiment)) == told(Store(tmp_path / "whole").path(experiment))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda state: state | {"at.learner.progress": torch.zeros(1)},
        lambda state: state | {"run.measures": torch.zeros(1)},
        lambda state: state | {"run.measures": torch.zeros(4, 5, 3)},
        lambda state: state | {"at.learner.known": torch.zeros(3, dtype=torch.uint8)},
        lambda state: state | {"at.learner.begun": as_bytes('[[["count", {"module": ["os"]}]]]')},
        lambda state: state | {"at.learner.begun": as_bytes("{[[(")},
        lambda state: state | {"at.learner.begun": as_bytes("[1, 2]")},
        lambda state: {key: tensor for key, tensor in state.items() if key != "run.measures"},
        lambda state: {key: tensor for key, tensor in state.items() if not key.startswith("at.network")},
        lambda state: {key: tensor.reshape(-1)[:1] for key, tensor in state.items()},
    ],
)
def test_a_sound_checkpoint_with_wrong_contents_is_said_to_be_and_cleared_away(tmp_path, wrong):
    experiment, store = Experiment.of("er", **SETTINGS), Store(tmp_path)
    checkpoint = stopped(experiment, store, Killed()) / CHECKPOINT
    state = safetensors.load(checkpoint.read_bytes()[32:])
    of = {key: tensor for key, tensor in state.items() if key.startswith("records.")}
    payload = safetensors.save(wrong({key: state[key] for key in state.keys() - of.keys()}) | of)
    checkpoint.write_bytes(hashlib.sha256(payload).digest() + payload)
    with pytest.raises(EverlearnError, match=r"another version of this run .*; the same command starts it again"):
        perform(experiment, store, report=lambda record: None)
    assert perform(experiment, store)["provenance"]["resumed"] == 0


def test_short_runs_write_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.delenv("EVERLEARN_CHECKPOINT")
    experiment, seen = Experiment.of("er", **SETTINGS), []
    look = lambda record: seen.append((tmp_path / (experiment.name + ".part") / CHECKPOINT).exists())
    perform(experiment, Store(tmp_path), report=look)
    assert seen and not any(seen)


def test_every_method_and_weighting_has_a_state_that_can_be_written():
    for name in LABELS:
        experiment = Experiment.of(name, **SETTINGS)
        run = runs.Run(experiment, load(experiment.stream), "cpu")
        state = run.learner.state()
        again = safetensors.load(safetensors.save({key: tensor.contiguous() for key, tensor in state.items()}))
        assert all(torch.equal(again[key], state[key]) for key in state), name


class Counting(ER):
    """It counts its steps in a number, which no state has."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def after_step(self, step, gradient, direction):
        self.count += 1


class Declared(Counting):
    derived = ("count",)


class Told(ER):
    """It keeps what it was told in a number."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def begin_task(self, learner, task):
        self.size = len(task.train[1])


TEACHING = ("update", "observe")


@pytest.mark.parametrize(("method", "lost"), [(Counting, 1), (Declared, 0)])
@pytest.mark.parametrize("teach", TEACHING)
def test_a_plain_number_that_training_changes_is_said_to_be_lost_once(method, lost, teach):
    stream = toy()
    learner = Learner(MLP(stream.shape, 4), method(), memory=8, classes=range(4), epochs=2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            getattr(learner, teach)(stream.tasks[0])
    lines = [str(of.message) for of in said if "interrupted" in str(of.message)]
    assert len(lines) == lost and all("Counting.count" in line and "derived" in line for line in lines)


def test_what_begin_task_gives_back_to_a_task_is_lost_to_mini_batches():
    stream = toy()
    make = lambda: Learner(MLP(stream.shape, 4), Told(), memory=8, classes=range(4), epochs=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*interrupted", Notice)
        make().update(stream.tasks[0])
    learner, again = make(), make()
    with pytest.warns(Notice, match=r"Told\.size changes in training"):
        learner.observe(stream.tasks[0])
    again.restore(learner.state())
    again.observe(stream.tasks[0])
    assert (learner.method.size, again.method.size) == (len(stream.tasks[0].train[1]), 0)


class Tasks(ER):
    """What it has in a task: counted, noted in the first, added to a list, and made anew of the learner."""

    def __init__(self):
        super().__init__()
        self.count, self.first, self.list, self.late, self.option = 0, None, [], 0, 3

    def begin_task(self, learner, task):
        self.count += 1
        self.list.append(task.classes)
        if learner.tasks == 0:
            self.first = learner.classes
        self.late = learner.tasks
        self.later = [self.late + self.option]  # bound first, then read
        self.later.append(self.late)


def test_what_begin_task_takes_from_the_tasks_before_is_said_to_be_lost_and_what_it_makes_anew_is_not():
    stream = toy(tasks=3)
    learner = Learner(MLP(stream.shape, 6), Tasks(), memory=8, classes=range(6), epochs=1)
    for task, lost in zip(stream.tasks, [set(), {"count", "list", "first"}, set()]):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            learner.update(task)
        words = [str(of.message).split(" ")[0] for of in said if "interrupted" in str(of.message)]
        assert set(words) == {f"Tasks.{name}" for name in lost} and type(learner.method) is Tasks


class Epochs(Fixed):
    """It counts its epochs itself."""

    def __init__(self):
        super().__init__()
        self.epochs = 0

    def begin_epoch(self, task, epoch, epochs):
        self.epochs += 1


def test_what_a_weighting_counts_itself_at_the_beginning_of_an_epoch_is_said_to_be_lost():
    stream = toy()
    learner = Learner(MLP(stream.shape, 4), ER(Epochs()), memory=8, classes=range(4), epochs=2)
    with pytest.warns(Notice, match=r"Epochs\.epochs changes in training"):
        learner.update(stream.tasks[0])


class Growing(Fixed):
    """Weights by a number of its own: one that its epoch says, and one that it counts."""

    def __init__(self):
        super().__init__()
        self.epoch, self.count = 0, 0

    def begin_epoch(self, task, epoch, epochs):
        self.epoch = epoch

    def begin_stream(self, filled):
        self.epoch += 1

    def loss(self, method, step, terms):
        self.count += 1
        return super().loss(method, step, terms) * (1 + self.epoch)


@pytest.mark.parametrize("teach", TEACHING)
def test_a_plain_number_that_a_weighting_changes_is_said_to_be_lost_unless_its_epoch_gives_it_back(teach):
    stream = toy()
    learner = Learner(MLP(stream.shape, 4), ER(Growing()), memory=8, classes=range(4), epochs=2)
    with pytest.warns(Notice, match=r"Growing\.count changes in training") as said:
        getattr(learner, teach)(stream.tasks[0])
    assert not [of for of in said if "Growing.epoch" in str(of.message)]


@pytest.mark.parametrize("name", LABELS)
def test_what_is_built_in_loses_nothing(name):
    stream = toy()
    learner = learner_of(name, stream)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*interrupted", Notice)
        for task in [stream.merged()] if learner.method.merges else stream.tasks:
            learner.update(task)
        other = learner_of(name, stream, lr=0.01)
        with contextlib.suppress(BadInput):  # what lives on the end of tasks observes none
            for x, y in (task.train for task in stream.tasks for _ in range(2)):
                other.observe(x, y)


class Shrunk(ER):
    """What begins a task with something else than it found: a smaller network, no momentum, other logits."""

    keeps = ("logits",)

    def begin_task(self, learner, task):
        if learner.tasks:
            learner.net.theta.detach().mul_(0.5)
            learner.sgd.velocity.zero_()
            learner.memory.stored["logits"].add_(1)

    def rehearse(self, memory):
        return [distance(memory)]


def test_what_begin_task_does_to_the_learner_is_done_once_however_often_the_task_is_resumed():
    stream, states = toy(tasks=2), []
    make = lambda: Learner(MLP(stream.shape, 4), Shrunk(), memory=8, classes=range(4), epochs=4, batch=4, momentum=0.5)
    learner, again = make(), make()
    learner.update(stream.tasks[0])
    learner.update(stream.tasks[1], on_epoch=lambda learner, _: states.append(learner.state()))
    for state in states[:3]:
        again.restore(state)
        again.update(stream.tasks[1])
        assert same_state(learner.state(), again.state())


class Falling(ER):
    """A learning rate that falls step by step, from the same one in each task, and lower in later epochs."""

    def begin_task(self, learner, task):
        learner.sgd.lr = 0.2

    def after_step(self, step, gradient, direction):
        step.sgd.lr *= 0.9


def test_the_learning_rate_is_gone_on_with_as_it_was_however_it_was_set():
    stream, states = toy(tasks=2), []
    make = lambda: Learner(MLP(stream.shape, 4), Falling(), memory=8, classes=range(4), epochs=2, batch=4, lr=0.1)
    learner = make()
    for task in stream.tasks:
        for _ in learner.updating(task):
            states.append((learner.sgd.lr, learner.state()))
    assert len({lr for lr, _ in states}) > 4
    for lr, state in states:
        again = make()
        again.restore(state)
        assert again.sgd.lr == lr
        for task in stream.tasks[again.tasks :]:
            again.update(task)
        assert same_state(learner.state(), again.state())


def test_plain_values_are_read_as_what_they_were_and_of_the_kind_they_were():
    method, values = ER(), {"a": [1, (2, "x"), {3, 4}], 5: {(1, 2): None}, True: [[], {}], "b": -1.5}
    method.values, method.array, method.endless = values, torch.ones(2), float("inf")
    (found,) = unkept.begun(unkept.said(method))
    assert found["values"] == values and repr(found["values"]) == repr(values)
    assert not found.keys() & {"array", "endless"}


class Measured(ER):
    """What begin_task makes of a network and a memory that change in the task."""

    def begin_task(self, learner, task):
        held = learner.memory.held()[1].tolist()
        self.scale = 1.0 if not held else float(learner.net.theta.detach().norm()) / 4
        self.counts = {c: 1 + held.count(c) for c in range(learner.classes)}
        self.full = len(held) == learner.capacity

    def rehearse(self, memory):
        rare = torch.tensor([self.scale / self.counts[c] + self.full for c in memory.y.tolist()])
        return [Term(cross_entropy(memory).loss * rare, memory)]


def test_a_number_that_begin_task_makes_of_what_changes_in_a_task_stays_what_it_was_however_the_task_is_left():
    stream, states = toy(tasks=2), []
    make = lambda: Learner(MLP(stream.shape, 4), Measured(), memory=8, classes=range(4), epochs=2, batch=4)
    learner = make()
    for task in stream.tasks:
        states += [learner.state() for _ in learner.updating(task)]
    for state in states:
        again = gone_on(make(), state, stream)
        assert same_state(learner.state(), again.state())


class Whole(ER):
    """It learns the task and all that is in the memory."""

    def training_set(self, learner, task):
        return tuple(map(torch.cat, zip(task.train, learner.memory.held())))


def test_a_training_set_made_of_a_memory_that_has_changed_since_is_not_gone_on_with():
    stream, states = toy(tasks=2), []
    make = lambda: Learner(MLP(stream.shape, 4), Whole(), memory=8, classes=range(4), epochs=4, batch=4)
    learner, again = make(), make()
    learner.update(stream.tasks[0]).update(stream.tasks[1], on_epoch=lambda learner, _: states.append(learner.state()))
    again.restore(states[1])
    with pytest.raises(BadInput, match=r"cannot be gone on from: Whole\.training_set gives other samples now"):
        again.update(stream.tasks[1])


class Recalled(ER):
    """What was learned is pulled to what the networks before this task and before the last one say of it."""

    names = ("new", "pull", "memory")
    teacher = older = None

    def begin_task(self, learner, task):
        self.older, self.teacher = self.teacher, Snapshot(learner.net)

    def learn(self, new):
        pull = sum((new.z - of(new.x)).square().mean(dim=1) for of in (self.older, self.teacher) if of is not None)
        return [cross_entropy(new), Term(pull, new, preserves=True)]

    def predict(self, learner, x):
        return learner.logits(x) + (0 if self.teacher is None else self.teacher(learner.inputs(x)))


def test_a_snapshot_made_in_a_task_is_there_again_whenever_the_learner_was_left_and_when_it_is_loaded(tmp_path):
    stream, states = toy(tasks=3), []
    make = lambda: Learner(MLP(stream.shape, 6), Recalled(), memory=8, classes=range(6), epochs=2, batch=4)
    learner = make()
    for task in stream.tasks:
        learner.update(task, on_epoch=lambda learner, _: states.append(learner.state()))
        states.append(learner.state())
    for state in states:
        again = gone_on(make(), state, stream)
        assert same_state(learner.state(), again.state())
        assert torch.equal(learner.predict_proba(stream.tasks[0].test[0]), again.predict_proba(stream.tasks[0].test[0]))
    learner.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved", MLP(stream.shape, 6), method=Recalled())
    assert same_state(learner.state(), loaded.state())
