"""What a method offers as the terms of a step, or a sentence on what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everlearn.core.terms import Batch, Term
from everlearn.errors import BadInput

if TYPE_CHECKING:
    from everlearn.methods.base import Method


def given(method: Method, hook: str, *batches: Batch) -> Sequence[Term]:
    """What `learn` or `rehearse` gives, if it is terms."""
    terms = getattr(method, hook)(*batches)
    right = lambda term: isinstance(term, Term) and term.loss.shape == term.batch.y.shape
    if isinstance(terms, Term) or not isinstance(terms, (list, tuple)) or not all(map(right, terms)):
        forgot = "; did it forget `return`?" if terms is None else ""
        own = type(method).__name__
        raise BadInput(f"{own}.{hook} must give a list of Term(loss, batch), a loss per row{forgot}")
    return terms


def named(method: Method, terms: Sequence[Term]) -> Sequence[Term]:
    """As many as the method has names for."""
    if len(terms) != len(method.names):
        own, names = type(method).__name__, ", ".join(method.names)
        raise BadInput(f"{own} has {len(terms)} loss terms and names {len(method.names)} of them ({names})")
    return terms
