"""The kernels of BatchNorm on a GPU give what norm.py's formulas give.

Skipped where there is none, unless TRITON_INTERPRET=1 is set: then they are run by Triton's interpreter, on the CPU.
"""

import os
import warnings

import pytest
import torch
from conftest import ON_GPU
from torch.autograd import forward_ad

from everlearn.core import norm

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [] if INTERPRETED else ON_GPU
# Rows and channels that fill the programs, and that do not; a few rows; more channels than one program has.
SHAPES = [(3, 2048, 64), (2, 1000, 96), (1, 7, 3), (3, 512, 512)]
DOUBLE, SINGLE, HALF, BRAIN = torch.float64, torch.float32, torch.float16, torch.bfloat16
# Of samples and of weights, and how near they come.
PRECISIONS = [(DOUBLE, DOUBLE, 1e-12), (SINGLE, SINGLE, 3e-6), (BRAIN, SINGLE, 1e-2), (BRAIN, BRAIN, 1e-2)]
PRECISIONS += [(HALF, HALF, 1e-3)]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.float64)


def given(shape: tuple[int, int, int], dtype: torch.dtype, weights: torch.dtype, relu: bool, added: bool) -> dict:
    """What each function is asked, by its name."""
    channels, wide = shape[2], torch.promote_types(dtype, torch.float32)
    sample, channel = lambda: drawn(*shape).to(dtype), lambda: drawn(channels).to(weights)
    x = (2 * drawn(*shape) + 5 * drawn(channels)).to(dtype)
    weight, bias, residual = channel() + 1, channel(), sample() if added else None
    y, mean, _, rho = norm.normalise(x, weight.to(wide), bias.to(wide), residual, relu, 1e-5)
    of = x, weight, bias, y if relu and added else None, mean, rho, relu
    return {
        "normalise": (x, weight, bias, residual, relu, 1e-5),
        "settled": (x, weight, bias, residual, relu, 1e-5, channel(), channel().square()),
        "pull_back": (sample(), *of, added),
        "push_forward": (sample(), channel(), channel(), sample() if added else None, *of),
    }


def asked(functions: object, name: str, given: tuple) -> list[torch.Tensor | None]:
    found = getattr(functions, name)(*given)
    return [found] if isinstance(found, torch.Tensor) else list(found)


@pytest.mark.parametrize(("dtype", "weights", "near"), PRECISIONS)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_give_what_the_formulas_give_in_float64(shape, relu, added, dtype, weights, near):
    from everlearn.core import kernels

    double = lambda each: each.double() if isinstance(each, torch.Tensor) else each
    for name, of in given(shape, dtype, weights, relu, added).items():
        per_channel = weights if name == "pull_back" else torch.promote_types(weights, torch.float32)
        expected = asked(norm, name, tuple(map(double, of)))
        for number, (one, other) in enumerate(zip(asked(kernels, name, of), expected, strict=True)):
            if other is None:
                assert one is None
                continue
            assert one.shape == other.shape and one.dtype == (dtype if one.shape == shape else per_channel)
            assert (one.double() - other).norm() <= near * other.norm(), (name, number)


def test_kernels_give_the_same_bits_every_time_and_of_whatever_strides():
    from everlearn.core import kernels

    strided = lambda each: each.mT.contiguous().mT if isinstance(each, torch.Tensor) and each.ndim == 3 else each
    for name, of in given((3, 2048, 64), BRAIN, SINGLE, True, True).items():
        first = asked(kernels, name, of)
        for again in (of, tuple(map(strided, of))):
            assert all(torch.equal(one, other) for one, other in zip(first, asked(kernels, name, again)))


@pytest.mark.parametrize("level", [0.0, 100.0])
def test_a_large_mean_costs_no_precision(level):
    from everlearn.core import kernels

    x, ones = (level + drawn(2, 4096, 64)).float(), torch.ones(64, device=DEVICE)
    _, mean, variance, _ = kernels.normalise(x, ones, ones, None, False, 1e-5)
    assert torch.allclose(mean, x.double().mean(1, keepdim=True).float(), rtol=1e-6, atol=1e-6)
    assert torch.allclose(variance, x.double().var(1, keepdim=True).float(), rtol=1e-5)


def test_a_first_row_that_is_the_only_one_of_its_kind_costs_little():
    from everlearn.core import kernels

    x, ones = drawn(1, 32768, 64).float(), torch.ones(64, device=DEVICE)
    x[:, 0] = 1e4
    _, mean, variance, _ = kernels.normalise(x, ones, ones, None, False, 1e-5)
    assert torch.allclose(mean, x.double().mean(1, keepdim=True).float(), atol=0.01)  # σ is 55
    assert torch.allclose(variance, x.double().var(1, keepdim=True).float(), rtol=5e-2)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("relu", [False, True])
def test_what_is_no_number_stays_so_and_so_the_loss_shows_it(relu, wrong):
    from everlearn.core import kernels

    of = given((2, 300, 70), SINGLE, SINGLE, relu, False)
    for name in of:
        of[name][0][1, 7, 3] = wrong
        for one, other in zip(asked(kernels, name, of[name]), asked(norm, name, of[name])):
            assert one is other is None or torch.equal(one.isfinite(), other.isfinite()), name


def test_a_layer_that_is_to_use_them_does_and_gives_what_the_formulas_give(monkeypatch):
    from everlearn.core import kernels

    used, results, x = [], [], drawn(6, 8, 4, 4)
    for name in ("normalise", "pull_back", "push_forward"):
        noted = lambda *given, name=name, kernel=getattr(kernels, name): (kernel(*given), used.append(name))[0]
        monkeypatch.setattr(kernels, name, noted)
    for fuse in (False, True):
        layer = norm.Norm(8).to(DEVICE, torch.float64)
        layer.groups, layer.fuse = 3, fuse
        with warnings.catch_warnings(), forward_ad.dual_level():
            warnings.filterwarnings("error", message="Triton does not work")
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            dy = forward_ad.unpack_dual(layer(dual, residual=dual, relu=True)).tangent
            needed = x.clone().requires_grad_()
            y = layer(needed, residual=needed, relu=True)
            results.append((y, dy, *torch.autograd.grad(y.square().sum(), (needed, *layer.parameters()))))
    assert used == ["normalise", "push_forward", "normalise", "pull_back"]
    for one, other in zip(*results):
        assert torch.allclose(one, other, rtol=0, atol=1e-10)
