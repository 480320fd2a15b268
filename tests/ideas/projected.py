"""Backward feature projection (Gu et al., 2023): new features must be linearly mapped back to what they were.

L = DER++ + ‖A f(x) − f*(x)‖² on the memory, f* the features of the network before this task. A is learned beside θ,
by its own gradient step: with r = A f − f*, dL/dA = 2 r fᵀ / B.
"""

import torch

from everlearn import Batch, DERpp, Snapshot, Term, Weighting, cross_entropy, distance


class Projected(DERpp):
    """DER++ and a projector of features."""

    names = ("new", "dark", "memory", "features")
    weights = preset = (1.0, 0.2, 0.5, 1.0)
    features = True
    teacher: Snapshot | None = None

    def __init__(self, weighting: Weighting | None = None, projector_lr: float = 0.1):
        super().__init__(weighting)
        self.projector_lr = projector_lr

    def begin_task(self, learner, task) -> None:
        width = learner.features(task.train[0][:1]).shape[1]
        self.projector = torch.eye(width).to(learner.net.theta)
        self.teacher = Snapshot(learner.net) if learner.seen else None

    def end_task(self, learner, task) -> None:
        self.teacher = None

    def gap(self, batch: Batch) -> torch.Tensor:
        """r = A f − f*, [B, d]; 0 in the first task."""
        if self.teacher is None:
            return torch.zeros_like(batch.features)
        return batch.features @ self.projector.T - self.teacher.features(batch.x)

    def rehearse(self, dark: Batch, labelled: Batch) -> list[Term]:
        back = Term(self.gap(labelled).square().mean(dim=1), labelled)
        return [distance(dark), cross_entropy(labelled), back]

    @torch.no_grad()
    def remember(self, step, terms) -> None:
        super().remember(step, terms)
        labelled = terms.batches[-1]
        step_of = 2 * self.gap(labelled).T @ labelled.features / labelled.features.numel()
        self.projector.sub_(step_of, alpha=self.projector_lr)  # in place: a recorded step holds this address
