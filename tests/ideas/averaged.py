"""The averaged network at test time: a moving average of θ and of the running statistics, after each step."""

from torch import Tensor

from everlearn import ER, Average, Weighting


class Averaged(ER):
    """ER, tested as the running average of its network."""

    def __init__(self, weighting: Weighting | None = None, decay: float = 0.9):
        super().__init__(weighting)
        self.decay, self.average = decay, Average(decay)

    def after_step(self, step, gradient: Tensor, direction: Tensor) -> None:
        self.average.update(step.net)

    def predict(self, learner, x: Tensor) -> Tensor:
        with self.average.applied(learner.net):
            return learner.logits(x)
