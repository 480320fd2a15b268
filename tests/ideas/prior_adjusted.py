"""Balanced softmax (Ren et al., 2020) for a training mix of new and remembered samples: CE(z + log π, y).

π are the class frequencies of the mix: 1/k_new + 1/k_seen for new classes, 1/k_seen for old ones, 0 for others.
"""

import torch

from everlearn import Batch, DERpp, Term, cross_entropy, distance


class PriorAdjusted(DERpp):
    """DER++ whose cross-entropies know how often each class comes."""

    def begin_task(self, learner, task) -> None:
        seen = sorted(learner.seen | set(task.classes))
        mix = torch.zeros(learner.classes)
        mix[seen] += 1 / len(seen)
        mix[list(task.classes)] += 1 / len(task.classes)
        self.prior = (mix / mix.sum()).log().to(learner.net.theta)

    def adjusted(self, batch: Batch) -> Term:
        return Term(cross_entropy(batch._replace(z=batch.z + self.prior)).loss, batch)

    def learn(self, new: Batch) -> list[Term]:
        return [self.adjusted(new)]

    def rehearse(self, dark: Batch, labelled: Batch) -> list[Term]:
        return [distance(dark), self.adjusted(labelled)]
