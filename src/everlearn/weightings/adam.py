"""How φ moves: Adam gives a direction d, and φ moves to φ − η d. Its state is tensors, so a step can be captured."""

from __future__ import annotations

import torch
from torch import Tensor

from everlearn.core.state import Stateful


class Adam(Stateful):
    """Adam (Kingma and Ba, 2015) with L2 weight decay in the gradient.

    Not torch's own: making one imports torch's compiler, which takes 1.6 s.
    """

    apart = ("mean", "square")  # they are like φ
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __init__(self, like: Tensor, lr: float, weight_decay: float = 0.0):
        self.lr: float = lr
        self.weight_decay: float = weight_decay
        self.mean: Tensor = torch.zeros_like(like)
        self.square: Tensor = torch.zeros_like(like)
        self.steps: Tensor = torch.zeros((), dtype=like.dtype, device=like.device)

    @torch.no_grad()
    def direction(self, phi: Tensor, gradient: Tensor) -> Tensor:
        gradient = gradient + self.weight_decay * phi
        first, second = self.betas
        self.steps += 1
        self.mean.lerp_(gradient, 1 - first)
        self.square.lerp_(gradient * gradient, 1 - second)
        scale = (self.square / (1 - second**self.steps)).sqrt_().add_(self.eps)
        return self.mean / (1 - first**self.steps) / scale
