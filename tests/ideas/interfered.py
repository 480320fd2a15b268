"""Maximally interfered retrieval (Aljundi et al., 2019): rehearse those whose loss the coming step raises most.

The coming step is the one on the new samples alone. A draw has 12 samples, of which as many as the batch are kept.
"""

from everlearn import ER, Draw, cross_entropy
from everlearn.core.terms import seen_by


class Interfered(ER):
    """ER whose draws depend on losses."""

    draws = (Draw(size=12),)

    def select(self, step) -> None:
        (drawn,), theta = step.replay, step.net.theta
        (new,) = seen_by(step.net.at(theta, virtual=True), step.new)
        ahead = theta.detach() - step.sgd.lr * step.net.gradient(cross_entropy(new).loss.mean())
        before, after = (cross_entropy(step.ask(drawn, at)).masked() for at in (theta, ahead))
        step.replay = (drawn.rows((after - before).topk(len(step.new.y)).indices),)
