"""A memory that belongs to the past tasks in equal parts, written between tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from everlearn.core.ledger import firsts, keys
from everlearn.methods.base import Method

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner


class Episodic(Method):
    """After t tasks each has M/t rows, a random sample of it: the whole memory is in use from the first task on.

    No sample has two rows: what comes again stays with the task it came with."""

    remembers, slot_rule = True, None

    def begin_task(self, learner: Learner, task: Task) -> None:
        if getattr(self, "sizes", None) is None:
            self.sizes = torch.zeros(0, dtype=torch.long)  # rows of each past task

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        if getattr(self, "sizes", None) is not None:
            self.sizes = self.sizes.cpu()  # numbers to count with, wherever the network is

    def episodes(self, learner: Learner) -> list[tuple[Tensor, Tensor]]:
        """Images and labels of each past task, as stored."""
        return list(zip(*(rows.split(self.sizes.tolist()) for rows in learner.memory.held())))

    def forget(self, learner: Learner, kept: Tensor) -> None:
        of = torch.arange(len(self.sizes)).repeat_interleave(self.sizes)  # the task of each row, before
        self.sizes = torch.bincount(of[kept.cpu()], minlength=len(self.sizes))

    def end_task(self, learner: Learner, task: Task) -> None:
        tasks = learner.tasks + 1
        shares = torch.full((tasks,), learner.capacity // tasks)
        shares[: learner.capacity % tasks] += 1
        of, starts = torch.arange(tasks - 1).repeat_interleave(self.sizes), self.sizes.cumsum(0) - self.sizes
        stays = (torch.arange(len(of)) - starts[of] < shares[of]).nonzero()[:, 0]  # the first of each past task
        old_x, old_y = (rows[stays.to(rows.device)] for rows in learner.memory.held())
        chosen = np.random.default_rng([learner.seed, tasks]).permutation(len(task.train[0]))
        chosen = torch.from_numpy(chosen[: 2 * learner.capacity])  # those held already are left out
        x, y = (rows[chosen.to(rows.device)].to(learner.device) for rows in task.train)
        fresh = firsts(x, y, besides=keys(old_x, old_y)).nonzero()[: int(shares[-1]), 0]
        self.sizes = torch.cat([self.sizes.minimum(shares[:-1]), torch.tensor([len(fresh)])])
        learner.memory.fill(torch.cat([old_x, x[fresh]]), torch.cat([old_y, y[fresh]]))
