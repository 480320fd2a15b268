"""Dark Experience Replay (Buzzega et al., 2020): L = CE(new) + γ KD(memory).

KD is the mean over the classes of the squared difference between today's logits and those stored with the sample.

Departs: nothing known.
"""

from __future__ import annotations

from everlearn.core.terms import Batch, Term, distance
from everlearn.methods.er import ER


class DER(ER):
    names = ("new", "dark")
    weights = preset = (1.0, 0.3)
    keeps = ("logits",)

    def rehearse(self, dark: Batch) -> list[Term]:
        return [distance(dark)]
