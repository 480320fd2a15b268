"""Steps as CUDA graphs: a step is recorded once and then replayed, one launch from the host instead of hundreds."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import NoneType

import numpy as np
import torch
from torch import Tensor

from everlearn.arguments import trusted
from everlearn.core.plan import Plan, Row
from everlearn.core.state import Stateful
from everlearn.core.tape import Tape
from everlearn.errors import BadInput

Body = Callable[[int, Row, Tape], None]
PLAIN = (bool, int, float, str, bytes, NoneType, np.generic)  # compared by what they are, anything else by which it is
_recording = threading.Lock()


@contextlib.contextmanager
def on_own_stream() -> Iterator[None]:
    """A CUDA stream of one's own where there is a GPU: what runs on the common one cannot be recorded."""
    if not torch.cuda.is_available():
        yield
        return
    outside, own = torch.cuda.current_stream(), torch.cuda.Stream()
    own.wait_stream(outside)
    try:
        with torch.cuda.stream(own):
            yield
    finally:
        outside.wait_stream(own)


def own_stream() -> contextlib.AbstractContextManager:
    """A CUDA stream for a run that takes turns with others, entered at each of its turns; without a GPU nothing."""
    return torch.cuda.stream(torch.cuda.Stream()) if torch.cuda.is_available() else contextlib.nullcontext()


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Garbage collection is off: it may free another learner's graph, which would abort this recording. One thread at
    a time records."""
    with _recording:
        enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()


class Graphs:
    """The steps of one task. Steps of one variant are the same sequence of operations; each variant is a graph.

    The first step of a variant runs as it is (libraries choose their kernels then), the second is recorded, and from
    then on it is replayed: what changes from step to step is the row of the plan, copied to where the graph reads it.
    A graph reads the tensors of the `holders` (the method, the weighting) at their addresses, and their plain values as
    they were when it was recorded. An attribute assigned between two epochs makes it be recorded again. A step that
    assigns an attribute every time is refused.
    """

    def __init__(self, body: Body, *holders: object):
        self.body, self.holders = body, holders
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Row, dict[str, Tensor]] | None] = {}
        self.pool = torch.cuda.graph_pool_handle()  # graphs of a task never run at the same time: they share memory
        self.stale: list = []  # graphs no longer replayed; the memory is theirs until another is recorded

    def begin_epoch(self) -> None:
        if self.graphs and changed(self.held, held(self.holders)):
            self._forget()

    def step(self, variant: Hashable, number: int, row: Row, tape: Tape) -> None:
        if variant not in self.graphs:
            return self._first(variant, number, row, tape)
        if (recorded := self.graphs[variant]) is None:
            recorded = self.graphs[variant] = self._record(number, row)
            self.stale.clear()
        graph, reads, kept = recorded
        for place, value in zip(reads, row):
            if value is not None:
                place.copy_(value)
        graph.replay()
        tape.keep(**{name: tensor.clone() for name, tensor in kept.items()})  # the next replay overwrites them

    def _first(self, variant: Hashable, number: int, row: Row, tape: Tape) -> None:
        before = held(self.holders)
        self.body(number, row, tape)
        self.held = held(self.holders)
        if changed(before, self.held):  # made in its first step: a mask, say
            self._forget()
        self.graphs[variant] = None

    def _record(self, number: int, row: Row) -> tuple[torch.cuda.CUDAGraph, Row, dict[str, Tensor]]:
        if torch.cuda.current_stream() == torch.cuda.default_stream():
            raise BadInput(
                "steps are recorded on a stream of their own; go through them within "
                "`with torch.cuda.stream(torch.cuda.Stream()):`, or call `update`"
            )
        graph, tape = torch.cuda.CUDAGraph(), Tape()
        reads = Row._make(None if value is None else value.clone() for value in row)
        torch.cuda.synchronize()
        with uncollected():
            graph.capture_begin(pool=self.pool)
            try:
                self._watched(number, reads, tape)
            finally:
                graph.capture_end()
        return graph, reads, tape.last()

    def _watched(self, number: int, row: Row, tape: Tape) -> None:
        before = held(self.holders)
        self.body(number, row, tape)
        for holder, name in changed(before, held(self.holders)):
            raise BadInput(
                f"a step binds {holder}.{name} anew, which a recorded step cannot do again; "
                "keep a tensor and write into it (add_, copy_, lerp_), or say `captures = False` in the method"
            )

    def _forget(self) -> None:
        self.stale += self.graphs.values()
        self.graphs.clear()


def held(holders: Iterable[object]) -> dict[tuple[str, str], object]:
    """What they hold, by class and name."""
    return {(type(holder).__name__, name): fixed(value) for holder in holders for name, value in vars(holder).items()}


def fixed(value: object) -> object:
    """A value as it is now: containers and parts as tuples of what they hold, anything else itself."""
    if isinstance(value, Stateful):
        value = vars(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(fixed, value))
    if isinstance(value, dict):
        return tuple((key, fixed(of)) for key, of in value.items())
    return value


def changed(before: dict, after: dict) -> list[tuple[str, str]]:
    """What is other now, came or went."""
    return [key for key in before | after if not alike(before.get(key, ...), after.get(key, ...))]


def alike(one: object, other: object) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one is other or (isinstance(one, PLAIN) and isinstance(other, PLAIN) and bool(one == other))


def train_epoch(
    body: Body, plan: Plan, variant: Callable[[int], object], tape: Tape, graphs: Graphs | None = None, first: int = 0
) -> Iterator[int]:
    """The steps of a plan from the `first` on, replayed as CUDA graphs where there are any; `variant` gives the kind of
    a step.

    A generator that pauses after each step and gives its number: runs that share a GPU take turns.
    """
    if graphs is not None:
        graphs.begin_epoch()
    for number in range(first, len(plan)):
        with trusted(number > first):
            if graphs is None:
                body(number, plan[number], tape)
            else:
                graphs.step(variant(number), number, plan[number], tape)
        yield number
