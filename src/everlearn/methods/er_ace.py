"""ER-ACE, asymmetric cross-entropy (Caccia et al., 2022): L = CE(new; its and unseen classes) + CE(memory; all).

New samples compete with each other only, so they do not push the old classes' logits down.

Departs: classes of no task so far stay in the new samples' softmax, as in its authors' code and not in their equation.
The loss is the sum of the two terms; their code halves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlearn.core import ranks
from everlearn.core.part import mask_of
from everlearn.core.terms import Batch, Term, cross_entropy
from everlearn.methods.er import ER

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner


class ERACE(ER):
    """Inside a task the mask is the batch's own labels and the classes not met by its end."""

    def begin_task(self, learner: Learner, task: Task) -> None:
        self.unseen = ~mask_of(learner.seen | set(task.classes), learner)

    def learn(self, new: Batch) -> list[Term]:
        return [cross_entropy(new, classes=self.unseen.index_fill(0, ranks.all_gather(new.y), True))]
