"""Learning without Forgetting (Li and Hoiem, 2016): L = CE(new) + α KD(new), old classes only, no memory.

CE runs over the classes of the new task, its head alone. KD is the cross-entropy between softmax(z*/T) and softmax(z/T)
over the classes of earlier tasks, z* the logits of the network as it was before this task, on the same augmented and
normalised images.

Departs: the new head is not trained alone first. With `head="all"` CE runs over all classes, as in the code behind the
published tables; this is the default on their streams. New samples then push old classes down (digits: Class-IL ACC
19.5 instead of 51.1, ten seeds). A head of a single class has nothing to learn, so tasks of one class need
`head="all"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlearn.core.part import mask_of
from everlearn.core.terms import Batch, Term, cross_entropy
from everlearn.errors import unknown
from everlearn.methods.base import Method
from everlearn.terms import Distilled
from everlearn.weightings.base import Weighting

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner

HEADS = ("own", "all")


class LwF(Method):
    names = ("new", "old heads")

    def __init__(self, weighting: Weighting | None = None, temperature: float = 2.0, head: str = "own"):
        super().__init__(weighting)
        if head not in HEADS:
            raise unknown("head", head, HEADS)
        self.distilled = Distilled(temperature)
        self.temperature, self.head = temperature, head

    def begin_task(self, learner: Learner, task: Task) -> None:
        self.heads = mask_of(task.classes, learner) if self.head == "own" else None

    def learn(self, new: Batch) -> list[Term]:
        return [cross_entropy(new, classes=self.heads), self.distilled(new)]
