"""What a method offers, as the terms of a step or for its memory, or a sentence on what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

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


def stored(method: Method, *batches: Batch) -> None:
    """Refuse a memory without what the method says it keeps."""
    lacking = (name for batch in batches for name in method.keeps if name not in batch.stored)
    if (name := next(lacking, None)) is not None:
        raise shapeless(method, name)


def shapeless(method: Method, name: str) -> BadInput:
    own = type(method).__name__
    return BadInput(
        f"{own} keeps '{name}' and its fields(learner) gives no shape of it; "
        f"write super().fields(learner) | {{'{name}': (…)}}"
    )


def kept(method: Method, given: Any, fields: Mapping[str, Tensor], rows: int) -> Mapping[str, Tensor]:
    """What `kept` gives, if it is all that the memory has a place for; `fields` are those places."""
    own = f"{type(method).__name__}.kept"
    if not isinstance(given, Mapping):
        forgot = "; did it forget `return`?" if given is None else ""
        raise BadInput(f"{own} must give a dictionary of tensors by name{forgot}")
    for name, place in fields.items():
        one, wanted = given.get(name), [rows, *place.shape[1:]]
        if one is None:
            raise BadInput(
                f"{own} gives no '{name}'; write super().kept(step, terms) | {{'{name}': …}}, a tensor {wanted}"
            )
        if not isinstance(one, Tensor) or list(one.shape) != wanted:
            what = list(one.shape) if isinstance(one, Tensor) else f"of type {type(one).__name__}"
            raise BadInput(f"{own} gives a '{name}' {what}; by its fields(learner) it is a tensor {wanted}")
    return given
