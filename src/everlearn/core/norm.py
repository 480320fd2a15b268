"""BatchNorm over several batches in one pass, each normalised by statistics of its own.

New samples and memory must not share their statistics, and yet one convolution over all of them is faster than one
per batch. So rows go through the network together, and only here is each batch treated separately. A block's sum and
ReLU are computed in the same pass over memory; on a GPU kernels.py does what the functions below say.

Shapes: G batches, N = rows × height × width, C channels; a tensor is [G, N, C].
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from itertools import repeat

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from everlearn.core import ranks
from everlearn.errors import short_of_memory

Four = tuple[Tensor, Tensor, Tensor, Tensor]


class Norm(nn.BatchNorm2d):
    """relu(BatchNorm(x) + residual), sum and ReLU where asked for.

    With `groups` G, set for the length of a pass, x is G batches of equal size; the mean and the unbiased variance of
    each are added to `seen`, [G, 1, C], once per use, and whoever set it moves the running statistics. Over several
    ranks they are those of all ranks' rows. `frozen` says that it is a teacher's, and `mapped` that it is asked within
    vmap, where torch's own knows no bfloat16.
    """

    groups: int | None = None
    fuse = False
    frozen = False
    mapped = False
    num_batches_tracked: Tensor  # never None: statistics are always tracked
    seen: tuple[tuple[Tensor, Tensor], ...] = ()

    def __init__(self, channels: int):
        super().__init__(channels)

    def forward(self, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
        by_batch = self.training and (self.groups is not None or ranks.distributed())
        frozen, mapped = self.frozen and self.fuse, self.mapped and not self.training and x.dtype != self.weight.dtype
        if not by_batch and not frozen and not mapped:
            y = super().forward(x)
            y = y if residual is None else y + residual
            return F.relu(y) if relu else y
        shape, groups = x.permute(0, 2, 3, 1).shape, self.groups or 1
        grouped = lambda t: t.permute(0, 2, 3, 1).reshape(groups, -1, t.shape[1])
        given = grouped(x), self.weight, self.bias, None if residual is None else grouped(residual), relu, self.eps
        if by_batch:
            y, mean, variance = Grouped.apply(*given, self.fuse and not ranks.distributed())
            self.seen += ((mean, variance),)
            if self.groups is None:
                self.move()
        else:
            y = fused(settled, frozen and not derived(*given))(*given, self.running_mean, self.running_var)
        return y.view(shape).permute(0, 3, 1, 2)

    @torch.no_grad()
    def move(self, moves: Iterable[Tensor | None] = repeat(None)) -> None:
        """The running statistics, batch after batch, as often as the layer was used in each.

        `moves`, one per batch, is 0 for a batch that is to leave them alone; None and 1: it moves them."""
        # By `data`: to autograd all layers' statistics are one vector, and writing to a part of it would invalidate
        # what other layers still have to read.
        means, variances = self.running_mean.data, self.running_var.data
        uses = zip(zip(*(zip(*of) for of in self.seen)), moves)
        for (mean, variance), weight in [(pair, weight) for batch, weight in uses for pair in batch]:
            self.num_batches_tracked += 1 if weight is None else weight.long()
            share = 1 / self.num_batches_tracked.clamp(min=1).to(mean) if self.momentum is None else self.momentum
            share = share if weight is None else share * weight.to(mean)
            means.lerp_(mean[0].to(means), share)
            variances.lerp_(variance[0].to(means), share)
        self.seen = ()


class Grouped(torch.autograd.Function):
    """y = relu((x − μ) ρ w + b + residual), ρ = 1 / √(σ² + ε), with its derivatives in both directions."""

    @staticmethod
    def forward(ctx, x, weight, bias, residual, relu: bool, eps: float, fuse: bool):
        if x.shape[1] * ranks.world_size() == 1:
            raise ValueError(
                "training needs more than one value per channel and batch: it is normalised by their variance"
            )
        y, mean, variance, rho = fused(normalise, fuse)(x, weight, bias, residual, relu, eps)
        of = x, weight, bias, y if relu and residual is not None else None, mean, rho
        ctx.save_for_backward(*of)
        ctx.save_for_forward(*of)
        ctx.relu, ctx.eps, ctx.fuse, ctx.added = relu, eps, fuse, residual is not None
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)
        return y, mean, variance

    @staticmethod
    def backward(ctx, dy, *_unused):
        if dy is None:
            return (None,) * 7
        x, weight, bias, y, mean, rho = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated once more
            mean, rho = statistics(x.to(weight.dtype), ctx.eps)[::2]
            back = pull_back
        else:
            back = fused(pull_back, ctx.fuse)
        return *back(dy, x, weight, bias, y, mean, rho, ctx.relu, ctx.added), None, None, None

    @staticmethod
    def jvp(ctx, dx, dweight, dbias, dresidual, *_unused):
        x, weight, bias, y, mean, rho = ctx.saved_tensors
        zero = lambda tangent, like: torch.zeros_like(like) if tangent is None else tangent
        tangents = zero(dx, x), zero(dweight, weight), zero(dbias, weight), dresidual
        return fused(push_forward, ctx.fuse)(*tangents, x, weight, bias, y, mean, rho, ctx.relu), None, None


def statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """μ, σ² and ρ of each batch and channel, [G, 1, C]."""
    variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
    if ranks.distributed():  # as many rows on each: the variance within them and that between them
        means, variances = ranks.all_gather(torch.stack((mean, variance))[None]).unbind(1)
        mean, variance = means.mean(dim=0), variances.mean(dim=0) + means.var(dim=0, correction=0)
    return mean, variance, (variance + eps).rsqrt()


def normalise(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, relu: bool, eps: float) -> Four:
    wide = x.to(weight.dtype)
    mean, variance, rho = statistics(wide, eps)
    y = (wide - mean) * rho * weight + bias
    y = y if residual is None else y + residual
    rows = x.shape[1] * ranks.world_size()
    unbiased = variance * (rows / (rows - 1))
    return (y.relu() if relu else y).to(x.dtype), mean, unbiased, rho


def settled(x, weight, bias, residual, relu: bool, eps: float, mean: Tensor, variance: Tensor) -> Tensor:
    """y by running statistics."""
    y = (x.to(weight.dtype) - mean) * (variance + eps).rsqrt() * weight + bias
    y = y if residual is None else y + residual
    return (y.relu() if relu else y).to(x.dtype)


def passed(unit: Tensor, weight: Tensor, bias: Tensor, y: Tensor | None) -> Tensor:
    """Where ReLU passed something: y is above 0, which without a residual need not be kept."""
    return (unit * weight + bias if y is None else y) > 0


def pull_back(
    dy, x, weight, bias, y: Tensor | None, mean, rho, relu: bool, added: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Reverse mode: dx, dw, db and, where a residual was added, dresidual from dy.

    Over W ranks dy is the gradient of the rank's own loss, W times its share in the mean of all losses, and so is dx.
    dw and db are sums over the rank's rows: they are right once averaged over ranks with the rest of θ's gradient.
    """
    wide, unit = dy.to(weight.dtype), (x.to(weight.dtype) - mean) * rho
    wide = torch.where(passed(unit, weight, bias, y), wide, 0) if relu else wide
    total, along = wide.sum(dim=1, keepdim=True), (wide * unit).sum(dim=1, keepdim=True)
    dw, db = torch.stack((along, total)).sum(dim=(1, 2))
    total, along = ranks.all_reduce(total, along)
    dx = weight * rho * (wide - (total + unit * along) / x.shape[1])
    return dx.to(x.dtype), dw, db, wide.to(x.dtype) if added else None


def push_forward(dx, dweight, dbias, dresidual, x, weight, bias, y: Tensor | None, mean, rho, relu: bool) -> Tensor:
    """Forward mode: dy from dx, dw, db and dresidual."""
    wide, unit = dx.to(weight.dtype), (x.to(weight.dtype) - mean) * rho
    level, along = ranks.all_reduce(wide.mean(dim=1, keepdim=True), (wide * unit).mean(dim=1, keepdim=True))
    centred = wide - level - unit * along
    dy = centred * rho * weight + unit * dweight + dbias
    dy = dy if dresidual is None else dy + dresidual
    return (torch.where(passed(unit, weight, bias, y), dy, 0) if relu else dy).to(x.dtype)


def derived(*given: Tensor | bool | float | None) -> bool:
    """Is something asked for its derivative, in either direction? `settled` has none in Triton."""
    tensors = [value for value in given if isinstance(value, Tensor)]
    backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return backward or any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def readable(value: Tensor | bool | float | None) -> bool:
    """Is there memory for a kernel to read? Not of an empty tensor, and not of one that stands for several (vmap)."""
    if not isinstance(value, Tensor):
        return True
    return value.numel() > 0 and not is_functorch_wrapped_tensor(value) and not is_legacy_batchedtensor(value)


@functools.cache
def fused(function: Callable, fuse: bool) -> Callable:
    """The function, or what kernels.py has for it, where Triton works."""
    if not fuse:
        return function
    broken = []

    @functools.wraps(function)
    def attempt(*given):
        if not broken and all(map(readable, given)):
            try:
                from everlearn.core import kernels

                return getattr(kernels, function.__name__)(*given)
            except Exception as error:  # whatever is missing: Triton itself, a C compiler, a driver
                if short_of_memory(error):  # which is no fault of Triton's
                    raise
                broken.append(error)
                first = next(iter(str(error).splitlines()), "it does not say why")
                warnings.warn(
                    f"Triton does not work here ({type(error).__name__}: {first}); going on without it, more slowly",
                    stacklevel=2,
                )
        return function(*given)

    return attempt
