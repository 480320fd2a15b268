"""norm.py's formulas for a GPU, in Triton: each function gives what its namesake there gives.

Two kernels do it: the first sums over rows, the second computes every element. A program has some rows of one batch and
some channels, and loads what belongs to a channel once for all of them. The sums of several programs are added up by
each that needs them, always in the same order, so results are the same every time. All is computed in float32, or in
float64 where the weights are.
"""
# pyright: reportMissingImports=false
# Triton comes with torch where torch has CUDA.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import cdiv

CHANNELS = tl.constexpr(64)  # of a program
PARTS = tl.constexpr(16)  # in which the rows of a batch are summed, at most


@triton.jit
def _place(rows, channels, share):
    """Of a program: its batch, its channels and which of them there are, its first element, its number of rows."""
    batch, first = tl.program_id(2).to(tl.int64), tl.program_id(0) * share
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    return batch, channel, channel < channels, (batch * rows + first) * channels, tl.minimum(rows - first, share)


@triton.jit
def _tile(row, count, channel, channels, ROWS: tl.constexpr):
    """Where the elements of some rows are, and which of them there are."""
    row += tl.arange(0, ROWS)
    return row[:, None] * channels + channel[None, :], (row < count)[:, None] & (channel < channels)[None, :]


@triton.jit
def _get(pointer, start, at, there, EVEN: tl.constexpr):
    return tl.load(pointer + start + at) if EVEN else tl.load(pointer + start + at, there, 0)


@triton.jit
def _put(pointer, start, at, there, value, EVEN: tl.constexpr):
    tl.store(pointer + start + at, value.to(pointer.dtype.element_ty), None if EVEN else there)


@triton.jit
def _floored(v):
    """max(v, 0), which NaN stays NaN in: tl.maximum would make it 0, and a network that has diverged look sound."""
    return tl.where(v < 0, 0, v)


@triton.jit
def _passed(v, y, start, at, there, normal, EVEN: tl.constexpr):
    """v where ReLU's result is above 0: y, or without a residual what x is normalised to, which is at hand."""
    return tl.where((normal if y is None else _get(y, start, at, there, EVEN)) > 0, v, 0)


@triton.jit
def _leave(sums, one, two, batch, channel, known, channels):
    """Two sums over a program's rows, in [batch, part, 2, channel]."""
    at = (batch * tl.num_programs(0) + tl.program_id(0)) * 2 * channels + channel
    tl.store(sums + at, tl.sum(one, axis=0), known)
    tl.store(sums + at + channels, tl.sum(two, axis=0), known)


@triton.jit
def _totals(sums, parts, batch, channel, known, channels):
    """Both sums over all rows of a batch."""
    part = tl.arange(0, PARTS)[:, None]
    at, there = (batch * parts + part) * 2 * channels + channel[None, :], (part < parts) & known[None, :]
    one, two = tl.load(sums + at, there, 0), tl.load(sums + at + channels, there, 0)
    return tl.sum(one, axis=0), tl.sum(two, axis=0)


@triton.jit
def _moments(x, sums, rows, channels, share, EVEN: tl.constexpr, ROWS: tl.constexpr):
    """Σ d and Σ d², d = x − the batch's first row. That is near its mean, so that the squares lose next to nothing; a
    first row that is far off (the only one of its kind in 32,768) costs up to 2 % of the variance, or little more."""
    batch, channel, known, start, count = _place(rows, channels, share)
    wide: tl.constexpr = sums.dtype.element_ty
    origin = tl.load(x + batch * rows * channels + channel, known, 0).to(wide)[None, :]
    one, two = tl.zeros((ROWS, CHANNELS), wide), tl.zeros((ROWS, CHANNELS), wide)
    for row in range(0, count, ROWS):
        at, there = _tile(row, count, channel, channels, ROWS)
        d = _get(x, start, at, there, EVEN).to(wide) - origin
        if not EVEN:
            d = tl.where(there, d, 0)
        one += d
        two += d * d
    _leave(sums, one, two, batch, channel, known, channels)


@triton.jit
def _normalise(
    x, weight, bias, residual, sums, y, mean, unbiased, rho, parts, rows, channels, share,
    RELU: tl.constexpr, EPS: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    batch, channel, known, start, count = _place(rows, channels, share)
    wide: tl.constexpr = sums.dtype.element_ty
    one, two = _totals(sums, parts, batch, channel, known, channels)
    above = one / rows
    mu = tl.load(x + batch * rows * channels + channel, known, 0).to(wide) + above
    variance = _floored(two / rows - above * above)
    r = tl.rsqrt(variance + EPS)
    if tl.program_id(0) == 0:
        of = batch * channels + channel
        tl.store(mean + of, mu, known)
        tl.store(unbiased + of, variance * rows / (rows - 1), known)
        tl.store(rho + of, r, known)
    scale, shift = r * tl.load(weight + channel, known, 0), tl.load(bias + channel, known, 0)
    for row in range(0, count, ROWS):
        at, there = _tile(row, count, channel, channels, ROWS)
        v = (_get(x, start, at, there, EVEN).to(wide) - mu[None, :]) * scale[None, :] + shift[None, :]
        if residual is not None:
            v += _get(residual, start, at, there, EVEN).to(wide)
        _put(y, start, at, there, _floored(v) if RELU else v, EVEN)


@triton.jit
def _settled(
    x, weight, bias, residual, mean, variance, y, rows, channels, share,
    RELU: tl.constexpr, EPS: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    _, channel, known, start, count = _place(rows, channels, share)
    wide: tl.constexpr = mean.dtype.element_ty
    mu, r = tl.load(mean + channel, known, 0), tl.rsqrt(tl.load(variance + channel, known, 0) + EPS)
    scale, shift = r * tl.load(weight + channel, known, 0), tl.load(bias + channel, known, 0)
    for row in range(0, count, ROWS):
        at, there = _tile(row, count, channel, channels, ROWS)
        v = (_get(x, start, at, there, EVEN).to(wide) - mu[None, :]) * scale[None, :] + shift[None, :]
        if residual is not None:
            v += _get(residual, start, at, there, EVEN).to(wide)
        _put(y, start, at, there, _floored(v) if RELU else v, EVEN)


@triton.jit
def _along(
    v, x, weight, bias, y, mean, rho, sums, rows, channels, share,
    RELU: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Σ v and Σ v (x − μ), of v where ReLU passed."""
    batch, channel, known, start, count = _place(rows, channels, share)
    wide: tl.constexpr = sums.dtype.element_ty
    of = batch * channels + channel
    mu, scale = tl.load(mean + of, known, 0), tl.load(rho + of, known, 0) * tl.load(weight + channel, known, 0)
    shift = tl.load(bias + channel, known, 0)
    one, two = tl.zeros((ROWS, CHANNELS), wide), tl.zeros((ROWS, CHANNELS), wide)
    for row in range(0, count, ROWS):
        at, there = _tile(row, count, channel, channels, ROWS)
        u, d = _get(v, start, at, there, EVEN).to(wide), _get(x, start, at, there, EVEN).to(wide) - mu[None, :]
        if RELU:
            u = _passed(u, y, start, at, there, d * scale[None, :] + shift[None, :], EVEN)
        one += u
        two += u * d
    _leave(sums, one, two, batch, channel, known, channels)


@triton.jit
def _pull_back(
    dy, x, weight, bias, y, mean, rho, sums, dx, dweight, dbias, dresidual, batches, parts, rows, channels, share,
    RELU: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """dx = w ρ (v − (Σ v + ρ² (x − μ) Σ v (x − μ)) / N), v = dy where ReLU passed."""
    batch, channel, known, start, count = _place(rows, channels, share)
    wide: tl.constexpr = sums.dtype.element_ty
    if (tl.program_id(0) == 0) & (batch == 0):
        dw, db = tl.zeros((CHANNELS,), wide), tl.zeros((CHANNELS,), wide)
        for each in range(batches):
            total, along = _totals(sums, parts, each, channel, known, channels)
            dw += along * tl.load(rho + each * channels + channel, known, 0)
            db += total
        tl.store(dweight + channel, dw, known)
        tl.store(dbias + channel, db, known)
    total, along = _totals(sums, parts, batch, channel, known, channels)
    mu, r = tl.load(mean + batch * channels + channel, known, 0), tl.load(rho + batch * channels + channel, known, 0)
    scale, shift = r * tl.load(weight + channel, known, 0), tl.load(bias + channel, known, 0)
    slope, level = -scale * r * r * along / rows, -scale * total / rows
    for row in range(0, count, ROWS):
        at, there = _tile(row, count, channel, channels, ROWS)
        v, d = _get(dy, start, at, there, EVEN).to(wide), _get(x, start, at, there, EVEN).to(wide) - mu[None, :]
        if RELU:
            v = _passed(v, y, start, at, there, d * scale[None, :] + shift[None, :], EVEN)
        if dresidual is not None:
            _put(dresidual, start, at, there, v, EVEN)
        _put(dx, start, at, there, v * scale[None, :] + (d * slope[None, :] + level[None, :]), EVEN)


@triton.jit
def _push_forward(
    dx, dweight, dbias, dresidual, x, weight, bias, y, mean, rho, sums, dy, parts, rows, channels, share,
    RELU: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """dy = w ρ (dx − (Σ dx + ρ² (x − μ) Σ dx (x − μ)) / N) + ρ (x − μ) dw + db + dresidual, where ReLU passed."""
    batch, channel, known, start, count = _place(rows, channels, share)
    wide: tl.constexpr = sums.dtype.element_ty
    total, along = _totals(sums, parts, batch, channel, known, channels)
    mu, r = tl.load(mean + batch * channels + channel, known, 0), tl.load(rho + batch * channels + channel, known, 0)
    scale, shift = r * tl.load(weight + channel, known, 0), tl.load(bias + channel, known, 0)
    slope = r * tl.load(dweight + channel, known, 0) - scale * r * r * along / rows
    level = tl.load(dbias + channel, known, 0) - scale * total / rows
    for row in range(0, count, ROWS):
        at, there = _tile(row, count, channel, channels, ROWS)
        v, d = _get(dx, start, at, there, EVEN).to(wide), _get(x, start, at, there, EVEN).to(wide) - mu[None, :]
        v = v * scale[None, :] + (d * slope[None, :] + level[None, :])
        if dresidual is not None:
            v += _get(dresidual, start, at, there, EVEN).to(wide)
        if RELU:
            v = _passed(v, y, start, at, there, d * scale[None, :] + shift[None, :], EVEN)
        _put(dy, start, at, there, v, EVEN)


def _launch(kernel, x: Tensor, *given, share: int = 128, tile: int = 32, warps: int = 4, **flags) -> None:
    """Over all of x, or what is shaped like it, in programs of `share` rows of a batch."""
    batches, rows, channels = x.shape
    programs = cdiv(rows, share), cdiv(channels, CHANNELS.value), batches
    even = rows % share == 0 and channels % CHANNELS.value == 0
    with torch.cuda.device_of(x):
        kernel[programs](*given, rows, channels, share, EVEN=even, ROWS=tile, num_warps=warps, **flags)


def _sum(kernel, x: Tensor, *given, like: Tensor, **flags) -> tuple[Tensor, int]:
    """The sums of each part of a batch, and of how many."""
    batches, rows, channels = x.shape
    share = 128 * cdiv(cdiv(rows, PARTS.value), 128)
    sums = like.new_empty(batches, parts := cdiv(rows, share), 2, channels, dtype=_wide(like))
    _launch(kernel, x, *given, sums, share=share, tile=128, warps=8, **flags)
    return sums, parts


def normalise(x, weight, bias, residual, relu: bool, eps: float):
    x, residual = x.contiguous(), _contiguous(residual)
    sums, parts = _sum(_moments, x, x, like=weight)
    y, (mean, unbiased, rho) = torch.empty_like(x), sums.new_empty(3, len(x), 1, x.shape[2])
    given = x, weight, bias, residual, sums, y, mean, unbiased, rho, parts
    _launch(_normalise, x, *given, RELU=relu, EPS=eps)
    return y, mean, unbiased, rho


def settled(x, weight, bias, residual, relu: bool, eps: float, mean, variance):
    x, residual = x.contiguous(), _contiguous(residual)
    y = torch.empty_like(x)
    mean, variance = mean.to(_wide(mean)), variance.to(_wide(variance))
    _launch(_settled, x, x, weight, bias, residual, mean, variance, y, RELU=relu, EPS=eps)
    return y


def pull_back(dy, x, weight, bias, y, mean, rho, relu: bool, added: bool):
    dy, of = dy.contiguous(), (x.contiguous(), weight, bias, _contiguous(y), mean, rho)
    sums, parts = _sum(_along, x, dy, *of, like=weight, RELU=relu)
    dx, dresidual = torch.empty_like(dy), torch.empty_like(dy) if added else None
    dweight, dbias = torch.empty_like(weight), torch.empty_like(bias)
    _launch(_pull_back, x, dy, *of, sums, dx, dweight, dbias, dresidual, len(x), parts, RELU=relu)
    return dx, dweight, dbias, dresidual


def push_forward(dx, dweight, dbias, dresidual, x, weight, bias, y, mean, rho, relu: bool):
    dx, of = dx.contiguous(), (x.contiguous(), weight, bias, _contiguous(y), mean, rho)
    sums, parts = _sum(_along, x, dx, *of, like=weight, RELU=False)
    dy = torch.empty_like(dx)
    tangents = dx, dweight.contiguous(), dbias.contiguous(), _contiguous(dresidual)
    _launch(_push_forward, x, *tangents, *of, sums, dy, parts, RELU=relu)
    return dy


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
