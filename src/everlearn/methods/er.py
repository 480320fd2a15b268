"""Experience Replay (Eq. 1): L = λᴰ CE(new) + λᴹ CE(memory), two means: at 1, 1 twice the step of a mean over both.

Departs: with a memory of fewer samples than the batch, a draw repeats samples (each freshly augmented), where other
implementations draw a smaller batch; the mean loss is the same up to one sample's share.
"""

from __future__ import annotations

from everlearn.core.terms import Batch, Term, cross_entropy
from everlearn.methods.base import Method


class ER(Method):
    """The memory is a reservoir over every presented sample, written after each step."""

    names = ("new", "memory")
    weights, preset = (1.0, 1.0), (1.0, 0.5)  # the preset is the paper's
    draws = 1
    remembers = True

    def rehearse(self, memory: Batch) -> list[Term]:
        return [cross_entropy(memory)]
