"""DER++ (Buzzega et al., 2020; Eq. 2): L = λᴰ CE(new) + γ KD(memory draw 1) + λᴹ CE(memory draw 2).

Departs: nothing known. The paper writes both memory terms on one batch; its code and its predecessor's draw two.
"""

from __future__ import annotations

from everlearn.core.terms import Batch, Term, cross_entropy, distance
from everlearn.methods.er import ER


class DERpp(ER):
    names = ("new", "dark", "memory")
    weights = preset = (1.0, 0.2, 0.5)
    draws = 2
    keeps = ("logits",)

    def rehearse(self, dark: Batch, labelled: Batch) -> list[Term]:
        return [distance(dark), cross_entropy(labelled)]
