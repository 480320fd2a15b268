"""Runs that share a GPU: whose turn it is. Their steps are stand-ins, and so is the GPU, which says what is done."""

import contextlib
from types import SimpleNamespace

import pytest
from conftest import learner_of

from everlearn.launchers import local

EPOCHS, STEPS = 2, 3


class Stream(contextlib.AbstractContextManager):
    """Of a run: busy for so many looks after each epoch."""

    def __init__(self, looks: int):
        self.stream, self.looks, self.left, self.entered = self, looks, 0, False

    def __enter__(self):
        self.entered = True

    def __exit__(self, *_):
        self.entered = False

    def query(self) -> bool:
        self.left -= 1
        return self.left < 0


class Broken(Stream):
    """Of a GPU that has failed."""

    def query(self) -> bool:
        raise RuntimeError("an illegal memory access was encountered")


@pytest.fixture
def turns(monkeypatch):
    """Of how long each run's stream is busy after an epoch: what happened, as (run, epoch, step), ends of epochs with
    their turns as None."""

    def take(*looks: int, each: int = STEPS) -> list[tuple[int, int, int | None]]:
        happened, streams = [], [Stream(number) for number in looks]
        given = iter(streams)
        monkeypatch.setattr(local, "own_stream", lambda: next(given))

        def steps(run: int, _):
            for epoch in range(EPOCHS):
                for step in range(each):
                    happened.append((run, epoch, step))
                    streams[run].left = streams[run].looks
                    yield step == each - 1
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
    monkeypatch.setattr(local, "APART", 0.0)
    happened = turns(0, 0, 0)  # they begin one after the other
    assert happened.index((0, 0, None)) < happened.index((2, 0, STEPS - 1))
    assert len(happened) == 3 * EPOCHS * (STEPS + 1)


def test_of_runs_the_gpu_is_done_with_who_has_waited_longest_goes_on(turns):
    happened = turns(0, 0, 0, each=1)
    ends = [run for run, _, step in happened if step is None]
    assert ends == [0, 0, 1, 2, 1, 2], "the first is there before the others"


def test_where_the_gpu_fails_a_runs_own_turn_says_so_and_others_have_theirs(monkeypatch):
    given = iter([Stream(0), Broken(0), Stream(0)])
    monkeypatch.setattr(local, "own_stream", lambda: next(given))

    def steps(run: int, _):
        yield True
        if run == 1:
            raise RuntimeError("an illegal memory access was encountered")

    outcomes = dict(local.pack_up(range(3), SimpleNamespace(steps=steps), lambda *_: None, pack=3))
    assert outcomes[0] is None and outcomes[2] is None
    assert "illegal memory access" in str(outcomes[1])


def test_runs_that_are_left_are_each_closed_on_their_own_stream_whatever_another_does(monkeypatch):
    streams, begun, closed = [Stream(0) for _ in range(3)], set(), []
    given = iter(streams)
    monkeypatch.setattr(local, "own_stream", lambda: next(given))
    monkeypatch.setattr(local, "APART", 0.0)

    def steps(run: int, _):
        begun.add(run)
        try:
            while run or len(begun) < 3:
                yield False
            raise KeyboardInterrupt
        finally:
            closed.append((run, [stream.entered for stream in streams]))
            if run == 2:
                raise OSError("no space left on device")

    with pytest.raises(OSError):
        list(local.pack_up(range(3), SimpleNamespace(steps=steps), lambda *_: None, pack=3))
    assert sorted(closed) == [(run, [run == other for other in range(3)]) for run in range(3)]


def test_steps_say_which_is_the_last_of_an_epoch(digits):
    learner = learner_of("er", digits, epochs=2)
    said = list(learner.updating(digits.tasks[0]))
    steps = len(said) // 2
    assert [number for number, last in enumerate(said) if last] == [steps - 1, 2 * steps - 1]
