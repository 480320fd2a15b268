"""What a step may do if a GPU is to repeat it without Python, seen without a GPU."""

import contextlib
import gc
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import LABELS, learner_of, toy
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import everlearn
from everlearn.core.capture import Graphs
from everlearn.core.plan import Row


@pytest.fixture
def watched(monkeypatch):
    """Steps as on a GPU, but for the replaying: the first of a kind as it is, others watched as the recorded one is."""

    def step(graphs, variant, number, row, tape):
        if variant not in graphs.graphs:
            return graphs._first(variant, number, row, tape)
        graphs._watched(number, row, tape)

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(Graphs, "step", step)


class OnTheDevice(TorchDispatchMode):
    """Refuses what a recorded step cannot do: wait for the GPU to know a value or a size, or bring numbers to it."""

    WAITS = ("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive")
    BRINGS = ("lift_fresh",)  # torch.tensor([1, 2])

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation._schema.name.removeprefix("aten::")
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        if name in self.WAITS + self.BRINGS or any(i is not None and i.dtype == torch.bool for i in indices):
            raise AssertionError(f"a recorded step calls {name}")
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_no_garbage_is_collected_while_a_step_is_recorded(monkeypatch, fails, enabled):
    """To destroy another learner's graph then makes the recording invalid."""
    seen = []

    class Graph:
        capture_begin = lambda self, pool: seen.append(gc.isenabled())
        capture_end = lambda self: seen.append(gc.isenabled())

    def body(number, row, tape):
        seen.append(gc.isenabled())
        if fails:
            raise RuntimeError("in the step")
        tape.keep(losses=torch.zeros(1))

    for name, value in {
        "CUDAGraph": Graph,
        "graph_pool_handle": lambda: None,
        "synchronize": lambda: None,
        "current_stream": lambda: 1,
        "default_stream": lambda: 0,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError, match="in the step") if fails else contextlib.nullcontext():
            Graphs(body)._record(0, Row(None, None, None, None))
        assert seen == [False] * 3 and gc.isenabled() == enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("name", LABELS)
def test_no_step_of_ours_binds_anew_what_the_next_one_reads(watched, name):
    stream, ends = toy(), []
    for capture in (True, False):
        learner = learner_of(name, stream, epochs=4, momentum=0.5)
        learner.capture = capture and learner.method.captures
        for task in [stream.merged()] if learner.method.merges else stream:
            learner.update(task)
        ends.append(learner.net.theta.detach().clone())
    assert torch.equal(*ends)


@pytest.mark.parametrize("name", LABELS)
def test_no_step_of_ours_waits_for_a_gpu_or_brings_numbers_to_it(watched, monkeypatch, name):
    def watching(graphs, number, row, tape):
        steps.append(number)
        with OnTheDevice():
            graphs.body(number, row, tape)

    def one_hot(y, classes):  # torch's own looks at the labels on the CPU, and on a GPU does not
        return torch.zeros(*y.shape, classes, dtype=y.dtype).scatter_(-1, y[..., None], 1)

    steps, stream = [], toy()
    monkeypatch.setattr(Graphs, "_watched", watching)
    monkeypatch.setattr(F, "one_hot", one_hot)
    learner = learner_of(name, stream, epochs=4, momentum=0.5)
    learner.capture = learner.method.captures
    for task in [stream.merged()] if learner.method.merges else stream:
        learner.update(task)
    assert steps or not learner.capture


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: float(x.sum()), "_local_scalar_dense"),
        (lambda x: bool((x > 0).all()), "_local_scalar_dense"),
        (lambda x: torch.tensor([1.0, 2.0]) * x, "lift_fresh"),
        (lambda x: x[x > 0], "index"),
        (lambda x: x.masked_select(x > 0), "masked_select"),
        (lambda x: torch.equal(x, x), "equal"),
        (lambda x: x.unique(), "_unique2"),
    ],
)
def test_what_waits_or_brings_numbers_would_be_noticed(call, name):
    with pytest.raises(AssertionError, match=f"a recorded step calls {name}$"), OnTheDevice():
        call(torch.ones(2))


class Averaging(everlearn.ER):
    mean = 0.0

    def begin_task(self, learner, task):
        self.mean = torch.zeros(())

    def remember(self, step, terms):
        super().remember(step, terms)
        self.mean = 0.9 * self.mean + 0.1 * terms.losses.detach().mean()


class Counting(everlearn.ER):
    def begin_task(self, learner, task):
        self.steps = 0

    def learn(self, new):
        self.steps += 1
        return super().learn(new)


class Right(Averaging):
    def remember(self, step, terms):
        self.mean.lerp_(terms.losses.detach().mean(), 0.1)


class Listing(Counting):
    def begin_task(self, learner, task):
        self.seen = {"labels": []}

    def learn(self, new):
        self.seen["labels"].append(len(new.y))
        return everlearn.ER.learn(self, new)


class Once(Right):
    """Makes something in its first step."""

    def begin_task(self, learner, task):
        super().begin_task(learner, task)
        self.ready = False

    def learn(self, new):
        self.ready, self.mask = True, self.mask if self.ready else torch.ones(4)
        return super().learn(new)


@pytest.mark.parametrize(
    ("method", "name"), [(Averaging, "Averaging.mean"), (Counting, "Counting.steps"), (Listing, "Listing.seen")]
)
def test_a_method_that_binds_anew_is_refused_where_steps_are_recorded(watched, method, name):
    def learner(capture):
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
        made = everlearn.Learner(network, method(), classes=range(4), inputs=stream.pixels, batch=4, memory=8)
        made.capture = capture
        return made

    stream = toy()
    learner(capture=False).update(stream.tasks[0])
    with pytest.raises(everlearn.BadInput, match=re.escape(f"a step binds {name} anew")):
        learner(capture=True).update(stream.tasks[0])


@pytest.mark.parametrize("method", [Right, Once])
def test_a_method_that_writes_into_its_tensor_is_not(watched, method):
    stream = toy()
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
    learner = everlearn.Learner(network, method(), classes=range(4), inputs=stream.pixels, batch=4, memory=8)
    learner.capture = True
    learner.update(stream.tasks[0])
    assert learner.method.mean > 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *((1.0, 0.5), ("early", "late"), (False, True), (None, 0.1), ((1, 1), (1, 0.5)), ({1: [2]}, {1: [3]})),
        *((np.float32(1), np.float32(0.5)), (torch.relu, torch.tanh), (torch.float32, torch.float64)),
        (torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)),
        (torch.ones(()), torch.ones(())),
    ],
)
def test_what_changes_between_epochs_has_the_steps_recorded_again(watched, before, after):
    holder = SimpleNamespace(value=before)
    graphs = Graphs(lambda number, row, tape: None, holder)
    graphs._first("a kind", 0, None, None)
    graphs.begin_epoch()
    assert graphs.graphs
    holder.value = after
    graphs.begin_epoch()
    assert not graphs.graphs
    graphs._first("a kind", 0, None, None)
    graphs.begin_epoch()
    assert graphs.graphs
    holder.more = 1
    graphs.begin_epoch()
    assert not graphs.graphs


def test_steps_on_mini_batches_are_made_anew_where_the_memory_has_moved():
    """A recorded one would go on writing where it was."""
    stream = toy()
    learner = learner_of("er", stream, epochs=1)
    x, y = (half[:4] for half in stream.tasks[0].train)
    learner.observe(x, y)
    steps = learner._steps
    learner.observe(x, y)
    assert learner._steps is steps
    begun = learner.updating(stream.tasks[0])
    next(begun)
    begun.close()
    place = learner.memory.x
    learner.update(stream.tasks[0])
    assert learner.memory.x is not place
    learner.observe(x, y)
    assert learner._steps is not steps and learner._steps.written[1] is learner.memory.x
