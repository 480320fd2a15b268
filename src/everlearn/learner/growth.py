"""A head that grows: when a class comes that nobody counted on, everything that knows the classes follows.

New outputs begin with weights of 0, so they answer 0; what was recorded before (logits, a teacher's answers, vectors
like θ) has 0 for them too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from everlearn import checks
from everlearn.core.layout import fitted
from everlearn.core.memory import Memory
from everlearn.core.snapshot import Snapshot
from everlearn.core.state import Stateful
from everlearn.core.theta import MainNet, widen
from everlearn.data import Inputs, Pixels
from everlearn.data import inputs as inputs_of
from everlearn.errors import BadInput
from everlearn.learner.labels import Labels

if TYPE_CHECKING:
    from everlearn.learner.learner import Learner

LOGITS = "it should be a vector of logits, one per class"
REMEDY = "give `classes`, a list of the labels of all classes there will be"


def grow(learner: Learner, new: list[Any], x: Tensor) -> None:
    """An output for each of these new classes; `x` are samples the network can be tried with."""
    if not new:
        return
    checks.trainable(learner)
    first, one = not learner.classes, x[:1].clone()
    with undone(learner):
        if learner.head is None:
            learner.head = checks.tried(lambda: head_of(learner.net, learner.inputs(one.to(learner.device))), x)
        checks.tried(lambda: learner._answer(checks.telling(x)), x)
        learner.labels.add(new)
        if first:
            learner._uncut = [weight.detach().clone() for weight in head(learner).parameters()]
        resize(learner, learner.classes)
        try:
            learner.logits(one)
        except (RuntimeError, ValueError) as error:
            words = str(error).strip().splitlines()[0]
            raise BadInput(f"the network cannot have {learner.classes} outputs instead ({words}); {REMEDY}") from error
    if not first:
        learner.method.tell("grow", learner)


@contextlib.contextmanager
def undone(learner: Learner) -> Iterator[None]:
    """Inside, what is refused before a step was taken leaves the classes, the head and the inputs as they were."""
    classes, before = learner.classes, (learner.head, learner.inputs, learner.memory, learner.columns)
    place = learner.tasks, learner.epoch, learner.step
    try:
        yield
    except BaseException:
        if not learner._torn and place == (learner.tasks, learner.epoch, learner.step):
            if learner.classes > classes:
                shrink(learner, classes)
            learner.head, learner.inputs, learner.memory, learner.columns = before
        raise


@torch.no_grad()
def shrink(learner: Learner, classes: int) -> None:
    """No more than the first so many classes; without any the head is as it came."""
    del learner.labels.names[classes:]
    resize(learner, classes or len(learner._uncut[0]))
    if not classes:
        for weight, own in zip(head(learner).parameters(), learner._uncut):
            weight.copy_(own)


def head(learner: Learner) -> Any:
    """The layer that grows."""
    assert learner.head is not None  # it was found, or a state says it
    return learner.net.module.get_submodule(learner.head)


def resize(learner: Learner, outputs: int) -> None:
    """Another number of outputs, for the network and all that follows it."""
    assert learner.head is not None  # it was found, or a state says it
    if head(learner).out_features == outputs:
        return
    before = learner.net.theta.shape
    follow = learner.net.resize(learner.head, outputs)
    for of in (learner.sgd, learner.method, learner.method.weighting):
        _follow(of, before, follow, learner.head, outputs)
    if learner.memory is not None:
        reshape(learner.memory, learner.method.fields(learner))


def reshape(memory: Memory, fields: Mapping[str, Sequence[int]]) -> None:
    """Other shapes of what is kept beside the samples: new places hold 0."""
    for name, shape in fields.items():
        if tuple(shape) != tuple((own := memory.stored[name]).shape[1:]):
            memory.stored[name] = fitted(own, (len(own), *shape))


def _following(of: Stateful) -> dict[str, Any]:
    """What it holds that may follow a head that grows."""
    apart = {name for kind in type(of).__mro__ for name in vars(kind).get("apart", ())}
    return {name: value for name, value in of._held().items() if name not in apart}


def _follow(of: Stateful, shape: torch.Size, follow: Callable[[Tensor], Tensor], head: str, outputs: int) -> None:
    for name, value in _following(of).items():
        if isinstance(value, Tensor) and value.shape == shape:
            setattr(of, name, follow(value.detach()))
        elif isinstance(value, Snapshot):
            with torch.no_grad():
                widen(value.module.get_submodule(head), outputs)
        elif isinstance(value, Stateful):
            _follow(value, shape, follow, head, outputs)


def like_theta(of: Stateful, shape: torch.Size) -> list[str]:
    """The names, in its state, of the tensors it holds that are laid out like θ."""
    parts = {name: value for name, value in _following(of).items() if isinstance(value, Stateful)}
    own = [name for name, value in _following(of).items() if isinstance(value, Tensor) and value.shape == shape]
    return own + [f"{name}.{inner}" for name, part in parts.items() for inner in like_theta(part, shape)]


def head_of(net: MainNet, x: Tensor) -> str:
    """The name of the linear layer that gives the network's answer to this input."""
    calls: list[tuple[nn.Module, torch.Size]] = []
    linear = {layer: name for name, layer in net.module.named_modules() if type(layer) is nn.Linear}
    shape = lambda answer: torch.Size() if answer.is_nested else answer.shape  # an encoder's, of padded rows
    hooks = [
        layer.register_forward_hook(lambda layer, _, answer: calls.append((layer, shape(answer)))) for layer in linear
    ]
    try:
        with torch.no_grad(), net.evaluating():
            answer = net.at(net.theta)(x)[0]
    finally:
        for hook in hooks:
            hook.remove()
        net.unbind()
    if answer.ndim != 2:
        raise BadInput(f"the network answers a sample with a tensor of shape {tuple(answer.shape[1:])}; {LOGITS}")
    own = getattr(net.module, "head", None)
    last = own if isinstance(own, nn.Module) and own in linear else calls[-1][0] if calls else None
    plain = last is not None and {*last._parameters} == {"weight", "bias"} and not last._buffers  # no weight_norm, say
    if not plain or [shape for layer, shape in calls if layer is last][-1:] != [answer.shape]:
        raise BadInput(f"the network's answer is not a plain linear layer's, so it cannot grow; {REMEDY}")
    assert isinstance(last, nn.Linear)
    name, weights = linear[last], list(last.parameters())
    if not all(weight.requires_grad for weight in weights):
        raise BadInput(f"the network's last layer, {name}, is frozen, so new classes cannot be learned; {REMEDY}")
    uses = [p for layer in net.module.modules() for p in layer._parameters.values() if p is not None]
    if any(sum(p is weight for p in uses) > 1 for weight in weights):
        raise BadInput(f"the network's last layer, {name}, shares its weights with another, and cannot grow; {REMEDY}")
    return name


def restore(learner: Learner, known: dict[str, Any], network: Mapping[str, Tensor]) -> None:
    """The classes, the head and the inputs a state was made with; before its first class the head was as it came."""
    labels = Labels.parse(known["labels"])
    if learner.told is not None and not learner.told.allows(labels):
        raise BadInput(
            f"this state's classes are {labels.shown()}, and the learner was told {learner.told.shown()}; "
            "give it the same `classes`, or none"
        )
    restore_inputs(learner, known["inputs"])
    learner.labels, learner.columns = labels, known.get("columns")
    learner.memory = None  # another is on the way
    if known["head"] is not None:
        learner.head = known["head"]
    if learner.head is not None:
        resize(learner, len(network[f"{learner.head}.weight".removeprefix(".")]))
    learner.head = known["head"]


def restore_inputs(learner: Learner, document: dict[str, Any] | None) -> None:
    if document is None:
        learner.inputs = None if learner.given_inputs is None else learner.inputs
        return
    own = learner.inputs
    if own is None:
        plain = document == Inputs().document()
        if document["kind"] != "pixels" and not plain:
            raise BadInput("this learner was taught with inputs of its own; give them again: inputs=…")
        own = Inputs() if plain else Pixels.parse(document)
        learner.inputs = own.to(learner.device, learner.dtype)
    elif not inputs_of.same(own.document(), document) and not learner.changed_inputs:
        raise BadInput(
            "its samples were made the network's input in another way than `inputs` says now; give the same, "
            "or say changed_inputs=True if it means the same"
        )
