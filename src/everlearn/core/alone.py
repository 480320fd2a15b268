"""What θ's gradient is for each sample of a batch alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import grad, vmap


def gradients(loss: Callable[..., Tensor], theta: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
    """∇θ loss(θ, *sample), [B, P]: of all at once where torch can map the network, else of one after another."""
    try:
        return vmap(grad(loss), in_dims=(None, *(0 for _ in batch)))(theta, *batch)
    except RuntimeError:  # it cannot map a GRU, packed sequences, padded rows of a transformer, random numbers
        return torch.stack([_gradient(loss, theta, sample) for sample in zip(*batch)])


def _gradient(loss: Callable[..., Tensor], theta: Tensor, sample: tuple[Tensor, ...]) -> Tensor:
    with torch.enable_grad(), without_cudnn():
        at = theta.detach().requires_grad_()
        return torch.autograd.grad(loss(at, *sample), at)[0]


@contextlib.contextmanager
def without_cudnn() -> Iterator[None]:
    """On a GPU cuDNN differentiates recurrent layers in training mode alone; torch's own kernels do so in both."""
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before
