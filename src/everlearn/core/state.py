"""What is to be found again after an interruption: the tensors an object holds, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from everlearn.arguments import checked


class Stateful:
    """Its state is its tensor attributes and the state of its Stateful attributes.

    What is `derived` from how it was made is left out.
    """

    derived: ClassVar[tuple[str, ...]] = ()  # a subclass names its own; its parents' are derived, too
    apart: ClassVar[tuple[str, ...]] = ()  # tensors that do not follow a head that grows, even if as long as θ
    fleeting = False  # as an attribute of another: does restoring a state without it set it to None?

    def _held(self) -> dict[str, Any]:
        derived = {name for kind in type(self).__mro__ for name in vars(kind).get("derived", ())}
        return {name: value for name, value in vars(self).items() if name not in derived}

    def state(self) -> dict[str, Tensor]:
        own = {name: value for name, value in self._held().items() if isinstance(value, Tensor)}
        return own | joined({name: of.state() for name, of in self._held().items() if isinstance(of, Stateful)})

    @checked
    def restore(self, state: dict[str, Tensor]) -> None:
        """Be as that state says. A part or tensor it does not mention was not there yet."""
        for name, value in self._held().items():
            if isinstance(value, Stateful):
                own = part(state, name)
                if own or not value.fleeting:
                    value.restore(own)
                else:
                    setattr(self, name, None)
        flat = {name: tensor for name, tensor in state.items() if "." not in name}
        vars(self).update(dict.fromkeys(name for name in self.state() if "." not in name) | flat)


def part(state: Mapping[str, Tensor], of: str) -> dict[str, Tensor]:
    """Of a state with names like `memory.x`, those of one part, as it calls them."""
    return {name.removeprefix(f"{of}."): tensor for name, tensor in state.items() if name.startswith(f"{of}.")}


def joined(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{of}.{name}": tensor for of, tensors in parts.items() for name, tensor in tensors.items()}


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state that stays as it is now, whatever becomes of what it is of."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def as_bytes(text: str) -> Tensor:
    """Words in a state."""
    return torch.tensor([*text.encode()], dtype=torch.uint8)


def from_bytes(tensor: Tensor) -> str:
    return bytes(tensor.tolist()).decode()
