"""ER-ACE, asymmetric cross-entropy (Caccia et al., 2022): L = CE(new; its classes and the unseen) + CE(memory; all classes).

New samples are told apart from each other only, so they do not push the old classes' logits down.

Departs: classes of no task so far stay in the new samples' softmax, as in its authors' code and not in their equation.
The loss is the sum of the two terms; their code halves it.
"""

from __future__ import annotations

import torch

from everlearn.core import ranks
from everlearn.methods.er import ER
from everlearn.core.terms import Batch, Term, cross_entropy


class ERACE(ER):
    """Inside a task the mask is the batch's own labels and the classes not met by its end."""

    def begin_task(self, learner, task) -> None:
        met = torch.tensor(sorted(learner.seen | set(task.classes)), device=learner.device)
        self.unseen = torch.ones(learner.classes, dtype=torch.bool, device=learner.device).index_fill(0, met, False)

    def learn(self, new: Batch) -> list[Term]:
        return [cross_entropy(new, classes=self.unseen.index_fill(0, ranks.all_gather(new.y), True))]
