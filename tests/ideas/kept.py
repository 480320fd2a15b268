"""Further fields in the memory: beside each sample the task it came in and the features it had."""

import torch

from everlearn import ER, Batch, Term, cross_entropy


class Kept(ER):
    """ER that keeps with each sample the task it came in and the features it had, and pulls features back to them."""

    names = ("new", "memory", "kept")
    weights = preset = (1.0, 1.0, 0.1)
    features, keeps = True, ("features", "task")

    def fields(self, learner) -> dict[str, tuple[int, ...]]:
        return {"features": (learner.width,), "task": (1,)}

    def begin_task(self, learner, task) -> None:
        self.task = torch.full((1,), float(learner.tasks)).to(learner.net.theta)

    def kept(self, step, terms) -> dict[str, torch.Tensor]:
        return {"features": terms.new.features, "task": self.task.expand(len(step.y), 1)}

    def rehearse(self, memory: Batch) -> list[Term]:
        moved = (memory.features - memory.stored["features"]).square().mean(dim=1)
        return [cross_entropy(memory), Term(moved * (1 + memory.stored["task"][:, 0]), memory)]
