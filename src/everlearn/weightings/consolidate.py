"""Consolidate, a rule without a net: first learn the new task, then only rehearse."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from everlearn.core.terms import Terms
from everlearn.weightings.base import Phased

if TYPE_CHECKING:
    from everlearn.training import Training


class Consolidate(Phased):
    """After the warm-up new samples' terms have weight 0, and terms that preserve the old keep their preset weight."""

    derived: ClassVar[tuple[str, ...]] = ("rehearsal",)

    def past_warmup(self, terms: Terms) -> Tensor:
        if getattr(self, "rehearsal", None) is None:
            self.rehearsal: Tensor = self.preset * torch.tensor(terms.preserves, device=self.preset.device)
        return self.rehearsal

    def notes(self, training: Training, tasks: int | None, name: str) -> list[str]:
        known = super().notes(training, tasks, name)
        if self.warmup == 0 and not known:
            return [f"there is no warm-up: {name} will learn new samples from the memory only; 2 epochs have one"]
        return known
