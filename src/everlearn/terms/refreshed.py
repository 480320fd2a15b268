"""The memory's logits brought up to date (after Boschini et al., 2022): stored before a class came, they know nothing
of it.

At the end of a task, what is stored of a sample becomes what the network that is tested says of it now, as it is and
not augmented: with the task's own samples of every class met so far and, if `older`, with older samples of the task's
classes.

A network that has just learned a class says too much of it, of older samples, too. `older="centred"` leaves that out:
with n older samples x, stored logits z and those of now z*, a task's class c has

    z(x, c) ← z*(x, c) − 1/n Σ_x' (z*(x', c) − z(x', c)).

So samples are told apart by what is known now, and their mean logit of the class stays what it was.

Departs: the authors keep the new logits of older samples below the largest of their own task's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from everlearn.core.part import Part

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner


class Refreshed(Part):
    """For a method that keeps `logits`."""

    def __init__(self, older: bool | Literal["centred"] = True):
        self.older: bool | Literal["centred"] = older

    @torch.no_grad()
    def end_task(self, learner: Learner, task: Task) -> None:
        memory = learner.memory
        if memory is None or not len(memory):
            return
        x, y = memory.held()
        stored = memory.stored["logits"][: len(x)]
        now = learner.logits(x).to(stored.dtype)
        classes = torch.arange(stored.shape[1], device=y.device)
        new = y.new_tensor(task.classes)
        met = torch.cat([new, y.new_tensor(sorted(learner.seen))])
        own = torch.isin(y, new)[:, None]  # [M, 1]
        known = own & torch.isin(classes, met)  # [M, C]
        if self.older:
            known |= torch.isin(classes, new)
        if self.older == "centred":
            raised = torch.where(own, 0, now - stored).sum(dim=0) / (~own).sum().clamp(min=1)  # [C]
            now = torch.where(own, now, now - raised)
        stored.copy_(torch.where(known, now, stored))
