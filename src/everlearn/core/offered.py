"""What a method offers, as the terms of a step or for its memory, or a sentence on what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from everlearn.core.terms import Batch, Term, Terms
from everlearn.errors import BadInput

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.learner import Learner
    from everlearn.methods.base import Method


def given(method: Method, hook: str, *batches: Batch) -> Sequence[Term]:
    """What `learn` or `rehearse` gives, if it is terms."""
    terms = getattr(method, hook)(*batches)
    right = lambda term: isinstance(term, Term) and term.loss.shape == term.batch.y.shape
    if isinstance(terms, Term) or not isinstance(terms, (list, tuple)) or not all(map(right, terms)):
        own = type(method).__name__
        raise BadInput(f"{own}.{hook} must give a list of Term(loss, batch), a loss per row{_forgot(terms)}")
    return terms


def named(method: Method, terms: Sequence[Term]) -> Sequence[Term]:
    """As many as the method has names for."""
    if len(terms) != len(method.names):
        own, names = type(method).__name__, ", ".join(method.names)
        raise BadInput(f"{own} has {len(terms)} loss terms and names {len(method.names)} of them ({names})")
    return terms


def fields(method: Method, learner: Learner) -> Mapping[str, Sequence[int]]:
    """The shapes that `fields` gives, if they are shapes, of all that the method keeps."""
    given, own = method.fields(learner), f"{type(method).__name__}.fields"
    for name in (*given, *method.keeps):
        if name not in given:
            raise BadInput(f"{own} gives no shape of '{name}'; write super().fields(learner) | {{'{name}': (…)}}")
        shape = given[name]
        if not isinstance(shape, Sequence) or not all(isinstance(size, int) for size in shape):
            raise BadInput(f"{own} gives '{name}' the shape {shape!r}; write a tuple, () of a number")
    return given


def kept(method: Method, step: Step, terms: Terms) -> Mapping[str, Tensor]:
    """What `kept` gives, if it is all that the memory has a place for."""
    given: Any = method.kept(step, terms)
    own = f"{type(method).__name__}.kept"
    if not isinstance(given, Mapping):
        raise BadInput(f"{own} must give a dictionary of tensors by name{_forgot(given)}")
    for name, place in step.memory.stored.items():
        one, wanted = given.get(name), [len(step.y), *place.shape[1:]]
        if one is None:
            raise BadInput(
                f"{own} gives no '{name}'; write super().kept(step, terms) | {{'{name}': …}}, a tensor {wanted}"
            )
        if not isinstance(one, Tensor) or list(one.shape) != wanted:
            what = list(one.shape) if isinstance(one, Tensor) else f"of type {type(one).__name__}"
            raise BadInput(f"{own} gives a '{name}' {what}; by its fields(learner) it is a tensor {wanted}")
    return given


def _forgot(given: Any) -> str:
    return "; did it forget `return`?" if given is None else ""
