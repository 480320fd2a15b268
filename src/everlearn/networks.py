"""The built-in backbones: images in, logits out. Any nn.Module that does that is welcome instead.

`rowwise` says that, but for `Norm` layers, a network's answer to a row depends on that row alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from everlearn.arguments import takes
from everlearn.core.norm import Norm
from everlearn.core.seeding import seeded
from everlearn.errors import BadInput, EverlearnError, located, number, short_of_memory
from everlearn.registry import find


class MLP(nn.Module):
    """Two linear layers: pixels – 100 – classes."""

    rowwise = True

    def __init__(self, shape: tuple[int, int, int], classes: int, hidden: int = 100):
        super().__init__()
        number("hidden", hidden, whole=True, positive=True)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), hidden), nn.ReLU())
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class CNN(nn.Module):
    """Two 3×3 convolutions (32 and 64 channels), each with BatchNorm and 2×2 pooling, then an average per quarter."""

    rowwise = True

    def __init__(self, shape: tuple[int, int, int], classes: int):
        super().__init__()
        block = lambda i, o: (
            nn.Conv2d(i, o, 3, padding=1, bias=False),
            Norm(o),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
        )
        self.body = nn.Sequential(*block(shape[0], 32), *block(32, 64), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * 64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Block(nn.Module):
    """Two 3×3 convolutions and a short cut (He et al., 2016)."""

    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = Norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = Norm(width)
        self.shortcut = nn.Sequential()
        if stride > 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), Norm(width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x), relu=True)
        return self.bn2(self.conv2(out), residual=self.shortcut(x), relu=True)


class ResNet18(nn.Module):
    """ResNet-18 with the CIFAR stem: 3×3, stride 1, no max-pool; 11,173,962 parameters at 10 classes."""

    rowwise = True
    gpu_precision = "bfloat16"

    def __init__(self, shape: tuple[int, int, int], classes: int, width: int = 64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(shape[0], width, 3, padding=1, bias=False), Norm(width), nn.ReLU())
        blocks, channels = [], width
        for stage in range(4):
            for stride in (1 if stage == 0 else 2, 1):
                blocks.append(Block(channels, width << stage, stride))
                channels = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        convolution, norm, _ = self.stem
        return self.head(self.blocks(norm(convolution(x), relu=True)).mean(dim=(2, 3)))


def precision(network: Callable, device: str) -> str:
    """The precision a network is trained in by default: on a GPU the one it says is enough for it."""
    return getattr(network, "gpu_precision", "float32") if device == "cuda" else "float32"


def build(network: str | Callable, shape: tuple[int, ...], classes: int, seed: int, **options) -> nn.Module:
    """A fresh network, drawn on the CPU from the seed alone; `network` is a name, or takes a shape and the classes."""
    make = find("network", network) if isinstance(network, str) else network
    if not takes(make, shape, classes, **options):
        raise BadInput(f"{make.__name__} cannot be called with a shape and the number of classes; a network's maker is")
    with seeded(seed):
        try:
            built = make(shape, classes, **options)
        except Exception as error:  # somebody else's code may raise anything
            if isinstance(error, EverlearnError) or short_of_memory(error):
                raise
            told = f"{make.__name__} fails when called with the shape {tuple(shape)} and {classes} classes"
            raise BadInput(f"{told}: {located(error)}") from error
    if not isinstance(built, nn.Module):
        raise BadInput(f"{make.__name__} makes a {type(built).__name__}; a network is an nn.Module")
    return built
