"""What is kept of every step of an epoch."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from everlearn.core import ranks


class Tape:
    """Tensors by name, one per step with a row per sample, read once at the epoch's end: no step waits for a value."""

    def __init__(self):
        self._kept: dict[str, list[Tensor]] = defaultdict(list)

    def keep(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            self._kept[name].append(tensor.detach())

    def last(self) -> dict[str, Tensor]:
        return {name: tensors[-1] for name, tensors in self._kept.items()}

    def read(self) -> dict[str, Tensor]:
        return {name: ranks.all_gather(torch.stack(tensors), dim=1) for name, tensors in self._kept.items()}

    def restore(self, kept: dict[str, Tensor]) -> None:
        """What was read of an epoch's first steps: this rank goes on with its rows of it."""
        own = lambda tensor: tensor.chunk(ranks.world_size(), dim=1)[ranks.rank()]
        self._kept.update({name: list(own(tensor).unbind(0)) for name, tensor in kept.items()})
