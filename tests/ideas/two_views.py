"""Two views of each new sample, the second noisier: both are learned, and their answers are to agree.

The first term's rows are the new samples twice; the second is the squared difference of the two views' probabilities.
"""

import torch
from torch import Tensor

from everlearn import ER, Batch, Term, cross_entropy


def noisy(x: Tensor) -> Tensor:
    return x + 0.1 * torch.randn_like(x)


class TwoViews(ER):
    """ER that learns from a second, stronger view of the new samples."""

    names = ("new", "agree", "memory")
    weights = preset = (1.0, 0.5, 1.0)
    views = (None, noisy)

    def learn(self, new: Batch) -> list[Term]:
        (second,) = new.others
        twice = Batch(torch.cat([new.x, second.x]), torch.cat([new.y, second.y]), torch.cat([new.z, second.z]))
        agree = (new.z.softmax(dim=1) - second.z.softmax(dim=1)).square().sum(dim=1)
        return [Term(cross_entropy(twice).loss.view(2, -1).mean(dim=0), new), Term(agree, new)]
