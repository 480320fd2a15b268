"""How stored samples become the network's input: by a transform of one's own, or as they are."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.arguments import checked
from everlearn.data.pixels import Device, Pixels
from everlearn.errors import BadInput, shown

Transform = Callable[[Tensor], Tensor]


@checked
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

    def to(self, device: Device, dtype: torch.dtype) -> Inputs:
        prepare: Any = self.prepare
        if isinstance(prepare, Pixels):
            prepare = prepare.to(device, dtype)
        elif isinstance(prepare, torch.nn.Module):
            prepare = prepare.to(device)
        return replace(self, prepare=prepare, dtype=dtype)

    def __call__(self, x: Tensor, view: Tensor | None = None) -> Tensor:
        if self.prepare is not None:
            x = _made("prepare", self.prepare, x)
        return x.to(self.dtype) if x.is_floating_point() else x

    def training(self, x: Tensor, view: Tensor | None = None) -> Tensor:
        return self(x if self.augment is None else _made("augment", self.augment, x))

    def document(self) -> dict[str, Any]:
        return {"kind": "own", "prepare": described(self.prepare), "augment": described(self.augment)}


def _made(part: str, function: Transform, x: Tensor) -> Tensor:
    """What a function of one's own makes of a batch: a tensor with a row for each sample."""
    made: Any = function(x)
    if not isinstance(made, Tensor):
        raise BadInput(f"{part} ({called(function)}) answers with {shown(made)}; it should make a tensor of a batch")
    if not made.ndim or made.shape[0] != x.shape[0]:
        raise BadInput(
            f"{part} ({called(function)}) makes a tensor of shape {list(made.shape)} of {x.shape[0]} samples; "
            "it should have a row for each of them"
        )
    return made


def called(transform: Any) -> str:
    """A function's name, or that of an object's class."""
    return (transform if inspect.isroutine(transform) else type(transform)).__name__


def described(transform: Any) -> list[str] | None:
    """What tells a transform from another of the same name: by its text and by its code, each with the values it holds
    or reads; "" where there is none, as at a prompt."""
    if transform is None:
        return None
    told = [_told(transform, way, ()) for way in (_text, _code)]
    return [called(transform), *(one and _digest(one) for one in told)]


def _digest(told: str) -> str:
    return hashlib.sha256(told.encode()).hexdigest()[:16]


Way = Callable[[Any], str]


def _told(value: Any, way: Way, above: tuple[int, ...]) -> str:
    """Anything in words that are the same in another process; functions and classes in this way, "" if it cannot be."""
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), torch.dtype)):
        return repr(value)
    if id(value) in above or len(above) > 8:
        return "…"
    tell = lambda of: _told(of, way, (*above, id(value)))
    if isinstance(value, torch.Tensor):
        content = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(content).hexdigest()}"
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(tell, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(tell, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{tell(name)}: {tell(of)}' for name, of in value.items()))}}}"
    if isinstance(value, Pixels):
        return repr(value.document())
    if isinstance(value, functools.partial):
        own = tell(value.func)
        return own and f"{own} {tell(value.args)} {tell(value.keywords)}"
    if inspect.ismethod(value):
        own = way(value.__func__)
        return own and f"{own} {tell(value.__self__)}"
    if inspect.isfunction(value):
        own = way(value)
        return own and f"{own} {tell(_read_by(value))}"
    if inspect.isbuiltin(value) or isinstance(value, (type, ModuleType)):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    held = {name: of for name, of in getattr(value, "__dict__", {}).items() if name != "training"}
    if isinstance(value, torch.nn.Module):
        held = {name: of for name, of in held.items() if not name.startswith("_")}
        held |= {"tensors": dict(value.state_dict()), "modules": dict(value.named_children())}
    own = way(type(value))
    return own and f"{own} {tell(held)}"


def _read_by(function: Any) -> dict[str, Any]:
    """What a function has from around it; other modules are taken to be what they were."""
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    around = {name: of for name, of in function.__globals__.items() if name in names}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # the variable has no value yet
            around[name] = cell.cell_contents
    return {name: of for name, of in around.items() if not isinstance(of, ModuleType)}


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the functions defined inside it."""
    yield code
    for const in code.co_consts:
        if inspect.iscode(const):
            yield from _codes(const)


def _text(of: Any) -> str:
    try:
        text = textwrap.dedent(inspect.getsource(of))
    except (OSError, TypeError):  # typed at a prompt, or compiled
        return ""
    # Of two lambdas on a line nobody can tell which of them this is.
    return "" if of.__name__ == "<lambda>" and text.count("lambda") > 1 else text


def _code(of: Any) -> str:
    if isinstance(of, type):
        own = {name: _code(function) for name, function in vars(of).items() if inspect.isfunction(function)}
        return f"{of.__name__} {sorted(own.items())}" if own else ""
    code = getattr(of, "__code__", None)
    return "" if code is None else _compiled(code)


def _compiled(code: CodeType) -> str:
    constant = lambda of: _compiled(of) if inspect.iscode(of) else _told(of, _code, ())
    consts = list(map(constant, code.co_consts))
    return repr((code.co_code, consts, code.co_names, code.co_varnames[: code.co_argcount]))


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
