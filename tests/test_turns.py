"""A learner that several threads use at a time, and copies of one."""

import copy
import pickle
import threading
import warnings

import pytest
import torch
from test_growth import same
from torch import nn

from everlearn import BadInput, Learner, Task
from everlearn.core.turns import Turns

X = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(200) % 2


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def learner_of(method: str = "er", weighting: str | None = None, **settings) -> Learner:
    return Learner(network(), method, weighting, **dict(memory=30, epochs=4, batch=16, lr=0.05) | settings)


def together(*works) -> list[BaseException]:
    """Each in a thread of its own; what they raised."""
    raised = []

    def kept(work):
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=kept, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "nobody waits for ever"
    return raised


@pytest.mark.parametrize("method", ["er", "retain"])
def test_who_only_asks_changes_nothing_however_many_ask(method):
    learner = learner_of(method).update(X, Y).update(X + 4, Y + 2)
    before, expected = learner.state(), learner.predict_proba(X)
    answers = []
    raised = together(*[lambda: answers.extend(learner.predict_proba(X) for _ in range(30))] * 4)
    assert not raised and len(answers) == 120 and all(torch.equal(answer, expected) for answer in answers)
    assert same(learner.state(), before)


@pytest.mark.parametrize(("method", "weighting"), [("der++", None), ("retain", None), ("er", "relation")])
def test_who_asks_while_it_learns_waits_for_the_end_of_a_step_and_changes_nothing(method, weighting):
    alone, disturbed = (learner_of(method, weighting).update(X, Y) for _ in range(2))
    alone.update(X + 4, Y + 2)
    ended, asked = threading.Event(), []

    def ask():
        while not ended.is_set():
            asked.append(float(disturbed.predict_proba(X).sum()))

    raised = together(ask, lambda: (disturbed.update(X + 4, Y + 2), ended.set()))
    assert not raised and same(alone.state(), disturbed.state())
    assert len(asked) > 5, "and it does not wait for the end of the task"
    assert asked == pytest.approx([200.0] * len(asked))


def test_while_one_thread_teaches_another_is_refused_and_the_task_goes_on():
    learner, alone = learner_of(epochs=6), learner_of(epochs=6).update(X, Y)
    started = threading.Event()
    raised = together(
        lambda: learner.update(X, Y, on_epoch=lambda *_: started.set()),
        lambda: (started.wait(), learner.update(X + 4, Y + 2)),
        lambda: (started.wait(), learner.observe(X[:8] + 4, Y[:8] + 2)),
    )
    assert [type(error) for error in raised] == [BadInput] * 2 and all("a task" in str(error) for error in raised)
    assert learner.tasks == 1 and learner.classes == 2 and same(learner.state(), alone.state())


def test_a_turn_is_taken_several_times_by_one_thread_and_then_goes_to_who_waits():
    turn, order = Turns(torch.device("cpu")), []

    def take(name):
        with turn:
            order.append(name)

    with turn, turn:
        threads = [threading.Thread(target=take, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        order.append("mine")
    for thread in threads:
        thread.join(60)
    assert order[0] == "mine" and sorted(order[1:]) == [0, 1, 2]
    other = copy.deepcopy(turn)
    with turn:
        assert not together(other.__enter__), "a copy is nobody's"


COPIES = {"pickled": lambda of: pickle.loads(pickle.dumps(of)), "copied": copy.deepcopy}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(
    ("method", "weighting"),
    [("retain", None), ("er", "relation"), ("gss", None), ("oewc", None), ("icarl", None), ("der++", "consolidate")],
)
def test_a_copy_answers_the_same_and_goes_on_to_the_same_bits(method, weighting, how):
    learner = learner_of(method, weighting).update(X, Y).update(X * 2 + 5, Y + 2)
    other = COPIES[how](learner)
    assert torch.equal(learner.predict_proba(X), other.predict_proba(X)) and same(learner.state(), other.state())
    for one in (learner, other):
        one.update(X - 5, Y + 4)
    assert same(learner.state(), other.state())


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_taken_in_a_callback_may_be_taught_on(how):
    learner, copies = learner_of("si"), []
    learner.update(X, Y, on_epoch=lambda learner, record: copies.append(COPIES[how](learner)))
    copies[1].update(X, Y)
    assert len(copies) == 4 and same(copies[1].state(), learner.state())


def test_in_a_callback_the_network_is_its_owners():
    learner, seen = learner_of(), []
    model = learner.net.module

    def look(learner, record):
        seen.append((copy.deepcopy(model), sum(float(p.detach().norm()) for p in model.parameters())))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.update(X, Y, on_epoch=look)
    assert len(seen) == 4 and len({norm for _, norm in seen}) == 4
    assert torch.equal(seen[-1][0].eval()(X), model.eval()(X))


def test_on_a_gpu_a_turn_waits_for_what_another_stream_was_asked(monkeypatch):
    turn, streams, waits = Turns(torch.device("cuda")), ["first"], []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[-1])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waits.append(streams[-1]))
    for stream in ("first", "first", "second", "second", "first"):
        streams.append(stream)
        with turn, turn:
            pass
    assert waits == ["second", "first"], "one thread may use several"


@pytest.mark.parametrize("average", [None, 0.9])
def test_who_exports_while_it_learns_changes_nothing(average, tmp_path):
    alone, disturbed = (learner_of(average=average).update(X, Y) for _ in range(2))
    alone.update(X + 4, Y + 2)
    ended, exported = threading.Event(), []

    def export():
        while not ended.is_set():
            disturbed.export(tmp_path / "it.safetensors")
            exported.append(1)

    raised = together(export, lambda: (disturbed.update(X + 4, Y + 2), ended.set()))
    assert not raised and len(exported) > 3 and same(alone.state(), disturbed.state())


def test_what_is_forgotten_while_another_teaches_is_what_was_named():
    learner = learner_of(epochs=2).update(X, Y)
    asked, go_on = threading.Event(), threading.Event()

    def of_class_0(sample, label):
        asked.set()
        go_on.wait(60)
        return label == 0

    gone: dict = {}
    raised = together(
        lambda: gone.update(learner.forget(of_class_0)), lambda: (asked.wait(60), _refused(learner), go_on.set())
    )
    assert not raised and set(gone) == {0} and learner.tasks == 1


def _refused(learner) -> None:
    with pytest.raises(BadInput, match="a task is under way"):
        learner.update(X + 4, Y + 2)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(
    ("method", "weighting"), [("er", None), ("gss", None), ("lwf", None), ("retain", None), ("er", "relation")]
)
@pytest.mark.parametrize("steps", [3, 20])
def test_a_copy_taken_between_two_steps_may_be_taught_on(method, weighting, how, steps):
    learner = learner_of(method, weighting).update(X, Y)
    task = Task((X + 4, Y + 2), classes=(2, 3))
    going = learner.updating(task)
    for _ in range(steps):  # of 13 per epoch
        next(going)
    other = COPIES[how](learner)
    for _ in going:
        pass
    other.update(task)
    assert same(learner.state(), other.state())
