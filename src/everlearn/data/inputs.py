"""How stored samples become the network's input: by a transform of one's own, or as they are."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from everlearn.data.pixels import Pixels
from everlearn.errors import BadInput

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Inputs:
    """Samples as they are stored, any shape: floats in the network's precision, whole numbers (token ids) as they are.

    `prepare` makes the network's input of a batch of them. `augment` comes before it, in training alone; what it draws
    from torch's generators is the learner's seed's.
    """

    prepare: Transform | None = None
    augment: Transform | None = None
    dtype: torch.dtype = torch.float32
    # A plan draws no crops for it.
    pad = 0
    flip = False

    def __post_init__(self) -> None:
        for name in ("prepare", "augment"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise BadInput(f"{name} {given!r} must be a function from a batch of samples to a batch")

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Inputs:
        prepare: Any = self.prepare
        if isinstance(prepare, Pixels):
            prepare = prepare.to(device, dtype)
        elif isinstance(prepare, torch.nn.Module):
            prepare = prepare.to(device)
        return replace(self, prepare=prepare, dtype=dtype)

    def __call__(self, x: Tensor, view: Tensor | None = None) -> Tensor:
        if self.prepare is not None:
            x = self.prepare(x)
        return x.to(self.dtype) if x.is_floating_point() else x

    def training(self, x: Tensor, view: Tensor | None = None) -> Tensor:
        return self(x if self.augment is None else self.augment(x))

    def document(self) -> dict[str, Any]:
        return {"kind": "own", "prepare": described(self.prepare), "augment": described(self.augment)}


def described(transform: Any) -> list[str] | None:
    """What tells a transform from another of the same name: its text or, typed at a prompt, its code, and the plain
    values it holds."""
    if transform is None:
        return None
    if isinstance(transform, Pixels):
        return ["Pixels", repr(transform.document()), ""]
    kind = transform if inspect.isfunction(transform) else type(transform)
    code = getattr(transform if inspect.isfunction(transform) else kind.__call__, "__code__", None)
    if isinstance(transform, torch.nn.Module):
        held: Any = [(name, tensor.tolist()) for name, tensor in transform.state_dict().items()] + [repr(transform)]
    else:
        known = inspect.getclosurevars(transform).nonlocals if inspect.isfunction(transform) else vars(transform)
        held = sorted((name, of) for name, of in known.items() if isinstance(of, (bool, int, float, str, tuple)))
    try:
        text = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):  # typed at a prompt, or compiled
        text = ""
    digest = lambda of: hashlib.sha256(repr((of, held)).encode()).hexdigest()[:16]
    consts = code and [repr(const) for const in code.co_consts if not inspect.iscode(const)]
    return [
        kind.__qualname__,
        digest(text) if text else "",
        digest((code.co_code, consts, code.co_names)) if code else "",
    ]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Do two documents of inputs stand for the same? A function is the same by its text or by its code."""
    if one["kind"] != "own" or other["kind"] != "own":
        return one == other

    def alike(a: list[str] | None, b: list[str] | None) -> bool:
        if a is None or b is None:
            return a is b
        return a[0] == b[0] and any(x and x == y for x, y in zip(a[1:], b[1:]))

    return all(alike(one[name], other[name]) for name in ("prepare", "augment"))


def made(given: Any, x: Tensor | None = None) -> Pixels | Inputs:
    """What `inputs` stands for; if nothing was given, what samples like these need."""
    if isinstance(given, (Pixels, Inputs)):
        return given
    if given is not None:
        return Inputs(given)
    return Pixels() if x is not None and x.dtype == torch.uint8 and x.ndim == 4 else Inputs()
