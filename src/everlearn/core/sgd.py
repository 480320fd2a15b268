"""The rule by which θ moves: SGD gives a direction d, and θ moves to θ − η d."""

from __future__ import annotations

import torch
from torch import Tensor

from everlearn.core.state import Stateful


class SGD(Stateful):
    """d = g + λθ and, with momentum μ, d ← d + μ d_before."""

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0):
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.velocity: Tensor | None = None

    def direction(self, theta: Tensor, gradient: Tensor, virtual: bool = False) -> Tensor:
        """A virtual step leaves the velocity as it is."""
        if self.weight_decay:
            gradient = gradient + self.weight_decay * theta.detach()
        if self.momentum:
            if self.velocity is None:
                self.velocity = torch.zeros_like(gradient)
            gradient = gradient + self.momentum * self.velocity
            if not virtual:
                self.velocity.copy_(gradient)  # in place: a captured step holds this address
        return gradient
