"""The network as it was, or as it was on average."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from everlearn import errors
from everlearn.arguments import Checked
from everlearn.core.norm import Norm
from everlearn.core.state import Stateful, part
from everlearn.core.theta import MainNet, reading
from everlearn.errors import BadInput, passed_on


class Snapshot(Checked, Stateful):
    """A frozen copy of a network in evaluation mode, which answers in the run's precision: a teacher.

    In bfloat16 its matrices are rounded here, once, as the network's own are in every step.
    """

    fleeting = True

    def __init__(self, net: MainNet):
        self.module: nn.Module = copy.deepcopy(net.unbind()).eval()
        for parameter in self.module.parameters() if net.matrices else ():
            if parameter.requires_grad and parameter.ndim > 1:
                parameter.data = parameter.data.to(torch.bfloat16)
        self.module.requires_grad_(False)
        for layer in self.module.modules():
            if isinstance(layer, Norm):
                layer.frozen = True
        self.autocast: contextlib.AbstractContextManager[Any] = net.autocast
        self.dtype: torch.dtype = net.theta.dtype

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""
        with self.autocast, passed_on("the network's own forward"):
            return self.module(x).to(self.dtype)

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """What its head reads, [B, d]."""
        with self.autocast, reading(self.module) as read, passed_on("the network's own forward"):
            self.module(x)
        return read[-1].to(self.dtype)

    def state(self) -> dict[str, Tensor]:
        return self.module.state_dict()

    def restore(self, state: dict[str, Tensor]) -> None:
        try:
            self.module.load_state_dict(state)
        except RuntimeError as error:
            raise BadInput(f"this state is of another network ({str(error).splitlines()[0]})") from error


def made_again(of: Stateful, state: dict[str, Tensor], net: MainNet) -> None:
    """The snapshots that were made in a task: where a state has one and the object, made anew, not yet, it gets one of
    this network, for the state to be put into."""
    keys = net.unbind().state_dict().keys()
    for name in {key.partition(".")[0] for key in state if "." in key}:
        held, own = vars(of).get(name), part(state, name)
        if isinstance(held, Stateful):
            made_again(held, own, net)
        elif own.keys() == keys:
            setattr(of, name, Snapshot(net))


USUAL = 0.999  # decay


class Average(Checked, Stateful):
    """The moving average of a network, its running statistics included, to be tested instead of it.

    After step n, θ̄ ← d θ̄ + (1 − d) θ with d = min(decay, (1 + n) / (10 + n)): in a short training it reaches back over
    about a ninth of the steps. It begins as the network is after the first step. With a decay of 0 there is none. With
    `task` the decay is T / (2 + T) in a task of T steps, so that it reaches back over about half of the task, and .999
    without tasks.
    """

    apart = ("statistics",)

    def __init__(self, decay: float | str):
        errors.decay(decay)
        self.by_task = decay == errors.TASK
        self.decay: float = USUAL if isinstance(decay, str) else decay
        self.mean: Tensor | None = None
        self.statistics: Tensor | None = None
        self.steps: Tensor | None = None

    def begin_task(self, steps: int | None) -> None:
        """Of so many; None: of a stream without tasks."""
        if self.by_task:
            self.decay = USUAL if steps is None else steps / (2 + steps)

    @torch.no_grad()
    def update(self, net: MainNet) -> None:
        """After each step; in place, so that a recorded step can do it."""
        if not self.decay:
            return
        theta = net.theta.detach()
        if self.mean is None:
            self.mean, self.statistics = theta.clone(), net.floats()
        if self.steps is None:
            self.steps = theta.new_zeros(())
        share = (9 / (10 + self.steps)).clamp_(min=1 - self.decay)  # 1 − d
        self.mean.lerp_(theta, share)
        self.statistics.lerp_(net.floats(), share)
        self.steps += 1

    @contextlib.contextmanager
    def applied(self, net: MainNet) -> Iterator[None]:
        """Inside, the network is its average, if there is one yet."""
        if self.mean is None or self.statistics is None:
            yield
            return
        own = net.theta.detach().clone(), net.floats()
        net.assign(self.mean, self.statistics)
        try:
            yield
        finally:
            net.assign(*own)
