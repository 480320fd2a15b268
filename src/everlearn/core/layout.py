"""Some tensors of a module as one vector."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from everlearn.errors import BadInput

Replaced = tuple[str, Tensor, Tensor | None]  # a tensor's name, the tensor, and what was put in its slot


class Layout:
    """The slots of a module, a dictionary and a key each, that hold some tensors, and their layout in one vector."""

    def __init__(
        self,
        slots: list[tuple[dict[str, Any], str]],
        device: torch.device,
        dtype: torch.dtype,
        channels_last: bool = False,
    ):
        tensors: dict[int, Tensor] = {}  # tied tensors are stored once
        for home, name in slots:
            tensors.setdefault(id(home[name]), home[name])
        index = {key: position for position, key in enumerate(tensors)}
        self.homes = [(home, name, index[id(home[name])]) for home, name in slots]
        # Convolution weights are channels last on a GPU, as its kernels want them: [O, I, H, W] stored as [O, H, W, I].
        stored = [
            tensor.detach().permute(0, 2, 3, 1) if channels_last and tensor.ndim == 4 else tensor.detach()
            for tensor in tensors.values()
        ]
        self.shapes = [tensor.shape for tensor in stored]
        self.orders = [(0, 3, 1, 2) if channels_last and tensor.ndim == 4 else None for tensor in stored]
        self.sizes = [tensor.numel() for tensor in stored]
        self.vector = torch.cat([tensor.reshape(-1).to(device, dtype) for tensor in stored])

    def unflatten(self, vector: Tensor) -> list[Tensor]:
        """The tensors as views of a vector."""
        return self.shaped(vector.split(self.sizes))

    def shaped(self, flat: Iterable[Tensor]) -> list[Tensor]:
        """The tensors as views of what lies flat, each by itself."""
        pieces = [piece if len(shape) == 1 else piece.view(shape) for piece, shape in zip(flat, self.shapes)]
        return [piece if order is None else piece.permute(order) for piece, order in zip(pieces, self.orders)]

    def flat(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Such tensors as they lie in the vector, each flat; nothing is copied of what is stored as they are."""
        stored = (t if order is None else t.permute(0, 2, 3, 1) for t, order in zip(tensors, self.orders, strict=True))
        return [tensor.reshape(-1) for tensor in stored]

    def overlaid(self, tensors: Sequence[Tensor]) -> Tensor:
        """A vector of these tensors, those of another shape cut off or filled up with 0."""
        vector = torch.zeros_like(self.vector, requires_grad=False, dtype=tensors[0].dtype)
        for own, other in zip(self.unflatten(vector), tensors, strict=True):
            own.copy_(fitted(other, own.shape))
        return vector

    def bind(self, tensors: Sequence[Tensor]) -> None:
        for home, name, position in self.homes:
            home[name] = tensors[position]

    def replaced(self, tensors: list[Tensor]) -> list[Replaced]:
        """Which of these tensors' slots hold something else."""
        slots = ((name, tensors[position], home[name]) for home, name, position in self.homes)
        return [(name, own, there) for name, own, there in slots if there is not own]

    @contextlib.contextmanager
    def kept_if(self, wanted: Tensor) -> Iterator[None]:
        """Inside, a module may write to its slots or put other tensors there; unless `wanted`, they are then as before.

        By `data`: what autograd has still to read of them does not depend on it."""
        vector, slots = self.vector.clone(), [home[name] for home, name, _ in self.homes]
        yield
        self.vector.data.copy_(torch.where(wanted, self.vector, vector))
        for (home, name, _), before in zip(self.homes, slots):
            if isinstance(after := home[name], Tensor) and after is not before and after.shape == before.shape:
                home[name] = torch.where(wanted, after, before)


class Rounded(torch.autograd.Function):
    """A vector θ as the tensors of its layout: the first so many, all matrices, in bfloat16, the others as they are.

    In reverse mode their gradients are written straight into one vector like θ. Autograd's own way, which casts and
    concatenates, goes over all of θ three times.
    """

    generate_vmap_rule = True  # for gradients per sample

    @staticmethod
    def forward(theta: Tensor, layout: Layout, matrices: int) -> tuple[Tensor, ...]:
        low, full = layout.sizes[:matrices], layout.sizes[matrices:]
        rounded, exact = theta.split([sum(low), sum(full)])
        return tuple(layout.shaped([*rounded.to(torch.bfloat16).split(low), *exact.split(full)]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        theta, ctx.layout, ctx.matrices = inputs
        ctx.dtype = theta.dtype

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        flat = ctx.layout.flat(gradients)
        # To be differentiated once more, or of several losses at once (is_grads_batched), which torch cannot copy so.
        if torch.is_grad_enabled() or any(map(is_legacy_batchedtensor, flat)):
            return torch.cat([gradient.to(ctx.dtype) for gradient in flat]), None, None
        vector = flat[0].new_empty(sum(ctx.layout.sizes), dtype=ctx.dtype)
        places = vector.split(ctx.layout.sizes)
        for dtype in dict.fromkeys(gradient.dtype for gradient in flat):
            same = [(place, gradient) for place, gradient in zip(places, flat) if gradient.dtype == dtype]
            into, of = map(list, zip(*same))
            torch._foreach_copy_(into, of)  # pyright: ignore[reportPrivateImportUsage]
        return vector, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_unused: None) -> tuple[Tensor, ...]:
        return Rounded.forward(tangent, ctx.layout, ctx.matrices)


def fitted(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor in another shape of as many dimensions: cut off, or filled up with 0."""
    made = tensor.new_zeros(shape)
    both = tuple(slice(min(sizes)) for sizes in zip(tensor.shape, shape))
    made[both] = tensor[both]
    return made


@torch.no_grad()
def write_back(replaced: list[Replaced]) -> None:
    """Copy into tensors what was put in their slots."""
    for name, own, there in replaced:
        if there is None or there.shape != own.shape:
            became = "None" if there is None else f"of shape {list(there.shape)}"
            raise BadInput(f"the network's {name} was of shape {list(own.shape)} and is {became} now; it must keep it")
        if there.data_ptr() != own.data_ptr():
            own.copy_(there.detach())
