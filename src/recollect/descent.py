"""The two rules by which vectors of parameters move: SGD for the Main Net's θ, Adam for the Relation Replay Net's φ.

Each gives a direction d; the parameters then move to θ − η d. State is tensors, so a step can be captured and kept.
"""

from __future__ import annotations

import torch
from torch import Tensor


class SGD:
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


class Adam:
    """Adam (Kingma and Ba, 2015) with L2 weight decay in the gradient. Ours, because importing torch's takes 1.7 s."""

    def __init__(self, like: Tensor, lr: float, weight_decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        self.lr, self.weight_decay, self.betas, self.eps = lr, weight_decay, betas, eps
        self.mean, self.square = torch.zeros_like(like), torch.zeros_like(like)
        self.steps = torch.zeros((), dtype=like.dtype, device=like.device)

    @torch.no_grad()
    def direction(self, phi: Tensor, gradient: Tensor) -> Tensor:
        gradient = gradient + self.weight_decay * phi
        first, second = self.betas
        self.steps += 1
        self.mean.lerp_(gradient, 1 - first)
        self.square.lerp_(gradient * gradient, 1 - second)
        scale = (self.square / (1 - second**self.steps)).sqrt_().add_(self.eps)
        return self.mean / (1 - first**self.steps) / scale
