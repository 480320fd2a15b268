"""How the outer loss depends on the weights of the inner step (Eq. 6–9, Proposition 1).

θ' = θ − η (1/B) Σⱼ wⱼ ∇ℓⱼ(θ) is linear in w, so ∂outer(θ')/∂wⱼ = −(η/B) G(j) with G(j) = ⟨∇outer(θ'), ∇ℓⱼ(θ)⟩, the
slope of ℓⱼ at θ along v = ∇outer(θ'). One pass of forward-mode differentiation gives all of them at once, and no
second-order graph is built. Weight decay and momentum move θ' but not its dependence on w, so G is exact for them too.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.autograd import forward_ad

from everlearn.core import ranks
from everlearn.core.terms import weighed
from everlearn.errors import BadInput

Losses = Callable[[Tensor], Tensor]  # θ -> per-sample losses [B, k]
Outer = Callable[[Tensor], Tensor]  # θ -> outer loss []
_turn = threading.RLock()  # levels of forward mode and the choice of kernels are one for all threads of a process


def _own_turn() -> None:
    """In a forked process: a thread that had the turn is not there to give it back."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own_turn)


class Missing(BadInput):
    """A derivative that torch does not have."""


@contextlib.contextmanager
def differentiable() -> Iterator[None]:
    """Inside, attention is computed by plain operations: its fused kernels can only be differentiated once."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with _turn, sdpa_kernel(SDPBackend.MATH):
        before = torch.backends.mha.get_fastpath_enabled()  # a kernel of its own, in evaluation mode
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(before)


@functools.cache
def _first_dual() -> None:
    """Make a dual number in silence: at the first one torch loads what it calls deprecated itself."""
    with _turn, warnings.catch_warnings(), forward_ad.dual_level():
        warnings.filterwarnings("ignore", "`torch.jit.script")
        forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


def gradient(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    theta = theta.detach().requires_grad_()
    return torch.autograd.grad(function(theta), theta)[0]


def slope(function: Losses, theta: Tensor, direction: Tensor) -> Tensor:
    """The derivative of `function` at θ along `direction`, by forward mode."""
    _first_dual()
    with differentiable(), torch.no_grad(), forward_ad.dual_level():
        try:
            value = function(forward_ad.make_dual(theta.detach(), direction))
        except NotImplementedError as error:
            named = _operation(error)
            raise Missing(
                f"the network uses {named}, which has no forward-mode derivative in torch {torch.__version__}"
            ) from error
        tangent = forward_ad.unpack_dual(value).tangent
        return torch.zeros_like(value) if tangent is None else tangent


def _operation(error: RuntimeError) -> str:
    """Which operation it was: torch names its own in the message; a custom autograd.Function is in the traceback."""
    if named := re.search(r"forward AD with (\S+)|derivative for '?([^\s']+)'? is not", str(error)):
        return named[1] or named[2]
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    owners = [
        frame.f_locals["cls"]
        for frame in frames
        if isinstance(frame.f_locals.get("cls"), torch.autograd.function.FunctionMeta)
    ]
    return owners[-1].__name__ if owners else f"an operation ({str(error).splitlines()[0]})"


def forward_mode(losses: Losses, theta: Tensor, weights: Tensor, outer: Outer, stepped: Tensor) -> Tensor:
    """G [B, k] at the step from `theta` to `stepped`: one backward pass, one forward-mode pass.

    Over several ranks v is the mean of theirs, and each has the G of its own rows: no derivative crosses ranks.
    """
    with differentiable():
        return slope(losses, theta, *ranks.all_reduce(gradient(outer, stepped)))


def double_backward(losses: Losses, theta: Tensor, weights: Tensor, outer: Outer, stepped: Tensor) -> Tensor:
    """The same G by differentiating through the unrolled step, for networks forward mode cannot do. G is of the place
    the step went to, not of η, so the step is unrolled with η = 1."""
    theta, weights = theta.detach().requires_grad_(), weights.detach().requires_grad_()
    with differentiable():
        (inner,) = torch.autograd.grad(weighed(losses(theta), weights), theta, create_graph=True)
        unrolled = stepped.detach() - (inner - inner.detach())  # where the step went, depending on w
        (by_weight,) = torch.autograd.grad(outer(unrolled), weights)
    return by_weight * -len(weights)


def check(mode: str, losses: Losses, theta: Tensor, weights: Tensor, outer: Outer) -> None:
    """Refuse a network that the mode cannot do, and name the other mode only if that one can."""

    def forward() -> None:
        slope(losses, theta, torch.zeros_like(theta))

    def twice() -> None:
        try:
            double_backward(losses, theta, weights, outer, theta)
        except (torch.OutOfMemoryError, torch.AcceleratorError):  # RuntimeErrors too, and none of the network's doing
            raise
        except RuntimeError as error:
            named = _operation(error)
            raise Missing(
                f"the network uses {named}, which cannot be differentiated twice in torch {torch.__version__}"
            ) from error

    ways = {"forward": forward, "double-backward": twice}
    (other,) = ways.keys() - {mode}
    try:
        ways[mode]()
    except Missing as missing:
        if ranks.distributed():  # double backward is for one process only
            raise BadInput(f"{missing}; over several ranks nothing else would help: use other operations") from missing
        try:
            ways[other]()
        except Missing as too:
            raise BadInput(
                f"{missing}, and hypergradient={other} would not help: {too}; use other operations"
            ) from missing
        raise BadInput(
            f"{missing}; set hypergradient={other}, in Python Relation(hypergradient={other!r}) as the weighting"
        ) from missing


HYPERGRADIENTS = {"forward": forward_mode, "double-backward": double_backward}
