"""A learner's arguments are checked before it learns: each function refuses, in one sentence, what cannot work."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from everlearn.arguments import takes
from everlearn.core import ranks
from everlearn.core.ledger import policy
from everlearn.core.plan import POOLS, TURNS, Draw, reservoir
from everlearn.core.seeding import seeded
from everlearn.core.state import from_bytes, part
from everlearn.data import Pixels, Task
from everlearn.data.inputs import called
from everlearn.data.tables import place
from everlearn.errors import BadInput, EverlearnError, Notice, number, parsed, shown, unknown
from everlearn.methods.base import Method
from everlearn.registry import find, parts
from everlearn.training import Training
from everlearn.weightings.base import Weighting

USUAL = 200  # rows of a memory
LEARNERS = {f"learner.{name}" for name in ("progress", "task", "seen", "method", "weighting")}  # in every state


def training(given: Training | None, settings: Mapping[str, Any], method: Any) -> Training:
    """A Training, or the one these settings make; `method` is the learner's, or its name."""
    for name in settings:
        if name not in (known := [field.name for field in fields(Training)]):
            kind = find("method", parts(method)[0]) if isinstance(method, str) else type(method)
            if name in inspect.signature(kind).parameters:
                own = kind.__name__
                raise BadInput(f"{name} is an option of {own}; make it with that: Learner(network, {own}({name}=…))")
            others = ("classes", "memory", "training", "inputs", "seed", "device")
            raise unknown("setting of a Learner", name, [*known, *others])
    if given is not None and settings:
        raise BadInput(f"{next(iter(settings))} is a part of `training`; give either, not both")
    return given or Training(**settings)


def draws(drawn: Sequence[Draw], memory: int, batch: int, chosen: bool = False) -> None:
    """Memory batches that cannot be drawn. Of those that are `chosen` from in a step any size will do."""
    for draw in drawn:
        if not isinstance(draw, Draw) or draw.pool not in ("balanced", *POOLS, *TURNS):
            raise BadInput(f"{shown(draw)} is not a memory batch; draws are a number or a tuple of everlearn.Draw(…)")
        if draw.size is not None:
            number("the size of a draw", draw.size, whole=True, positive=True)
    if any(draw.pool in ("inner", "others") for draw in drawn) and memory < 5:
        raise BadInput(f"memory {memory} is too small to be split five ways; take at least 5")
    for rows in (batch, *(draw.size for draw in drawn if draw.size is not None)):
        if rows % ranks.world_size():
            raise BadInput(
                f"a batch of {rows} cannot be dealt to {ranks.world_size()} ranks in equal parts; "
                f"take a multiple of {ranks.world_size()}"
            )
        if not chosen and rows % batch and batch % rows:
            raise BadInput(f"a draw of {rows} beside batches of {batch}: one must be a multiple of the other")


def device(name: str | torch.device) -> torch.device:
    """`auto` is the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(name)
    except (RuntimeError, TypeError):
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise BadInput(f"unknown device '{name}'; known: auto, cpu, cuda")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"device '{name}' asked for, but torch sees no GPU here; use cpu (--device cpu)")
    if found.type == "cuda" and found.index not in (None, torch.cuda.current_device()):
        raise BadInput(f"device '{name}' is not torch's current GPU; torch.cuda.set_device({found.index}) makes it so")
    return found


def memory(method: Method, given: int | str) -> tuple[int, str]:
    """A memory's rows, 0 where the method keeps none, and how they are shared out."""
    rule, rows = policy(given)
    if not method.remembers:
        return 0, "reservoir"
    number("memory", count := USUAL if rows is None else rows, whole=True, positive=True)
    if rule == "balanced" and method.slot_rule is not reservoir:
        raise BadInput(f"{type(method).__name__} fills its memory in its own way; leave out 'balanced'")
    return int(count), rule


def network(network: nn.Module) -> None:
    """A network whose gradient is not one vector."""
    for name, layer in network.named_modules():
        held = (*layer._parameters.values(), *layer._buffers.values())  # TorchScript has no dictionaries here
        if any(is_lazy(tensor) for tensor in held if tensor is not None):
            raise BadInput(f"the network's layer '{name}' has no size yet; call the network once, with a batch")
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse:
            raise BadInput(f"the network's layer '{name}' has sparse gradients; make it with sparse=False")
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.max_norm is not None:
            raise BadInput(f"the network's layer '{name}' changes its weights as it answers; make it without max_norm")
    for name, tensor in network.state_dict(keep_vars=True).items():
        imaginary = isinstance(tensor, Tensor) and tensor.is_complex()
        if imaginary and tensor.requires_grad:
            way = "real numbers alone are trained; keep torch.view_as_real of it"
            raise BadInput(f"the network's {name} is complex, and {way}")
        if imaginary and tensor.dtype != torch.complex64:
            raise BadInput(f"the network's {name} is {str(tensor.dtype)[6:]}, which cannot be saved; make it complex64")


def method(method: Method) -> None:
    """A method that cannot be taught."""
    if not hasattr(method, "weighting"):
        raise BadInput(
            f"{type(method).__name__} has no weighting; its __init__ should call super().__init__(weighting)"
        )
    if not isinstance(method.weighting, Weighting):
        raise BadInput(
            f"the weighting must be an object, such as everlearn.Fixed((1, 1)), not {shown(method.weighting)}"
        )
    own, count = type(method).__name__, len(method.own_draws())
    if len({*method.names}) < len(method.names):
        raise BadInput(f"{own} has two terms of one name among {', '.join(method.names)}; each needs its own")
    if not takes(method.learn, None):
        raise BadInput(f"{own}.learn should take one batch, that of the new samples")
    if not takes(method.rehearse, *method.own_draws()):
        raise BadInput(f"{own}.rehearse should take {count} batches, as many as `draws` says it has")
    if method.keeps and method.slot_rule is None:
        raise BadInput(f"{own} fills its memory between tasks and has no {method.keeps[0]} to keep then; drop `keeps`")
    if method.slot_rule not in (reservoir, None) and any(draw.pool == "balanced" for draw in method.own_draws()):
        raise BadInput(f"{own} fills its memory in its own way, so no draw of it can be balanced over its classes")
    if (method.own_draws() or method.references) and not method.remembers:
        raise BadInput(f"{type(method).__name__} draws from a memory; it should say `remembers = True`")


def made(thing: Callable, weighting: Weighting, options: Mapping[str, Any]) -> Method:
    """A method of its class, with its weighting."""
    if not takes(thing, weighting=weighting, **options):
        raise BadInput(f"{thing.__name__}.__init__ must take `weighting` and hand it on: super().__init__(weighting)")
    method(found := thing(weighting=weighting, **options))
    return found


def samples(learner, x: Tensor) -> None:
    """Samples as they are stored, and what the learner's inputs make of such."""
    if x.ndim < 1 or not len(x):
        raise BadInput("there is no sample among the data")
    if not x.numel():
        raise BadInput(f"samples of shape {list(x.shape[1:])}, with nothing in them")
    held = None if learner.memory is None else learner.memory.x
    if held is not None and (x.shape[1:], x.dtype) != (held.shape[1:], held.dtype):
        kind = lambda of: f"{of.dtype} samples of shape {tuple(of.shape[1:])}"
        single = x.shape == held.shape[1:] and x.dtype == held.dtype
        remedy = "a sample alone is a batch of one: x[None]" if single else "a learner takes one kind"
        raise BadInput(f"{kind(x)} after {kind(held)}; {remedy}")
    if x.is_floating_point() and not all(map(torch.isfinite, x.aminmax())):
        first = place((~x.isfinite()).nonzero()[0].tolist(), learner.columns)
        raise BadInput(
            f"samples have a value that is NaN or inf, first in {first}; leave such samples out, or fill them in"
        )
    if not isinstance(learner.inputs, Pixels):
        return
    if x.ndim != 4 or learner.inputs.channels not in (1, x.shape[1]):
        channels = "channels" if learner.inputs.channels == 1 else learner.inputs.channels
        raise BadInput(f"images of shape {list(x.shape)}; they must be [N, {channels}, height, width]")
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise BadInput(f"images are {x.dtype}; they must be uint8, or floats")


def half(half: str, task: Task) -> None:
    """A task's samples and labels, to learn from or to be tested on."""
    classes, pair = task.classes, getattr(task, half)
    if pair is None:
        raise BadInput(f"a task's {half} is a pair (samples, labels), and this task has none")
    x, y = pair
    if y.shape != x.shape[:1] or not len(x):
        raise BadInput(
            f"labels of shape {list(y.shape)} for samples of shape {list(x.shape)}; "
            "there must be one for each, and at least one"
        )
    if y.dtype != torch.long and half == "train":
        raise BadInput(f"labels are {y.dtype}; they must be torch.long (labels.long())")
    if strange := set(y.unique().tolist()) - set(classes):
        raise BadInput(f"labels {sorted(strange)} are not among the task's classes {list(classes)}")


def ready(learner, task: Task, batch: int) -> None:
    """A task to be learned now, in batches of so many, and the network as its owner left it."""
    if learner.method.merges and learner.tasks:
        raise BadInput(
            f"{type(learner.method).__name__} learns all tasks at once; give it one, such as stream.merged()"
        )
    x, _ = task.train
    if isinstance(learner.inputs, Pixels):
        low, high = float(x.min()), float(x.max())
        if x.is_floating_point() and learner.inputs.top > 1 and (low < 0 or high <= 1):
            raise BadInput(
                f"images are floats, and would be divided by {learner.inputs.top}; "
                "give inputs=Pixels(top=1), or images as uint8"
            )
        if x.dtype == torch.uint8 and high > learner.inputs.top:
            top = learner.inputs.top
            raise BadInput(f"images go up to {high:g}, and inputs.top says {top:g}; it is 255 by default")
    trainable(learner)
    answers = answering(learner, x)
    if getattr(learner.inputs, "augment", None) is not None:
        _augmented(learner, x, batch)
    if not learner.tasks:
        _doubtful(learner, x, answers)
    norms = (nn.modules.batchnorm._NormBase, nn.GroupNorm)
    if batch == ranks.world_size() and any(isinstance(module, norms) for module in learner.net.module.modules()):
        try:
            copy.deepcopy(learner.net.module).train()(learner.inputs(x[:1].to(learner.device)))
        except ValueError as error:  # BatchNorm's, of a single number
            raise BadInput(f"a batch of one is too small for this network ({error}); take two or more") from None


def answering(learner, x: Tensor) -> Tensor:
    """A network that cannot take such samples, or answers otherwise than it should, is refused now."""
    return tried(lambda: learner.logits(telling(x)), x)


def telling(x: Tensor) -> Tensor:
    """A few samples to try a network with; of whole numbers, which may be looked up, also the smallest and largest."""
    rows = [0, 1]
    if x.dtype == torch.long and x.numel():
        flat = x.flatten(1) if x.ndim > 1 else x[:, None]
        rows += [int(flat.amin(dim=1).argmin()), int(flat.amax(dim=1).argmax())]
    return x[sorted({row for row in rows if row < len(x)})]


def _doubtful(learner, x: Tensor, answers: Tensor) -> None:
    """What can be learned, but was hardly meant so, is said."""
    told = lambda words: warnings.warn(words, Notice, stacklevel=2)
    if learner.classes > 1 and answers.min() >= 0 and torch.allclose(answers.sum(1), torch.ones_like(answers[:, 0])):
        told("the network answers with probabilities; remove its softmax, because the loss has one and needs logits")
    pictures = learner.given_inputs is None and x.is_floating_point() and x.ndim == 4 and x.shape[1] in (1, 3)
    if pictures and x.min() >= 0 and 128 < (high := float(x.max())) <= 255:
        way = "give them as uint8, or inputs=everlearn.Pixels(), and they are divided by 255"
        told(f"images are floats up to {high:g}, and reach the network as they are; {way}")


def trainable(learner) -> None:
    """What can be trained is what could when the learner was made."""
    if learner.net.refrozen:
        raise BadInput("parameters were frozen or unfrozen after the learner was made; settle that first, then make it")


def tried(ask: Callable[[], Any], x: Tensor, made: str = "samples") -> Any:
    """Ask the network something for the first time; what it cannot do with samples like these is said of them."""
    try:
        return ask()
    except (torch.OutOfMemoryError, torch.AcceleratorError, EverlearnError):
        raise
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise untaken(error, x, made) from error


def untaken(error: Exception, x: Tensor, made: str = "samples") -> BadInput:
    """What a network says of samples it cannot take."""
    words = (str(error).strip().splitlines() or [type(error).__name__])[0]
    kind = f"{str(x.dtype).removeprefix('torch.')} {made} of shape {tuple(x.shape[1:])}"
    return BadInput(f"the network cannot take {kind} ({words}){_remedy(words, x)}")


# What torch says where a network's input is of another type than it takes, or an id beyond those it knows.
IDS = "scalar types: Long, Int|LongTensor|used as indices must be|int32/int64 for index"
TYPES = "dtype|datatype|scalar type|Input type|not implemented for|can't be cast"
RANGE = "out of range|out of bounds|not in the valid range|i < index_size|smaller than num_classes"


def _remedy(words: str, x: Tensor) -> str:
    """What helps against this error of a network's, if anybody can tell."""
    says = lambda pattern: re.search(pattern, words) is not None
    if says("positional argument"):
        return "; its forward is called with a batch of samples, and with nothing else"
    if says(IDS):
        return "; it looks its inputs up by number: give whole numbers, or inputs=lambda x: x.long()"
    if says(RANGE):
        return f"; it looks its inputs up by number, and these samples go from {x.min():g} to {x.max():g}"
    if x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        return "; torch has an image's channels first: give x.permute(0, 3, 1, 2), of an array x.transpose(0, 3, 1, 2)"
    if says(TYPES) and not x.is_floating_point() and x.ndim == 2:
        return "; give floats: x.float(), of an array or a table x.astype(float)"
    if says(TYPES) and not x.is_floating_point():
        return "; `inputs` says how they become what it takes, such as inputs=lambda x: x.float()"
    return ""


def _augmented(learner, x: Tensor, batch: int) -> None:
    """What `augment` makes of samples reaches the network, too; the caller's random numbers stay as they are."""
    rows = x[torch.arange(batch // ranks.world_size(), device=x.device) % len(x)].to(learner.device)
    with seeded(learner.seed, device=learner.device), torch.no_grad(), learner.net.evaluating():
        made, name = learner.inputs.training(rows), called(learner.inputs.augment)
        try:
            tried(lambda: learner.net.at(learner.net.theta)(made), made, f"samples from augment ({name})")
        finally:
            learner.net.unbind()


def answer(learner, answer: Tensor, samples: int) -> None:
    """What the network says of samples."""
    if answer.shape != (samples, learner.classes):
        raise BadInput(
            f"the network answers a sample with a tensor of shape {tuple(answer.shape[1:])}; "
            f"it should be {learner.classes} logits, one per class"
        )
    if not answer.isfinite().all():
        finite(learner)


def finite(learner) -> None:
    """A network that has diverged says nothing any more."""
    if not torch.isfinite(learner.net.theta).all():
        way = "load what was saved before, or make a new one"
        raise EverlearnError(f"this network has parameters that are no longer finite numbers; {way}")


def taught(learner) -> None:
    """What knows no class has no answer."""
    if not learner.classes:
        raise BadInput("this learner has met no class yet; teach it first: learner.update(data)")


def stream(learner, tasks: Iterable[Any]) -> list[Any]:
    """Tasks to be tested on, or data with labels in their place."""
    if not (tasks := list(tasks)):
        raise BadInput("evaluate takes a stream, or a list with at least one task")
    taught(learner)
    for each in tasks:
        if isinstance(each, Task):
            half("test", each)
        elif isinstance(each, (Number, Tensor, np.ndarray)):
            raise BadInput(
                f"evaluate takes a stream, or a list of tasks; this one has {shown(each)}, and no (samples, labels)"
            )
    return tasks


def rate(learner) -> float:
    """What its owner has set the learning rate to; 0 is the end of a schedule."""
    number("lr", learner.sgd.lr)
    learner.sgd.lr = float(learner.sgd.lr)
    return learner.sgd.lr


def between_tasks(learner) -> None:
    """A learner that is not between two tasks."""
    if learner.within_task:
        far = f"{learner.epoch} of {learner.epochs} epochs into a task"
        raise BadInput(f"this learner is {far}; finish it with update first")


def state(learner, state: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """A state that is not of a learner like this one; what it says of classes and inputs, if it is not too old."""
    if not isinstance(state, Mapping) or not state.keys() >= LEARNERS:
        raise BadInput("this is not a learner's state; learner.state() gives one")
    memory = part(state, "memory")
    if memory and len(memory["y"]) != learner.capacity + 1:
        raise BadInput(f"this state has a memory of {len(memory['y']) - 1}, and the learner one of {learner.capacity}")
    if (done := int(state["learner.progress"][1])) > learner.epochs:
        raise BadInput(f"this state is {done} epochs into a task, and the learner has {learner.epochs} per task")
    for kind, one in (("method", learner.method), ("weighting", learner.method.weighting)):
        own, its = type(one).__name__, from_bytes(state[f"learner.{kind}"])
        if its != own:
            raise BadInput(f"this state is of {its}, another {kind} than {own}")
    return parsed(from_bytes(state["learner.known"])) if "learner.known" in state else None


def shapes(learner, state: Mapping[str, Tensor], known: Mapping[str, Any] | None) -> None:
    """A state of another network or weighting; a head that grew may have another number of outputs."""
    shapes = lambda tensors: {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    own, its = shapes(learner.net.state()), shapes(part(state, "network"))
    if known is not None and (head := learner.head if known["head"] is None else known["head"]) is not None:
        for name in ("weight", "bias"):
            if (full := f"{head}.{name}".removeprefix(".")) in own and its.get(full):
                own[full] = (its[full][0], *own[full][1:])
    if its != own:
        name = next(name for name in [*its, *own] if its.get(name) != own.get(name))
        has = lambda of: f"has {name} of shape {list(of[name])}" if name in of else f"has no {name}"
        raise BadInput(f"this state is of another network: what was saved {has(its)}, and the one given {has(own)}")
    weighting = shapes(part(state, "weighting"))
    if any(weighting.get(name) != tuple(shape) for name, shape in learner.begun.items()):
        raise BadInput(f"this state is of a {type(learner.method.weighting).__name__} with other sizes")


def claimed(method: Method, state: Mapping[str, Tensor]) -> None:
    """A part of a method's state that the method does not know again."""
    if left := sorted(state.keys() - method.state().keys()):
        name, own = left[0].partition(".")[0], type(method).__name__
        raise BadInput(f"this state has {name}, which {own} does not have then; a part that lasts is made in __init__")
