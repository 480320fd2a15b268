"""torch's own randomness (a network's first weights, dropout) from a seed, leaving the caller's as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from everlearn.core.turns import each

Value = TypeVar("Value")


class Randomness:
    """torch's generators from a key, inside `with`; entered again they go on where they were left.

    On the CPU their states are copied there and back. On a GPU the generator is handed another state as a whole: a
    recorded step reads the one it was recorded with, so it must be the same object in every epoch.
    """

    def __init__(self, device: str | torch.device = "cpu"):
        self._gpu, self._inside = None, False
        if torch.device(device).type == "cuda":
            own = torch.cuda.current_device()  # first: without it there may be no generators yet
            self._gpu = torch.cuda.default_generators[own]
            self._gpu_own = self._gpu.clone_state()

    def start(self, *key: int) -> Randomness:
        first, *others = key
        seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1) if others else first
        self._own = torch.Generator().manual_seed(seed).get_state()
        if self._gpu is not None:
            self._gpu_own.manual_seed(seed)
        return self

    def state(self) -> dict[str, Tensor]:
        """Where they are."""
        on_gpu = {} if self._gpu is None else {"gpu": self._gpu_own.get_state()}
        return {"cpu": torch.get_rng_state() if self._inside else self._own} | on_gpu

    def restore(self, state: dict[str, Tensor]) -> None:
        self._own = state["cpu"].cpu().clone()  # torch takes no view of another tensor
        torch.Generator().set_state(self._own)  # what is no state is refused now, and not in the first step
        if self._gpu is not None and "gpu" in state:
            self._gpu_own.set_state(state["gpu"].cpu())

    def __enter__(self) -> None:
        self._callers, self._inside = torch.get_rng_state(), True
        torch.set_rng_state(self._own)
        if self._gpu is not None:
            self._gpu_callers = self._gpu.graphsafe_get_state()
            self._gpu.graphsafe_set_state(self._gpu_own)

    def __exit__(self, *error: object) -> None:
        self._own, self._inside = torch.get_rng_state(), False
        torch.set_rng_state(self._callers)
        if self._gpu is not None:
            self._gpu.graphsafe_set_state(self._gpu_callers)

    def alone(self, steps: Iterator[Value]) -> Iterator[Value]:
        """Steps nobody comes between: entered once for all of them."""
        with self:
            yield from steps

    def by_turns(self, steps: Iterator[Value]) -> Iterator[Value]:
        """Steps with pauses, in which the generators are the caller's. A swap takes microseconds, less than to find out
        whether a step has drawn anything."""
        return each(self, steps)


def seeded(*key: int, device: str | torch.device = "cpu") -> Randomness:
    """Inside, torch's generators start from the key."""
    return Randomness(device).start(*key)
