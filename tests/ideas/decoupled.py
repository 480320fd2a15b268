"""Loss decoupling (Liang and Li, 2023) with distillation on the new images (Li and Hoiem, 2016), on DER++.

L = CE(new; new and unseen classes) + (ρ/t) CE(new; new against old) + KD(new; old classes)
    + γ KD(memory) + λ CE(memory),

t the tasks before this one, KD on new images against the network as it was before this task.
"""

import torch

from everlearn import Batch, DERpp, Term, Weighting, cross_entropy
from everlearn.terms.taught import Taught


class Decoupled(Taught, DERpp):
    """DER++ whose loss on the new samples is in three parts."""

    names = ("new", "apart", "old heads", "dark", "memory")
    weights = preset = (1.0, 1.0, 1.0, 0.1, 0.5)

    def __init__(self, weighting: Weighting | None = None, rho: float = 0.1, temperature: float = 2.0):
        super().__init__(weighting)
        self.rho, self.temperature = rho, temperature

    def begin_task(self, learner, task) -> None:
        super().begin_task(learner, task)
        self.fresh = torch.ones(learner.classes, dtype=torch.bool, device=learner.device).index_fill(0, self.old, False)
        self.share = self.rho / max(1, learner.tasks)

    def learn(self, new: Batch) -> list[Term]:
        nothing = torch.zeros_like(new.z[:, 0])
        if self.teacher is None:
            return [cross_entropy(new), Term(nothing, new), Term(nothing, new, preserves=True)]
        fresh = new.z.masked_fill(~self.fresh, -torch.inf).logsumexp(dim=1)
        target = (self.taught(new.x) / self.temperature).softmax(dim=1)
        distilled = -(target * (new.z[:, self.old] / self.temperature).log_softmax(dim=1)).sum(dim=1)
        return [
            cross_entropy(new, classes=self.fresh),
            Term(self.share * (new.z.logsumexp(dim=1) - fresh), new),
            Term(distilled, new, preserves=True),
        ]
