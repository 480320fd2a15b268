"""What is to be found again after an interruption: the tensors an object holds, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor


class Stateful:
    """Its state is its tensor attributes and the state of its Stateful attributes.

    What is `derived` from how it was made is left out.
    """

    derived: ClassVar[tuple[str, ...]] = ()
    lasting = False  # as a part of another: is it there from the beginning, even while it holds nothing?

    def state(self) -> dict[str, Tensor]:
        known = {name: value for name, value in vars(self).items() if name not in self.derived}
        own = {name: value for name, value in known.items() if isinstance(value, Tensor)}
        return own | joined({name: part.state() for name, part in known.items() if isinstance(part, Stateful)})

    def restore(self, state: dict[str, Tensor]) -> None:
        """Be as that state says. A part or tensor it does not mention was not there yet."""
        for name, value in list(vars(self).items()):
            if isinstance(value, Stateful) and name not in self.derived:
                if (own := part(state, name)) or value.lasting:
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
