"""Learning from the network as it was before this task."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from everlearn.methods.base import Method
from everlearn.core.state import joined, part


class Taught(Method):
    """The teacher is a copy of the network in evaluation mode; `old` are the classes it knows. None in the first task."""

    teacher = None

    def begin_task(self, learner, task) -> None:
        self.old = torch.tensor(sorted(learner.seen), dtype=torch.long, device=learner.device)
        self.teacher = copy.deepcopy(learner.net.unbind()).eval() if learner.seen else None

    def end_task(self, learner, task) -> None:
        self.teacher = None

    @torch.no_grad()
    def taught(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The teacher's logits of the old classes."""
        return self.teacher(x).to(dtype)[:, self.old]

    def state(self) -> dict[str, Tensor]:
        return super().state() | joined({"teacher": self.teacher.state_dict() if self.teacher else {}})

    def restore(self, state: dict[str, Tensor]) -> None:
        known = part(state, "teacher")
        self.teacher = self.teacher if known else None
        if self.teacher:
            self.teacher.load_state_dict(known)
        super().restore({name: tensor for name, tensor in state.items() if not name.startswith("teacher.")})
