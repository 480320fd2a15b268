"""Runs that share a GPU: whose turn it is. Their steps are stand-ins, and so is the GPU, which says what is done."""

import contextlib
from types import SimpleNamespace

import pytest
from conftest import learner_of

from everlearn.launchers import local

EPOCHS, STEPS = 2, 3


class Stream(contextlib.nullcontext):
    """Of a run: busy for so many looks after each epoch."""

    def __init__(self, looks: int):
        super().__init__()
        self.stream, self.looks, self.left = self, looks, 0

    def query(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture
def turns(monkeypatch):
    """Of how long each run's stream is busy after an epoch: what happened, as (run, epoch, step), ends of epochs with
    their turns as None."""

    def take(*looks: int) -> list[tuple[int, int, int | None]]:
        happened, streams = [], [Stream(number) for number in looks]
        given = iter(streams)
        monkeypatch.setattr(local, "own_stream", lambda: next(given))

        def steps(run: int, _):
            for epoch in range(EPOCHS):
                for step in range(STEPS):
                    happened.append((run, epoch, step))
                    streams[run].left = streams[run].looks
                    yield step == STEPS - 1
                assert streams[run].left < 0, "the GPU is done with it"
                happened.append((run, epoch, None))

        job = SimpleNamespace(steps=steps)
        outcomes = dict(local.pack_up(range(len(looks)), job, lambda *_: None, pack=len(looks)))
        assert outcomes == dict.fromkeys(range(len(looks)))
        return happened

    return take


def test_an_epoch_ends_when_the_steps_of_all_others_are_launched(turns):
    happened = turns(0, 4, 9)
    launched = dict.fromkeys(range(3), 0)
    for run, _, step in happened:
        launched[run] += step is not None
        if step is None:
            assert all(count % STEPS == 0 for count in launched.values())


def test_of_runs_between_two_epochs_the_one_the_gpu_is_done_with_goes_on(turns):
    happened = turns(50, 0)
    ends = [run for run, _, step in happened if step is None]
    assert ends == [1, 1, 0, 0], "the first is busy for long"


def test_a_run_whose_steps_take_long_to_launch_does_not_keep_others_from_going_on(turns, monkeypatch):
    monkeypatch.setattr(local, "LAUNCHED", 0.0)
    happened = turns(0, 0, 0)  # they begin one after the other
    assert happened.index((0, 0, None)) < happened.index((2, 0, STEPS - 1))
    assert len(happened) == 3 * EPOCHS * (STEPS + 1)


def test_steps_say_which_is_the_last_of_an_epoch(digits):
    learner = learner_of("er", digits, epochs=2)
    said = list(learner.updating(digits.tasks[0]))
    steps = len(said) // 2
    assert [number for number, last in enumerate(said) if last] == [steps - 1, 2 * steps - 1]
