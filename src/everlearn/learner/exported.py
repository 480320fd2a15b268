"""A trained network for use elsewhere, without this library."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from everlearn import checks
from everlearn.data import Inputs, Pixels
from everlearn.errors import BadInput, EverlearnError, shown
from everlearn.files import write_whole
from everlearn.learner import saved
from everlearn.methods.base import Method

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner


class Deployed(nn.Module):
    """From samples as they are stored to a score per class: the preprocessing and the network in one."""

    def __init__(self, inputs: Pixels | Inputs, network: nn.Module):
        super().__init__()
        self.network, self.inputs = network, inputs

    def forward(self, x: Tensor) -> Tensor:
        return self.network(self.inputs(x))


def plain(learner: Learner) -> nn.Module:
    """A copy of the network that is tested, on the CPU, in evaluation mode, every tensor with memory of its own."""
    net = learner.net
    with net.turn:
        net.sync()
        with learner.sgd.average.applied(net):
            made = copy.deepcopy(net.unbind()).cpu().eval()
    for layer in made.modules():
        for name, buffer in layer._buffers.items():  # those of the norm layers are parts of one tensor
            layer._buffers[name] = None if buffer is None else buffer.clone()
    return made


def export(learner: Learner, file: str | os.PathLike[str]) -> None:
    file = Path(os.path.expanduser(file))
    ways = {".safetensors": _safetensors, ".pt": _state_dict, ".pth": _state_dict, ".pt2": _program, ".onnx": _onnx}
    if file.suffix not in ways:
        raise BadInput(f"{file.name} ends in none of {', '.join(ways)}")
    if learner.inputs is None or learner.memory is None:
        raise BadInput("this learner has met no sample yet; teach it first: learner.update(data)")
    if type(learner.method).predict is not Method.predict:
        raise BadInput(
            f"{type(learner.method).__name__} does not predict by its network's logits, which an export would hold; "
            "use learner.predict"
        )
    checks.finite(learner)
    saved.folder_of(file.parent)
    content = ways[file.suffix](learner)  # whole, before anything is written: a full disk would end torch's own writers
    try:
        write_whole(file, lambda draft: draft.write(content))
    except OSError as error:
        raise EverlearnError(f"{shown(str(file))} cannot be written: {error.strerror}") from error


def _safetensors(learner: Learner) -> bytes:
    about = saved.document(learner)
    weights = {name: tensor.clone() for name, tensor in plain(learner).state_dict().items()}  # tied ones are two there
    return saved.packed(weights, {key: about[key] for key in ("format", "classes", "inputs")})


def _state_dict(learner: Learner) -> bytes:
    content = io.BytesIO()
    torch.save(plain(learner).state_dict(), content)
    return content.getvalue()


def _ready(learner: Learner) -> tuple[Deployed, Tensor]:
    """The module, and samples to try it with."""
    inputs = copy.deepcopy(learner.inputs).to("cpu", learner.dtype)  # a module is moved itself
    like = learner.memory.x
    return Deployed(inputs, plain(learner)).eval(), torch.zeros(2, *like.shape[1:], dtype=like.dtype)


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """Without torch's remarks on the way; a network it cannot follow is said to be one."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        quiet = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        why = str(error.__cause__ or error).strip().partition("\n")[0]
        raise EverlearnError(
            f"torch cannot export this network ({why}); .safetensors and .pt hold its plain weights"
        ) from error
    finally:
        logging.disable(before)


def _names(learner: Learner) -> str:
    return json.dumps(learner.labels.document()["names"])


def _program(learner: Learner) -> bytes:
    (module, example), content = _ready(learner), io.BytesIO()
    with _tracing():
        program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        torch.export.save(program, content, extra_files={"classes.json": _names(learner)})
    return content.getvalue()


def _onnx(learner: Learner) -> bytes:
    try:
        import onnx  # pyright: ignore[reportMissingImports]
        import onnxscript  # pyright: ignore[reportMissingImports]  # noqa: F401
    except ImportError as error:
        raise BadInput(f"an ONNX file needs {error.name}: pip install 'everlearn[onnx]'") from None
    module, example = _ready(learner)
    batch: Any = {0: torch.export.Dim("batch")}
    with _tracing():
        made = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            dynamic_shapes=(batch,),
            input_names=["samples"],
            output_names=["scores"],
            verbose=False,
        )
    assert made is not None
    proto = made.model_proto
    onnx.helper.set_model_props(proto, {"classes": _names(learner)})
    return proto.SerializeToString()
