"""What a memory holds: as a table, and as a page of its images."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from everlearn.data import Pixels
from everlearn.learner import Learner
from everlearn.report import tables
from everlearn.report.page import TEMPLATES
from everlearn.report.png import uri
from everlearn.report.sheet import Sheet

SHOWN = 64  # pixels of an image's longer side in the page


class Group(NamedTuple):
    """The samples of a class; their images, where they are such."""

    name: str
    count: int
    images: list[str]


def held(learner: Learner) -> int:
    """How many samples a learner's memory holds."""
    return len(learner.memory.held()[1])


def heading(learner: Learner) -> str:
    """How many rows of the memory are taken, and how they are chosen."""
    rows = f"{held(learner)} of {learner.capacity} rows taken"
    return f"{rows}, {'equally many of each class' if learner.rule == 'balanced' else 'by reservoir'}"


def kind(learner: Learner) -> str:
    """The type and shape of a sample, in words."""
    x = learner.memory.x
    return f"{str(x.dtype).removeprefix('torch.')} of shape {list(x.shape[1:])}"


def document(learner: Learner) -> dict[str, Any]:
    """What the memory holds as plain data, for --json."""
    return {
        "rows": learner.capacity,
        "rule": learner.rule,
        "held": held(learner),
        "sample": {
            "shape": list(learner.memory.x.shape[1:]),
            "dtype": str(learner.memory.x.dtype).removeprefix("torch."),
        },
        "classes": [{"class": name, "kept": count} for name, count in learner.kept().items()],
    }


def table(learner: Learner) -> Sheet:
    """A table of what the memory holds, a row per class."""
    sheet = tables.plain("class", "samples", "share, in %", title=heading(learner), numbers=True)
    total = held(learner)
    for name, count in learner.kept().items():
        sheet.add_row(str(name), str(count), f"{100 * count / total:.1f}" if total else "–")
    return sheet


def page(learner: Learner, title: str) -> str:
    """The memory as one HTML page that needs nothing else: its images, class by class."""
    x, y = (tensor.cpu() for tensor in learner.memory.held())
    images = pictures(x, learner)
    names = enumerate(learner.labels.names)
    groups = [Group(str(name), int((y == c).sum()), _drawn(images, y == c)) for c, name in names]
    height, width = x.shape[-2:] if images is not None else (1, 1)
    scale = SHOWN / max(height, width)
    return TEMPLATES.get_template("memory.html.jinja").render(
        title=title,
        heading=heading(learner),
        kind=kind(learner),
        groups=groups,
        size=(max(1, round(width * scale)), max(1, round(height * scale))),
        pixelated=scale > 1,
        stretched=images is not None and not _scaled(learner),
    )


def _drawn(images: np.ndarray | None, which: Tensor) -> list[str]:
    return [] if images is None else [uri(images[row]) for row in which.nonzero()[:, 0].tolist()]


def _scaled(learner: Learner) -> bool:
    """Is it known which value of a pixel is white?"""
    return learner.memory.x.dtype == torch.uint8 or isinstance(learner.inputs, Pixels)


def pictures(x: Tensor, learner: Learner) -> np.ndarray | None:
    """Samples as images, uint8 [N, C, H, W] from black to white; None where they are none."""
    whole = x.dtype == torch.uint8
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not (whole or x.is_floating_point()) or not len(x):
        return None
    low, high = 0.0, float(learner.inputs.top) if isinstance(learner.inputs, Pixels) else 255.0
    if not _scaled(learner):
        low, high = (float(end) for end in x.double().aminmax())
    scaled = (x.double() - low) * (255 / (high - low or 1))
    return scaled.round().clamp(0, 255).to(torch.uint8).numpy()
