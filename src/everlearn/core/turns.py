"""Whoever uses a network has it alone: one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")


class Turns:
    """A lock that a thread may take several times, and that goes to whoever has waited longest.

    On a GPU what was asked of one stream is done before a turn on another begins.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._lock, self._next = threading.RLock(), threading.Lock()
        self._holder: int | None = None
        self._last: Any = None  # the stream of the last turn
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._holder != me:
            with self._next:  # or a thread that takes step after step would let no other in
                self._lock.acquire()
            self._holder = me
            if self.device.type == "cuda":
                before, self._last = self._last, torch.cuda.current_stream(self.device)
                if before not in (None, self._last):
                    torch.cuda.synchronize(self.device)
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = None
            self._lock.release()

    def __reduce__(self) -> tuple[type[Turns], tuple[torch.device]]:
        """A copy is nobody's yet."""
        return Turns, (self.device,)


def each(within: AbstractContextManager, steps: Iterator[Value]) -> Iterator[Value]:
    """Steps, each within this, and what comes between two of them without."""
    while True:
        with within:
            try:
                value = next(steps)
            except StopIteration:
                return
        yield value
