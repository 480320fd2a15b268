"""Taking samples out of the memory, because somebody asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn import checks
from everlearn.core.memory import Memory
from everlearn.core.plan import reservoir
from everlearn.core.terms import EMPTY
from everlearn.errors import BadInput, passed_on, shown

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner


def forget(learner: Learner, predicate: Callable[[Tensor, Any], bool]) -> dict[Any, int]:
    """Every sample for which predicate(sample, label) holds; how many, by label."""
    checks.between_tasks(learner)  # else its ledger, its plan and its method are as they were when the epoch began
    memory, names = learner.memory, learner.labels.names
    if memory is None or not len(memory):
        return {}
    x, y = memory.held()
    with passed_on("the predicate"):
        goes = torch.tensor([_truth(predicate(sample, names[c])) for sample, c in zip(x, y.tolist())])
    kept, dropped = (~goes).nonzero()[:, 0].to(learner.device), y[goes.to(learner.device)].tolist()
    if memory.ledger.where is None:
        memory.ledger.look_up(x, y)
    close_up(memory, kept)
    memory.ledger.forget(dropped, own=learner.method.slot_rule is not reservoir)
    if dropped:
        learner.method.tell("forget", learner, kept)
    return {names[c]: dropped.count(c) for c in sorted(set(dropped))}


def _truth(answer: Any) -> bool:
    """What a predicate says; a tensor or an array of one truth is one."""
    if getattr(answer, "ndim", None) == 0:
        answer = answer.item()
    if isinstance(answer, bool):
        return answer
    shape = getattr(answer, "shape", None)
    words = shown(answer) if shape is None else f"{shown(answer)} of shape {list(shape)}; .all() makes one of many"
    raise BadInput(f"the predicate must answer with True or False, not with {words}")


def close_up(memory: Memory, rows: Tensor) -> None:
    """Keep these of the rows it holds, in this order; nothing is left of the others."""
    count = len(rows)
    for tensor in (memory.x, memory.y, *memory.stored.values()):
        tensor[:count] = tensor[rows]
        tensor[count:] = 0  # free rows and the spare one, too, hold what once was there
    memory.y[count:] = EMPTY
