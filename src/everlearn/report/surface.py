"""How a Relation Replay Net answers: each term's weight as a function of two losses."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from everlearn.collection.history import Epoch
from everlearn.errors import MALFORMED
from everlearn.report.rounding import decimals, ticks

CELLS = 20  # each way
FILE = "weighting.safetensors"  # of a run's folder
# What reading somebody's files may end in where they are missing or damaged.
WRONG = (OSError, SafetensorError, RuntimeError, *MALFORMED)  # RuntimeError: of a network whose tensors do not fit


@dataclass(frozen=True)
class Surface:
    """The Relation Replay Net's weights over the losses of a new (`x`) and a memory sample (`y`), all else held."""

    x: str
    y: str
    top: float  # both losses run from 0 to here
    losses: tuple[float, ...]  # at the cells' centres
    held: dict[str, float]  # losses of other terms
    norms: dict[str, float]
    weights: dict[str, list[list[float]]]  # by learned term: a row for each loss y, a column for each loss x

    @functools.cached_property
    def spans(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest weight of each term."""
        return {term: (min(map(min, grid)), max(map(max, grid))) for term, grid in self.weights.items()}

    def share(self, term: str, weight: float) -> float:
        """Where a weight lies between the lowest (0) and the highest (1) of its term."""
        low, high = self.spans[term]
        return (weight - low) / (high - low) if high > low else 0.5

    def decimals(self, term: str) -> int:
        """How many decimals are needed to distinguish the weights of a term."""
        low, high = self.spans[term]
        return decimals(high - low, 2, 7)


def surface(folder: Path, epochs: Sequence[Epoch], learned: Sequence[str], cells: int = CELLS) -> Surface | None:
    """The answers of a run's net over a grid of losses; None if no norms were written down to hold on to.

    Of terms whose weights are not `learned` (a weighting's option: one name or several, none for all) nothing is shown,
    for what the net answers for them is not used.
    """
    import torch

    seen = [epoch for epoch in epochs if epoch.norms]
    if not seen:
        return None
    last = seen[-1]
    terms = tuple(last.loss)
    learned = [learned] if isinstance(learned, str) else learned or terms
    highest = max(epoch.loss[term] for epoch in seen for term in (terms[0], terms[-1])) or 1.0
    step = ticks(highest)[1]
    top = step * math.ceil(highest / step - 1e-9)
    centres = (torch.arange(cells) + 0.5) * (top / cells)
    losses = torch.tensor([last.loss[term] for term in terms]).repeat(cells, cells, 1)  # [y, x, k]
    losses[..., 0], losses[..., -1] = centres, centres[:, None]
    norms = torch.tensor([last.norms[term] for term in terms]).expand_as(losses)
    with torch.no_grad():
        weights = _net(folder)(losses, norms)
    return Surface(
        terms[0],
        terms[-1],
        top,
        tuple(centres.tolist()),
        {term: last.loss[term] for term in terms[1:-1]},
        last.norms,
        {term: weights[..., j].tolist() for j, term in enumerate(terms) if term in learned},
    )


def _net(folder: Path):
    """The Relation Replay Net as the run left it."""
    from safetensors.torch import load_file

    from everlearn.core.state import part
    from everlearn.weightings.net import RelationReplayNet

    state = {name: tensor.float() for name, tensor in part(load_file(folder / FILE), "rrn").items()}
    hidden, terms = state["losses.weight"].shape
    if not all(tensor.isfinite().all() for tensor in state.values()):
        raise ValueError("not a number")
    found = RelationReplayNet(terms, hidden)
    found.load_state_dict(state)
    return found
