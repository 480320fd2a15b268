"""All a learner has learned, as tensors by name: what `Learner.state` gives and `Learner.restore` takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn import checks
from everlearn.core.memory import Memory
from everlearn.core.snapshot import made_again
from everlearn.core.state import as_bytes, copied, from_bytes, joined, part
from everlearn.errors import BadInput
from everlearn.learner import growth, teaching
from everlearn.learner.unkept import begun

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner


def state(learner: Learner) -> dict[str, Tensor]:
    if learner._torn:
        raise BadInput(teaching.UNDER_WAY if learner._learning else teaching.BROKEN_OFF)
    method, memory = learner.method, learner.memory
    like = lambda name, of: [f"{name}.{inner}" for inner in growth.like_theta(of, learner.net.theta.shape)]
    known = {
        "labels": learner.labels.document(),
        "head": learner.head,
        "inputs": learner.inputs and learner.inputs.document(),
        "plain": sorted([*like("method", method), *like("weighting", method.weighting), *like("sgd", learner.sgd)]),
    }
    if learner.columns is not None:
        known["columns"] = learner.columns
    parts = {
        "network": learner.net.state(),
        "method": method.state() if learner._resumed is None else learner._resumed[0],
        "weighting": method.weighting.state(),
        "sgd": learner.sgd.state(),
        "memory": {} if memory is None else memory.state(),
        "learner": {
            "lr": torch.tensor(checks.rate(learner), dtype=torch.float64),
            "progress": torch.tensor([learner.tasks, learner.epoch, 0 if memory is None else memory.ledger.presented]),
            "task": learner._mark,
            "trained": learner._trained,
            "ended": torch.tensor(learner._ended),
            "seen": torch.tensor(sorted(learner.seen), dtype=torch.long),
            "method": as_bytes(type(method).__name__),
            "weighting": as_bytes(type(method.weighting).__name__),
            "known": as_bytes(json.dumps(known)),
            "prequential": learner.prequential.state(),
        },
    }
    if learner.within_task:
        parts["learner"]["begun"] = as_bytes(learner._begun)
    if learner.step and learner._place is not None:
        parts["epoch"] = {"step": torch.tensor(learner.step)} | learner._place.state(learner.device)
    state = copied(joined(parts))
    # Of vectors like θ the layout is the device's and the precision's own; a state goes on anywhere.
    return state | {name: learner.net.plain(state[name]) for name in known["plain"] if name in state}


def restore(learner: Learner, state: dict[str, Tensor]) -> None:
    known = checks.state(learner, state)
    checks.shapes(learner, state, known)
    words = from_bytes(state["learner.begun"]) if "learner.begun" in state else "[]"
    begun(words)  # what cannot be read is refused before anything is restored
    state = {name: tensor.detach().to(learner.device, copy=True) for name, tensor in state.items()}
    if known is not None:
        growth.restore(learner, known, part(state, "network"))
    learner.net.unbind().load_state_dict(part(state, "network"))
    # A state from before it was said has them as the learner had that wrote it.
    for name in state.keys() & set((known or {}).get("plain", ())):
        state[name] = learner.net.laid_out(state[name])
    learner.tasks, learner.epoch, presented = state["learner.progress"].tolist()
    learner.seen, learner._mark = set(state["learner.seen"].tolist()), state["learner.task"].cpu()
    learner._trained = state.get("learner.trained", torch.zeros(3, dtype=torch.long)).cpu()
    learner._ended = bool(state.get("learner.ended", False))
    learner._begun = words
    learner._learning, learner._torn = False, False
    learner.memory, learner._watched = None, None
    if memory := part(state, "memory"):
        learner.memory = Memory(learner.capacity, memory["x"])
        learner.memory.restore(memory)
        learner.memory.ledger.rule = learner.rule
        learner.memory.ledger.restore(presented, memory.get("ledger"))
        if "features" in learner.memory.stored:
            learner.width = learner.memory.stored["features"].shape[1]
    learner.prequential.restore(state.get("learner.prequential"))
    learner.sgd.restore(part(state, "sgd"))
    learner.sgd.lr = float(state.get("learner.lr", learner.sgd.lr))  # an older state does not say it
    made_again(learner.method, part(state, "method"), learner.net)
    learner.method.restore(part(state, "method"))
    learner.method.weighting.restore(part(state, "weighting"))
    within = part(state, "epoch")
    learner.step = int(within.get("step", 0))
    learner._place = teaching.Place.restored(within, learner.device) if within else None
    if learner.within_task:
        learner._resumed = copied(part(state, "method")), copied(part(state, "weighting"))
    else:
        learner._resumed = None
        checks.claimed(learner.method, part(state, "method"))
