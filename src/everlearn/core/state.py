"""What is to be found again after an interruption: the tensors an object holds, by name."""

from __future__ import annotations

from torch import Tensor


class Stateful:
    """Its state is its tensor attributes, but for those that are `derived` from how it was made."""

    derived: tuple[str, ...] = ()

    def state(self) -> dict[str, Tensor]:
        known = vars(self).items()
        return {name: value for name, value in known if isinstance(value, Tensor) and name not in self.derived}

    def restore(self, state: dict[str, Tensor]) -> None:
        vars(self).update(dict.fromkeys(self.state()) | state)  # what it does not mention was not there yet


def part(state: dict[str, Tensor], of: str) -> dict[str, Tensor]:
    """Of a state with names like `memory.x`, those of one part, as it calls them."""
    return {name.removeprefix(f"{of}."): tensor for name, tensor in state.items() if name.startswith(f"{of}.")}


def joined(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{of}.{name}": tensor for of, tensors in parts.items() for name, tensor in tensors.items()}
