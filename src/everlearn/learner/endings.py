"""Signals that end a training are heard between two steps: there it can be gone on with."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from everlearn.core import ranks

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
CTRL_C = [signal.SIGINT]
_trainings = 0  # under way in this process
_usual: dict[int, Any] = {}  # what the signals did before the first of them
_waiting: list[int] = []
_open = False  # do signals act at once?


@contextlib.contextmanager
def heard(signals: Sequence[int] = SIGNALS) -> Iterator[None]:
    """Inside, which is a whole training, a signal waits until `let_through` is called or the training is over, and then
    does what it always did; one that would end the process at once is an exit.

    A second Ctrl-C does not wait. Programs may well send the others twice (a pool whose first worker has ended asks all
    of them again), and have SIGKILL. Ranks end together or not at all: there nothing waits. Signals are the main
    thread's.
    """
    global _trainings
    if ranks.distributed() or not _main_thread():
        yield
        return
    if not _trainings:
        ours = {number: signal.getsignal(number) for number in signals}
        _usual.update({number: usual for number, usual in ours.items() if usual not in (signal.SIG_IGN, None)})
        for number in _usual:
            signal.signal(number, _hear)
    _trainings += 1
    try:
        yield
    finally:
        _trainings -= 1
        if not _trainings:
            for number, usual in _usual.items():
                if signal.getsignal(number) is _hear:
                    signal.signal(number, usual)
            try:
                let_through()
            finally:
                _usual.clear()
                _waiting.clear()


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Inside nothing waits: it takes long, and all there is to know is in the state before it."""
    global _open
    if not _main_thread():
        yield
        return
    before, _open = _open, True
    try:
        let_through()
        yield
    finally:
        _open = before


@contextlib.contextmanager
def between_steps() -> Iterator[bool]:
    """Inside, which is a learner's own training, Ctrl-C waits. May it be let through between two steps?

    It may not within a step of another training, which could not be gone on with then: it is that one's to hear. In
    another's callback it may.
    """
    global _open
    if not _main_thread() or (_trainings and not _open):
        yield False
        return
    before = _open
    with heard(CTRL_C):
        _open = False
        try:
            yield True
        finally:
            _open = before
    if before:
        let_through()


@contextlib.contextmanager
def exits(late: bool = False) -> Iterator[None]:
    """Inside, a signal that would end the process at once is an exit, so that it can put things in order; a `late` one
    waits for the end."""
    if not _main_thread():
        yield
        return
    heard: list[int] = []
    ended = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ended:
        signal.signal(number, (lambda number, frame: heard.append(number)) if late else _exit)
    try:
        yield
    finally:
        for number in ended:
            signal.signal(number, signal.SIG_DFL)
        if heard:  # whatever it broke off inside
            _exit(heard[0], None)


@contextlib.contextmanager
def resumable(save: Callable[[], None]) -> Iterator[None]:
    """A run that is left inside has its state saved."""
    try:
        yield
    except (GeneratorExit, KeyboardInterrupt, SystemExit):
        with contextlib.suppress(OSError):  # the checkpoint before it is still there
            save()
        raise


def waiting() -> bool:
    """Is there one that waits?"""
    return bool(_waiting)


def let_through() -> None:
    """Now is the time for what waits."""
    while _waiting and _main_thread():
        _act(_waiting.pop(0), None)


def _main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _hear(number: int, frame: FrameType | None) -> None:
    again = number in _waiting
    if _open or (again and number == signal.SIGINT):
        _act(number, frame)
    elif not again:
        _waiting.append(number)


def _act(number: int, frame: FrameType | None) -> None:
    usual = _usual[number]
    if callable(usual):
        usual(number, frame)
    else:
        _exit(number, frame)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
