"""What a loss reads of a batch, or a sentence on why it is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.errors import BadInput

if TYPE_CHECKING:
    from everlearn.core.terms import Batch, Term


def without_empty(answer: Tensor | None, there: Tensor | None) -> Tensor | None:
    """The same answer; rows of an empty memory get no gradient, not even one that is no number (0/0 in their loss)."""
    if there is None or answer is None:
        return answer
    return torch.where(there.view(-1, *[1] * (answer.ndim - 1)), answer, answer.detach())


def logits(batch: Batch) -> Tensor:
    """[B, C], if the network has seen the batch and the labels are theirs."""
    if batch.z is None:
        raise BadInput("the network has not seen this batch; its z, the logits, is None")
    if batch.z.ndim != 2 or batch.y.shape != batch.z.shape[:1]:
        raise BadInput(f"logits are [B, C] and labels [B], not {_kind(batch.z)} and {_kind(batch.y)}")
    return batch.z


def recorded(batch: Batch) -> Tensor:
    """The logits the memory keeps, [B, C]."""
    found = batch.stored.get("logits")
    if found is None or found.shape != logits(batch).shape:
        raise BadInput("a batch without recorded logits of the network's own shape; a method's `keeps` names them")
    return found


def mask(classes: Tensor, z: Tensor) -> Tensor:
    """Some of the classes z are the logits of, bool [C]."""
    if classes.dtype != torch.bool or classes.shape != z.shape[1:]:
        raise BadInput(f"classes is a mask of {z.shape[1]} classes, bool [{z.shape[1]}], not {_kind(classes)}")
    return classes


def log_prior(prior: Tensor, z: Tensor) -> Tensor:
    """A number for each of the classes z are the logits of, [C]."""
    if not prior.is_floating_point() or prior.shape != z.shape[1:]:
        raise BadInput(f"a prior is a number for each of {z.shape[1]} classes, [{z.shape[1]}], not {_kind(prior)}")
    return prior


def index(which: Tensor, size: int) -> Tensor:
    """Rows of a batch of this size: a mask, or numbers. On a GPU these are not looked at: that would wait."""
    whole = which.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    inside = whole and (which.is_cuda or not which.numel() or (-size <= which.min() and which.max() < size))
    if which.ndim != 1 or not (inside or (which.dtype == torch.bool and len(which) == size)):
        raise BadInput(f"which is a mask bool [{size}] or the numbers of some of {size} rows, not {_kind(which)}")
    return which if which.dtype == torch.bool else which.long()


def parameters(theta: Tensor, own: Tensor) -> Tensor:
    """Parameters of the network whose own these are."""
    if theta.shape != own.shape or theta.dtype != own.dtype:
        raise BadInput(f"theta has all parameters in one vector, {_kind(own)}, not {_kind(theta)}")
    return theta


def some(terms: Sequence[Term]) -> Sequence[Term]:
    if not len(terms):
        raise BadInput("a step has at least one loss term, about the new samples")
    return terms


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
