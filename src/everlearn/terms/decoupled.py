"""Loss decoupling (Liang and Li, 2023): the new samples' cross-entropy in two terms, each with a weight of its own.

CE(new; new and unseen classes) + s · (log Σ exp z − log Σ_{new and unseen} exp z), the second telling new classes from
old ones. With s = 1 it is CE(new).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.part import Part, mask_of
from everlearn.core.terms import Batch, Term, cross_entropy
from everlearn.errors import number, unknown
from everlearn.terms.adjusted import log_prior

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner

BALANCES = ("rule", "prior", "both", "rho", "plain")
BY_HEART = 300.0  # rehearsals of a sample


def apart(batch: Batch, classes: Tensor, prior: Tensor | None = None) -> Term:
    """What is left of CE(z, y) when `classes` (a mask [C]) are told apart by themselves: these against all others.

    log Σ exp z − log Σ_classes exp z, of each row: CE(z, y) = CE(z, y; classes) + this, for y in them.
    """
    z = batch.z if prior is None else batch.z + prior
    return Term(z.logsumexp(dim=1) - z.masked_fill(~classes, -torch.inf).logsumexp(dim=1), batch)


class Decoupled(Part):
    """s by `balance`, t being the number of tasks before this one:

    - `prior`: 1, and all logits z are z + log π, π the classes' frequencies in the training batches (Ren et al., 2020).
    - `rule`: min(1, h/(tR)), h = `by_heart`, R = epochs · samples / memory: how often a sample of the memory is
      rehearsed in a task. A sample known by heart no longer resists the new samples' push, which has to be gentle.
    - `both`: the prior, and s of the rule.
    - `rho`: ρ/t, with ρ as given.
    - `plain`: 1, for a weighting to learn.
    """

    prior: Tensor | None = None

    def __init__(self, balance: str = "rule", rho: float = 0.1, by_heart: float = BY_HEART):
        if balance not in BALANCES:
            raise unknown("balance", balance, BALANCES)
        number("rho", rho)
        number("by_heart", by_heart, positive=True)
        self.balance, self.rho, self.by_heart = balance, rho, by_heart

    def begin_task(self, learner: Learner, task: Task) -> None:
        old = learner.seen - set(task.classes)
        self.fresh: Tensor = ~mask_of(old, learner)  # [C] the task's classes, come before or not, and unseen ones
        if self.balance in ("prior", "both"):
            self.prior = log_prior(learner, task)
        self.share = self.shared(learner, task)

    def shared(self, learner: Learner, task: Task) -> float:
        if self.balance in ("prior", "plain"):
            return 1.0
        before = max(1, learner.tasks)
        if self.balance == "rho":
            return self.rho / before
        return min(1.0, self.by_heart * learner.capacity / (before * learner.epochs * len(task.train[1])))

    def __call__(self, new: Batch) -> list[Term]:
        between = apart(new, self.fresh, self.prior)
        return [cross_entropy(new, self.fresh, self.prior), between._replace(loss=self.share * between.loss)]

    def labelled(self, memory: Batch) -> Term:
        """The memory's cross-entropy, of the same logits."""
        return cross_entropy(memory, prior=self.prior)
