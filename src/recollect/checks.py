"""What a learner is given is looked at before anything is learned: each function refuses in one sentence what cannot be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType

import torch
from torch import Tensor, nn

from recollect.errors import BadInput
from recollect.methods.base import Method
from recollect.state import part
from recollect.streams import Pixels, Task
from recollect.terms import Weighting

REAL = ("lr", "momentum", "weight_decay")
POSITIVE = ("epochs", "batch", "lr", "memory", "classes")


def numbers(**settings: float) -> None:
    """Settings no training can start from."""
    for name, value in settings.items():
        if not isinstance(value, Real if name in REAL else Integral):
            raise BadInput(f"{name} {value!r} must be a {'' if name in REAL else 'whole '}number")
        positive, most = name in POSITIVE, 2**63 if name == "seed" else math.inf
        if not 0 <= value < most or positive and value == 0:
            wanted = "greater than 0" if positive else "below 2⁶³" if most <= value < math.inf else "from 0 up"
            raise BadInput(f"{name} {value} must be a number {wanted}{' and finite' * (value == math.inf)}")
        if name == "momentum" and value >= 1:
            raise BadInput(f"momentum {value} must be a number below 1")


def device(name: str | torch.device) -> torch.device:
    try:
        found = torch.device(name)
    except RuntimeError:
        raise BadInput(f"unknown device '{name}'; known: cpu, cuda") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"device '{name}' asked for, but torch sees no GPU here")
    return found


def parts(method: Method, network: nn.Module, pixels: Pixels | None) -> None:
    """What a learner is made of."""
    if not isinstance(method, Method):
        raise BadInput(f"the method must be an object, such as recollect.ER(), not {method!r}")
    if not hasattr(method, "weighting"):
        raise BadInput(
            f"{type(method).__name__} has no weighting; its __init__ should call super().__init__(weighting)"
        )
    if not isinstance(method.weighting, Weighting):
        raise BadInput(f"the weighting must be an object, such as recollect.Fixed((1, 1)), not {method.weighting!r}")
    if not isinstance(network, nn.Module):
        raise BadInput(f"the network must be an nn.Module object, not {network!r}")
    if not isinstance(pixels, (Pixels, NoneType)):
        raise BadInput(f"pixels must be a recollect.Pixels(…), not {pixels!r}")
    try:
        inspect.signature(method.rehearse).bind(*(None,) * method.draws)
    except TypeError:
        own = type(method).__name__
        raise BadInput(f"{own}.rehearse should take {method.draws} batches, as many as `draws` says it has") from None
    if (method.draws or method.references) and not method.remembers:
        raise BadInput(f"{type(method).__name__} draws from a memory; it should say `remembers = True`")


def images(learner, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise BadInput("images must be a tensor; torch.from_numpy makes one of an array")
    if x.ndim != 4 or learner.pixels.channels not in (1, x.shape[1]):
        channels = "channels" if learner.pixels.channels == 1 else learner.pixels.channels
        raise BadInput(f"images of shape {list(x.shape)}; they must be [N, {channels}, height, width]")
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise BadInput(f"images are {x.dtype}; they must be uint8, or floats")
    if x.is_floating_point() and not learner.told_pixels:
        raise _divided(learner)
    if x.is_floating_point() and len(x) and not all(map(torch.isfinite, x.aminmax())):
        raise BadInput("images have a value that is not a finite number")
    held = None if learner.memory is None else learner.memory.x
    if held is not None and (x.shape[1:], x.dtype) != (held.shape[1:], held.dtype):
        told = lambda of: f"{of.dtype} images of shape {tuple(of.shape[1:])}"
        raise BadInput(f"{told(x)} after {told(held)}; a learner takes one kind")


def samples(learner, half: str, task: Task) -> None:
    """A task's images and labels, to learn from or to be tested on."""
    classes, pair = task.classes, getattr(task, half)
    if not isinstance(classes, Sequence) or not all(isinstance(c, Integral) for c in classes):
        raise BadInput(f"a task's classes are a list of whole numbers, such as (0, 1), not {classes!r}")
    if strange := set(classes) - set(range(learner.classes)):
        raise BadInput(
            f"the task has classes {sorted(strange)}; the network has {learner.classes} classes, so they must be 0 to {learner.classes - 1}"
        )
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise BadInput(f"a task's {half} is a pair (images, labels), not a {type(pair).__name__}")
    x, y = pair
    if not isinstance(y, Tensor):
        raise BadInput("labels must be a tensor; torch.from_numpy makes one of an array")
    images(learner, x)
    if y.shape != x.shape[:1] or not len(x):
        raise BadInput(
            f"labels of shape {list(y.shape)} for images of shape {list(x.shape)}; there must be one an image, and at least one"
        )
    if y.dtype != torch.long and half == "train":
        raise BadInput(f"labels are {y.dtype}; they must be torch.long (labels.long())")
    if strange := set(y.unique().tolist()) - set(classes):
        raise BadInput(f"labels {sorted(strange)} are not among the task's classes {list(classes)}")


def task(learner, task: Task) -> None:
    """A task to be learned now, and the network as its owner left it."""
    if not isinstance(task, Task):
        raise BadInput(
            f"update takes a recollect.Task(train=(images, labels), test=(images, labels), classes=…), not a {type(task).__name__}"
        )
    if learner.method.merges and learner.tasks:
        raise BadInput(
            f"{type(learner.method).__name__} learns all tasks at once; give it one, such as stream.merged()"
        )
    samples(learner, "train", task)
    x, _ = task.train
    if x.is_floating_point() and learner.pixels.top > 1 and float(x.max()) <= 1:
        raise _divided(learner)
    if learner.net.refrozen:
        raise BadInput("parameters were frozen or unfrozen after the learner was made; settle that first, then make it")
    learner.logits(x[:1])  # a network that answers otherwise is refused now


def stream(learner, tasks: Iterable[Task]) -> list[Task]:
    """Tasks to be tested on."""
    if isinstance(tasks, Task) or not (tasks := list(tasks)):
        raise BadInput("evaluate takes a stream, or a list with at least one task")
    for each in tasks:
        samples(learner, "test", each)
    return tasks


def state(learner, state: Mapping[str, Tensor]) -> None:
    """A state that is not of a learner like this one."""
    if not isinstance(state, Mapping) or "learner.progress" not in state:
        raise BadInput("this is not a learner's state; learner.state() gives one")
    shapes = lambda tensors: {name: tensor.shape for name, tensor in tensors.items()}
    memory, weighting = part(state, "memory"), shapes(part(state, "weighting"))
    if shapes(part(state, "network")) != shapes(learner.net.state()):
        raise BadInput("this state is of another network")
    if any(weighting.get(name) != shape for name, shape in learner.begun.items()):
        raise BadInput(f"this state is of another weighting than {type(learner.method.weighting).__name__}")
    if memory and len(memory["y"]) != learner.capacity + 1:
        raise BadInput(f"this state has a memory of {len(memory['y']) - 1}, and the learner one of {learner.capacity}")
    if memory and ("recorded" in memory) != learner.method.records:
        raise BadInput(f"this state is of another method than {type(learner.method).__name__}")


def _divided(learner) -> BadInput:
    return BadInput(
        f"images are floats, and would be divided by {learner.pixels.top}; give pixels=Pixels(top=1), or images as uint8"
    )
