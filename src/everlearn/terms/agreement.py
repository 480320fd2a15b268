"""Consistency: two views of a sample are to be answered alike."""

from __future__ import annotations

from everlearn.core.terms import Batch, Term


def agreement(batch: Batch) -> Term:
    """The squared distance between the probabilities of a sample's first two views, of each row.

    For a batch with `views`, of new samples or of a draw.
    """
    return Term((batch.z.softmax(dim=1) - batch.others[0].z.softmax(dim=1)).square().sum(dim=1), batch)
