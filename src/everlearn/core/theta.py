"""The Main Net: any nn.Module, its trainable parameters one vector θ. The Relation Replay Net is kept so too, as φ.

One vector makes the update one operation, and the network at another θ (a virtual step, a direction of
forward-mode differentiation) a matter of binding other views.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.core import alone, ranks
from everlearn.core.filling import Rows, any_there, filled
from everlearn.core.layout import Layout, Replaced, Rounded, fitted, write_back
from everlearn.core.norm import Norm
from everlearn.core.turns import Turns
from everlearn.errors import BadInput, passed_on, shown

SMALL = 2_000_000  # parameters


def small(parameters: int) -> bool:
    """On the CPU so small a network is slower on two threads than on one, and much slower beside other processes."""
    return parameters < SMALL


def check_norms(modules: Sequence[nn.Module]) -> None:
    """Over several ranks statistics must run over all of them."""
    for module in modules:
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, Norm):
            raise BadInput(
                f"the network has a {type(module).__name__} layer, which sees the rows of one rank alone; "
                "over several ranks use everlearn.core.norm.Norm instead"
            )


@contextlib.contextmanager
def reading(module: nn.Module) -> Iterator[list[Tensor]]:
    """Inside, the features of each pass are gathered: the input of the network's `head` or of its last linear layer."""
    read: list[Tensor] = []
    head = getattr(module, "head", None)
    layers = [head] if isinstance(head, nn.Module) else [m for m in module.modules() if isinstance(m, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(lambda layer, inputs: read.append(inputs[0])) for layer in layers]
    try:
        yield read
    finally:
        for hook in hooks:
            hook.remove()
    if not read:
        raise BadInput("the network uses no linear layer and names no head, whose input would be its features")


def widen(layer: nn.Module, outputs: int) -> None:
    """Another number of outputs for a linear layer: the first keep their weights, further ones have weights of 0."""
    for name, own in list(layer._parameters.items()):
        if own is not None:
            wide = fitted(own.detach(), (outputs, *own.shape[1:]))
            setattr(layer, name, nn.Parameter(wide, requires_grad=own.requires_grad))
    layer.out_features = outputs  # pyright: ignore[reportArgumentType]  # a linear layer's


class MainNet:
    """f(x; θ). `at(θ)` binds the module to a θ; the module speaks for the θ it was bound to last."""

    def __init__(
        self,
        module: nn.Module,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        forward: str = "separate",
        precision: str = "float32",
        fuse: bool | None = None,
    ):
        device = torch.device(device)
        fuse = device.type == "cuda" or ranks.distributed() if fuse is None else fuse
        self._low = low = precision == "bfloat16"
        self.autocast: contextlib.AbstractContextManager[Any] = (
            torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if low else contextlib.nullcontext()
        )
        self.module: nn.Module = (module.double() if dtype == torch.float64 else module.float()).to(device)
        modules = list(module.modules())
        self._layers = [m._parameters for m in modules]
        # A layer in evaluation mode stays so if it is frozen (a backbone, say), or if the network itself is not.
        fixed = lambda m: any(True for _ in m.parameters()) and not any(p.requires_grad for p in m.parameters())
        still = [m for m in modules if not m.training and (module.training or fixed(m))]
        self._still = [m for top in still for m in top.modules() if not m.training]
        ranks.broadcast(*module.parameters(), *module.buffers())
        if ranks.distributed():
            check_norms(modules)
        self._norms = [m for m in modules if isinstance(m, Norm)]
        # `rowwise`: the output for a row depends, but for Norm layers, on that row alone, so batches may share a pass.
        rowwise = getattr(module, "rowwise", False)
        together = forward == "joint" or (rowwise and not self._norms)
        grouped = rowwise and fuse and all(norm not in self._still for norm in self._norms)
        way = self._joint if together else self._grouped if grouped else self._separate
        self.forward: Callable[..., Sequence[Tensor]] = way
        for norm in self._norms:
            norm.fuse = fuse and device.type == "cuda" and not ranks.distributed()
        self._lay_out(device, dtype)
        # Buffers (BatchNorm's running statistics) in one vector per dtype, so that a virtual pass can be given a copy.
        kinds: dict[tuple, list] = {}  # the Norm layers' own come together: they move at once
        for m in modules:
            for name, b in m._buffers.items():
                if b is not None:
                    kinds.setdefault((isinstance(m, Norm), b.dtype), []).append((m._buffers, name))
        layouts = {kind: Layout(slots, device, kind[1]) for kind, slots in kinds.items()}
        self._buffers = [(of, of.unflatten(of.vector)) for of in layouts.values()]
        self._moving = [layouts[kind].vector for kind in layouts if kind[0]]  # [statistics, counters]
        self._floats = [of.vector for of in layouts.values() if of.vector.is_floating_point()]
        # Recurrent layers keep a second list of their weights.
        self._recurrent: list[Any] = [m for m in modules if hasattr(m, "_flat_weights_names")]
        self._assigned: list[Replaced] = []
        self.turn: Turns = Turns(device)  # whose it is to use it
        self.reads = False  # is each pass to gather features?
        self.read: Any = ()  # if it reads, a list: the features of each batch of the last call
        self._bind_buffers(live=True)
        self.unbind()

    def _lay_out(self, device: torch.device, dtype: torch.dtype) -> None:
        """θ, of what can be trained in the module as it is now."""
        trainable: list[tuple[dict[str, Any], str]] = [
            (m._parameters, name)
            for m in self.module.modules()
            for name, p in m._parameters.items()
            if p is not None and p.requires_grad
        ]
        if not trainable:
            raise BadInput("the network has no trainable parameter; set requires_grad on what it should learn")
        self._in_order = list(dict.fromkeys(home[name] for home, name in trainable))
        if self._low:  # matrices first: they are rounded together
            trainable.sort(key=lambda slot: slot[0][slot[1]].ndim < 2)
        self._frozen = [p for p in self.module.parameters() if not p.requires_grad]
        self._owned = list(dict.fromkeys(home[name] for home, name in trainable))
        self._parameters = Layout(trainable, device, dtype, channels_last=device.type == "cuda")
        matrices = sum(len(shape) > 1 for shape in self._parameters.shapes)
        self.matrices: int | None = matrices if self._low else None  # how many are rounded
        self.theta: Tensor = self._parameters.vector.requires_grad_()  # [P], moved in place
        self._tie()

    @torch.no_grad()
    def resize(self, head: str, outputs: int) -> Callable[[Tensor], Tensor]:
        """Give its head so many outputs. Those it had stay as they are, new ones begin with weights of 0.

        Other vectors like the old θ follow by the function it gives, new entries 0."""
        self.sync()
        self.unbind()
        before = self._parameters
        widen(self.module.get_submodule(head), outputs)
        self._lay_out(self.theta.device, self.theta.dtype)
        return lambda vector: self._parameters.overlaid(before.unflatten(vector))

    def plain(self, vector: Tensor) -> Tensor:
        """A vector like θ in the order of the module's own parameters, whatever the device and the precision."""
        views = dict(zip(self._owned, self._parameters.unflatten(vector)))
        return torch.cat([views[parameter].reshape(-1) for parameter in self._in_order])

    def laid_out(self, plain: Tensor) -> Tensor:
        """The inverse of `plain`: a vector in the module's own order, laid out as θ is."""
        pieces = plain.split([parameter.numel() for parameter in self._in_order])
        views = {parameter: piece.view(parameter.shape) for parameter, piece in zip(self._in_order, pieces)}
        return self._parameters.overlaid([views[parameter] for parameter in self._owned])

    def at(self, theta: Tensor, virtual: bool = False) -> MainNet:
        """The network bound to θ, to be called with batches. A virtual pass does not change the running statistics."""
        layout, matrices = self._parameters, self.matrices
        self._bind(layout.unflatten(theta) if matrices is None else Rounded.apply(theta, layout, matrices))
        self._unbound = False
        if self._buffers and (virtual or not self._live):
            self._bind_buffers(live=not virtual)
        return self

    def __call__(self, *batches: Tensor, there: Sequence[Tensor | None] = ()) -> Sequence[Tensor]:
        """The logits of each batch at the θ it is bound to; if it `reads`, the features of each batch are in `read`.

        `there` says of each batch which rows are samples. A batch without any moves no running statistics."""
        matters = self._buffers and (self._live or self.forward == self._joint)
        moved = there if matters else ()
        if not self.reads:
            return self.forward(*batches, there=moved)
        self.read = []
        logits = self.forward(*batches, there=moved)
        if len(self.read) < len(batches):  # they shared a pass
            self.read = list(self.read[0].split([len(x) for x in batches]))
        return logits

    def train(self) -> None:
        self.module.train()
        for module in self._still:
            module.training = False

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode; afterwards every layer is in the mode it was in."""
        modes = [(module, module.training) for module in self.module.modules()]
        self.module.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode

    def gradient(self, loss: Tensor, retain_graph: bool = False) -> Tensor:
        """∇θ of a mean loss; where each rank has the loss of its rows, of the mean over all of them."""
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            given = f"of shape {list(loss.shape)}" if isinstance(loss, Tensor) else shown(loss)
            raise BadInput(f"the loss to descend is {given}; it must be one number, a mean over rows")
        if not loss.requires_grad:
            raise BadInput(
                "the loss does not depend on the network any more; what its terms are made of must not be detached, "
                "a number (.item()), or computed under no_grad"
            )
        (gradient,) = ranks.all_reduce(*torch.autograd.grad(loss, self.theta, retain_graph=retain_graph))
        if not retain_graph:  # now that the graph is gone: it may have read a buffer that was then assigned anew
            self._sync_buffers()
        return gradient

    def per_sample(self, loss: Callable[..., Tensor], *batch: Tensor) -> Tensor:
        """∇θ loss(net, sample) of each sample of a batch on its own, [B, P]; `loss` gets batches of one."""
        one = lambda theta, *sample: loss(self.at(theta, virtual=True), *(tensor[None] for tensor in sample))
        for norm in self._norms:
            norm.mapped = True
        try:
            return alone.gradients(one, self.theta.detach(), batch)
        finally:
            for norm in self._norms:
                norm.mapped = False

    def features(self, x: Tensor) -> Tensor:
        """What its head reads, [B, d]."""
        with reading(self.module) as read:
            self.at(self.theta)(x)
        return read[-1].to(self.theta.dtype)

    def floats(self) -> Tensor:
        """A copy of its running statistics and other floating-point buffers, in one vector."""
        return torch.cat([self.theta.new_zeros(0), *(vector.to(self.theta.dtype) for vector in self._floats)])

    @torch.no_grad()
    def assign(self, theta: Tensor, floats: Tensor) -> None:
        """Another θ and other running statistics, as `floats` has them."""
        self.theta.copy_(theta)
        for vector, values in zip(self._floats, floats.split([len(vector) for vector in self._floats])):
            vector.copy_(values)

    def unbind(self) -> nn.Module:
        """The module as its owner knows it: with nn.Parameters (that share θ's memory) and its own buffers."""
        self._bind(self._owned)
        self._unbound = True
        self.read = ()
        if not self._live:
            self._bind_buffers(live=True)
        self._sync_buffers()
        return self.module

    @torch.no_grad()
    def sync(self) -> None:
        """Take up what its owner has done to the module at rest: tensors cast, moved or assigned."""
        if not self._unbound:  # it was in use
            return
        now = [m._parameters for m in self.module.modules()]
        if len(now) != len(self._layers) or any(map(operator.is_not, now, self._layers)):
            raise BadInput("the network has other layers than it had when the learner was made; make a new learner")
        write_back(self._parameters.replaced(self._parameters.unflatten(self.theta.detach())))
        self._tie()
        self.unbind()

    @property
    def refrozen(self) -> bool:
        """Has its owner frozen a parameter that was trainable, or the other way round?"""
        return not all(p.requires_grad for p in self._owned) or any(p.requires_grad for p in self._frozen)

    def __deepcopy__(self, memo: dict[int, Any]) -> MainNet:
        """Another network, the same so far. Copied parameters have memory of their own, and are tied again."""
        self.sync()
        self.unbind()
        memo[id(self)] = other = object.__new__(type(self))
        vars(other).update(copy.deepcopy(vars(self), memo))
        other._tie()
        return other

    def __getstate__(self) -> dict[str, Any]:
        self.sync()
        self.unbind()
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Tensors that shared memory have memory of their own once they were pickled, and are tied again."""
        vars(self).update(state)
        self._tie()
        self._buffers = [(of, of.unflatten(of.vector)) for of, _ in self._buffers]
        self._bind_buffers(live=True)
        self.unbind()

    def state(self) -> dict[str, Tensor]:
        """Everything the network has learned, by name."""
        self.sync()
        state = self.unbind().state_dict()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise BadInput(f"the network's {name} is a {type(value).__name__}; a state holds tensors only")
        return {name: tensor.detach() for name, tensor in state.items()}

    def _tie(self) -> None:
        """The owner's parameters share θ's memory."""
        for parameter, view in zip(self._owned, self._parameters.unflatten(self.theta.detach())):
            parameter.data = view

    def _bind(self, tensors: Sequence[Tensor]) -> None:
        self._parameters.bind(tensors)
        for m in self._recurrent:
            m._flat_weights = [getattr(m, name, None) for name in m._flat_weights_names]

    def _bind_buffers(self, live: bool) -> None:
        for layouts, own in self._buffers:
            if not live and self._live:
                self._assigned += layouts.replaced(own)
            layouts.bind(own if live else layouts.unflatten(layouts.vector.clone()))
        self._live = live

    def _sync_buffers(self) -> None:
        """Buffers a network has assigned anew in a real pass, and not written to."""
        if self._live:
            for layouts, own in self._buffers:
                if replaced := layouts.replaced(own):
                    self._assigned += replaced
                    layouts.bind(own)
        if self._assigned:
            assigned, self._assigned = self._assigned, []
            write_back(assigned)

    def _separate(self, *batches: Tensor, there: Rows = ()) -> list[Tensor]:
        """One pass per batch: BatchNorm normalises each by its own statistics and moves once per batch, memory last."""
        with self.autocast:
            return [self._passed(x, moves) for x, moves in zip(batches, any_there(batches, there))]

    def _passed(self, x: Tensor, moves: Tensor | None) -> Tensor:
        with contextlib.ExitStack() as kept:
            if moves is not None:
                for layout, _ in self._buffers:
                    kept.enter_context(layout.kept_if(moves))
            return self._answer(x)

    def _grouped(self, *batches: Tensor, there: Rows = ()) -> Sequence[Tensor]:
        """The same in one pass: the Norm layers normalise each batch separately."""
        if len({len(x) for x in batches}) > 1:
            return self._separate(*batches, there=there)
        for norm in self._norms:
            norm.groups = len(batches)
        try:
            answers = self._joint(*batches)
            if self._live:
                self._move(any_there(batches, there))
        finally:
            for norm in self._norms:
                norm.groups, norm.seen = None, ()
        return answers

    @torch.no_grad()
    def _move(self, moves: Sequence[Tensor | None]) -> None:
        """Running statistics after one batch after the other: all layers at once, if each was used once."""
        momenta: set[Any] = {norm.momentum for norm in self._norms}
        if len(momenta) > 1 or None in momenta or any(len(norm.seen) != 1 for norm in self._norms):
            for norm in self._norms:
                norm.move(moves)
            return
        statistics, counters = self._moving
        seen = torch.cat([tensor for norm in self._norms for tensor in norm.seen[0]], dim=2)  # [batches, 1, all]
        (momentum,) = momenta
        for each, weight in zip(seen[:, 0], moves):
            statistics.lerp_(each, momentum if weight is None else momentum * weight.to(each))
        counters += sum(1 if weight is None else weight for weight in moves)

    def _joint(self, *batches: Tensor, there: Rows = ()) -> tuple[Tensor, ...]:
        """One pass over all batches, which then share their statistics; the first has samples for rows without one."""
        with self.autocast:
            return self._answer(torch.cat(filled(batches, there))).split([len(x) for x in batches])

    def _answer(self, x: Tensor) -> Tensor:
        features = reading(self.module) if self.reads else contextlib.nullcontext()
        with features as read, passed_on("the network's own forward"):
            answer = self.module(x)
        if self.reads:
            self.read.append(read[-1].to(self.theta.dtype))
        if not isinstance(answer, Tensor):
            raise BadInput(
                f"the network answers with a {type(answer).__name__}; it should be a tensor, one logit per class: "
                "let the forward of a module around it pick that"
            )
        return answer.to(self.theta.dtype)
