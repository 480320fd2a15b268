"""The Relation Replay Net, h(·; φ): a row's losses and logit norms in, the weights of its terms out (Eq. 5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from everlearn.core.plan import paired
from everlearn.core.terms import Terms


class RelationReplayNet(nn.Module):
    """w = σ(W₃ (relu(W₁ losses) + relu(W₂ norms))), biases left out here; 130 parameters for k = 2, 179 for k = 3."""

    def __init__(self, terms: int, hidden: int = 16):
        super().__init__()
        self.losses = nn.Linear(terms, hidden)
        self.norms = nn.Linear(terms, hidden)
        self.weights = nn.Linear(hidden, terms)

    def forward(self, losses: Tensor, norms: Tensor) -> Tensor:
        """[B, k] and [B, k], raw, to [B, k] in (0, 1)."""
        return torch.sigmoid(self.weights(torch.relu(self.losses(losses)) + torch.relu(self.norms(norms))))


def norms(terms: Terms) -> Tensor:
    """‖z‖₂ of each row of each term, [B, k], as plain numbers: no gradient runs through them."""
    each = (torch.linalg.vector_norm(batch.z.detach(), dim=1) for batch in terms.batches)
    return torch.stack([paired(norm, terms.size) for norm in each], dim=1)
