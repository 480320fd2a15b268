"""Signals that end a run are heard between two of its steps, when its state can be written down."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from everlearn.core import ranks
from everlearn.learner import Learner

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
_learners: list[Learner] = []  # of the runs under way in this process
_usual: dict[int, Any] = {}  # what the signals did before the first of them
_waiting: list[int] = []


@contextlib.contextmanager
def heard(learner: Learner) -> Iterator[None]:
    """Inside, a signal that comes while a task is learned waits until `let_through` is called, and then does what it
    always did; one that would end the process at once is an exit. A second Ctrl-C does not wait. Programs may well
    send the others twice (a pool whose first worker has ended asks all of them again), and have SIGKILL.

    Ranks end together or not at all: there nothing waits. Signals are the main thread's.
    """
    if ranks.distributed() or threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _learners:
        ours = {number: signal.getsignal(number) for number in SIGNALS}
        _usual.update({number: usual for number, usual in ours.items() if usual not in (signal.SIG_IGN, None)})
        for number in _usual:
            signal.signal(number, _hear)
    _learners.append(learner)
    try:
        yield
    finally:
        _learners.remove(learner)
        if not _learners:
            for number, usual in _usual.items():
                if signal.getsignal(number) is _hear:
                    signal.signal(number, usual)
            _usual.clear()
            _waiting.clear()


def waiting() -> bool:
    """Is there one that waits?"""
    return bool(_waiting)


def let_through() -> None:
    """Now is the time for what waits."""
    while _waiting:
        _act(_waiting.pop(0), None)


def _hear(number: int, frame: FrameType | None) -> None:
    again = number in _waiting
    if (again and number == signal.SIGINT) or not any(learner.stepping for learner in _learners):
        _act(number, frame)
    elif not again:
        _waiting.append(number)


def _act(number: int, frame: FrameType | None) -> None:
    usual = _usual[number]
    if callable(usual):
        usual(number, frame)
    else:
        raise SystemExit(128 + number)
