"""The memory's logits brought up to date (after Boschini et al., 2022): stored before a class came, they know nothing
of it.

At the end of a task, what is stored of a sample becomes what the network that is tested says of it now, as it is and
not augmented: with the task's own samples of every class met so far and, if `older`, with older samples of the task's
classes.

Departs: the authors keep the new logits of older samples below the largest of their own task's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from everlearn.core.part import Part

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner


class Refreshed(Part):
    """For a method that keeps `logits`."""

    def __init__(self, older: bool = True):
        self.older = older

    @torch.no_grad()
    def end_task(self, learner: Learner, task: Task) -> None:
        super().end_task(learner, task)
        memory = learner.memory
        if memory is None or not len(memory):
            return
        x, y = memory.held()
        stored, now = memory.stored["logits"][: len(x)], learner.logits(x)
        classes = torch.arange(stored.shape[1], device=y.device)
        new = y.new_tensor(task.classes)
        met = torch.cat([new, y.new_tensor(sorted(learner.seen))])
        known = torch.isin(y, new)[:, None] & torch.isin(classes, met)
        if self.older:
            known |= torch.isin(classes, new)
        stored.copy_(torch.where(known, now.to(stored.dtype), stored))
