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
        *shares, share = [learner.capacity // tasks + (n < learner.capacity % tasks) for n in range(tasks)]
        kept = [(x[:rows], y[:rows]) for (x, y), rows in zip(self.episodes(learner), shares)]
        chosen = np.random.default_rng([learner.seed, tasks]).permutation(len(task.train[0]))
        chosen = torch.from_numpy(chosen[: 2 * learner.capacity])  # those held already are left out
        x, y = (rows[chosen.to(rows.device)].to(learner.device) for rows in task.train)
        fresh = firsts(x, y, besides=(key for episode in kept for key in keys(*episode)))
        kept.append((x[fresh][:share], y[fresh][:share]))
        self.sizes = torch.tensor([len(x) for x, _ in kept])
        learner.memory.fill(*(torch.cat(part) for part in zip(*kept)))
