"""How the outer loss depends on the weights of the inner step (Eq. 6–9, Proposition 1).

θ' = θ − η (1/B) Σⱼ wⱼ ∇ℓⱼ(θ) is linear in w, so ∂outer(θ')/∂wⱼ = −(η/B) G(j) with G(j) = ⟨∇outer(θ'), ∇ℓⱼ(θ)⟩: the slope of
ℓⱼ at θ along v = ∇outer(θ'). One pass of forward-mode differentiation gives all of them at once, and no second-order
graph is built. Weight decay and momentum move θ' but not its dependence on w, so G is exact for them too.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

from everlearn.core import ranks
from everlearn.errors import BadInput
from everlearn.core.terms import weighed

Losses = Callable[[Tensor], Tensor]  # θ -> per-sample losses [B, k]
Outer = Callable[[Tensor], Tensor]  # θ -> outer loss []


def gradient(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    theta = theta.detach().requires_grad_()
    return torch.autograd.grad(function(theta), theta)[0]


def slope(function: Losses, theta: Tensor, direction: Tensor) -> Tensor:
    """The derivative of `function` at θ along `direction`, by forward mode."""
    with torch.no_grad(), forward_ad.dual_level():
        try:
            value = function(forward_ad.make_dual(theta.detach(), direction))
        except NotImplementedError as error:
            raise BadInput(
                f"the network uses {_operation(error)}, which has no forward-mode derivative in torch {torch.__version__}; "
                "set hypergradient=double-backward"
            ) from error
        tangent = forward_ad.unpack_dual(value).tangent
        return torch.zeros_like(value) if tangent is None else tangent


def _operation(error: NotImplementedError) -> str:
    """Which operation it was: torch names its own in the message, a custom autograd.Function stands in the traceback."""
    if named := re.search(r"forward AD with (\S+)", str(error)):
        return named[1]
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    owners = [
        frame.f_locals["cls"]
        for frame in frames
        if isinstance(frame.f_locals.get("cls"), torch.autograd.function.FunctionMeta)
    ]
    return owners[-1].__name__ if owners else f"an operation ({error})"


def forward_mode(losses: Losses, theta: Tensor, weights: Tensor, outer: Outer, stepped: Tensor, lr: float) -> Tensor:
    """G [B, k] at the step from `theta` to `stepped`: one backward pass, one forward-mode pass.

    Over several ranks v is the mean of theirs, and each has the G of its own rows: nothing is differentiated across ranks."""
    return slope(losses, theta, *ranks.all_reduce(gradient(outer, stepped)))


def double_backward(losses: Losses, theta: Tensor, weights: Tensor, outer: Outer, stepped: Tensor, lr: float) -> Tensor:
    """The same G by differentiating through the unrolled step, for networks forward mode cannot do."""
    theta, weights = theta.detach().requires_grad_(), weights.detach().requires_grad_()
    (inner,) = torch.autograd.grad(weighed(losses(theta), weights), theta, create_graph=True)
    unrolled = stepped.detach() - lr * (inner - inner.detach())  # where the step went, depending on w as it did
    (by_weight,) = torch.autograd.grad(outer(unrolled), weights)
    return by_weight * (-len(weights) / lr)


HYPERGRADIENTS = {"forward": forward_mode, "double-backward": double_backward}
