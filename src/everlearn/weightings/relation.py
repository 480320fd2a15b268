"""Relational Experience Replay: weights by a Relation Replay Net, learned by bi-level optimisation (Eq. 3–9)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from everlearn.arguments import checked
from everlearn.core import ranks
from everlearn.core.plan import Draw
from everlearn.core.seeding import seeded
from everlearn.core.state import copied, joined, part
from everlearn.core.terms import Batch, Terms, cross_entropy, seen_by, weighed
from everlearn.core.theta import MainNet
from everlearn.errors import BadInput, Notice, number, unknown
from everlearn.weightings import diagnostics, outer
from everlearn.weightings.adam import Adam
from everlearn.weightings.base import Phased
from everlearn.weightings.bilevel import HYPERGRADIENTS, check
from everlearn.weightings.net import RelationReplayNet, norms

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.data import Task
    from everlearn.learner import Learner
    from everlearn.methods.base import Method
    from everlearn.training import Training

ORDERS = ("printed", "fresh")


@checked
@dataclass(eq=False)
class Relational(Phased):
    """Weights by a Relation Replay Net, one for the whole stream; subclasses say how it learns."""

    derived = ("phi", "learns", "rrn")  # the RRN has a state of its own below
    apart = ("phi",)  # the RRN's own vector
    streams = True
    hidden: int = 16
    rrn_lr: float = 1e-3
    rrn_weight_decay: float = 1e-4
    learned: Sequence[str] = ()  # names of the terms whose weights it learns, the others at their preset; (): all
    later: ClassVar[dict[str, Any]] = {"learned": ()}

    def __post_init__(self) -> None:
        super().__post_init__()
        number("hidden", self.hidden, whole=True, positive=True)
        number("rrn_lr", self.rrn_lr, positive=True)
        number("rrn_weight_decay", self.rrn_weight_decay)

    def check(self, method: Method) -> None:
        super().check(method)
        for name in self._learned():
            if name not in method.names:
                raise unknown(f"term of {type(method).__name__}", name, method.names)

    def _learned(self) -> tuple[str, ...]:
        return (self.learned,) if isinstance(self.learned, str) else tuple(self.learned)

    def begin(self, method: Method, net: MainNet, seed: int) -> None:
        super().begin(method, net, seed)
        known = self._learned()
        self.learns: Tensor | None = (
            torch.tensor([name in known for name in method.names], device=net.theta.device) if known else None
        )
        with seeded(seed):
            built = RelationReplayNet(len(method.names), self.hidden)
            self.rrn: MainNet = MainNet(built, net.theta.device, net.theta.dtype)
        self.phi: Tensor = self.rrn.theta  # one vector, as the Main Net's parameters are
        self.adam: Adam = Adam(self.phi.detach(), self.rrn_lr, self.rrn_weight_decay)

    def begin_stream(self, filled: bool) -> None:
        """Without tasks the warm-up lasts until the memory is full."""
        self.phase = "relation" if filled else "warm-up"

    def weigh(self, terms: Terms) -> Tensor:
        """w(φ) [B, k], with its graph back to φ. The inputs are raw and detached."""
        self.rrn.at(self.phi)
        weights = self.rrn.module(terms.losses.detach(), norms(terms))
        return weights if self.learns is None else torch.where(self.learns, weights, self.preset)

    def used(self, weights: Tensor) -> Tensor:
        """What the Main Net is given of w(φ), [B, k]."""
        return weights

    def improve(self, weights: Tensor, by_weight: Tensor) -> None:
        """φ ← Adam, given ∂outer/∂w (Eq. 7)."""
        (derivative,) = ranks.all_reduce(*torch.autograd.grad(weights, self.phi, by_weight))
        with torch.no_grad():
            self.phi.sub_(self.adam.direction(self.phi, derivative), alpha=self.adam.lr)

    def report(self, names: Sequence[str], tape: dict[str, Tensor]) -> dict[str, Any]:
        return {"phase": self.phase, **diagnostics.epoch(names, tape)}

    def review(self, learner: Learner, old: Sequence[Task], new: Task) -> dict[str, Any]:
        asleep = learner.tasks < self.relation_from_task  # tasks learned, this one included
        weigh = None if asleep else lambda terms: self.used(self.weigh(terms))
        return diagnostics.task(weigh, learner, old, new)

    def state(self) -> dict[str, Tensor]:
        return super().state() | joined({"rrn": self.rrn.state()})

    def restore(self, state: dict[str, Tensor]) -> None:
        self.rrn.unbind().load_state_dict(part(state, "rrn"))
        super().restore({name: tensor for name, tensor in state.items() if not name.startswith("rrn.")})


@checked
@dataclass(eq=False)
class Relation(Relational):
    """Relational Experience Replay: a net, the RRN, learns by bi-level optimisation what helps the memory (Alg. 1).

    `interval` is the number of the main network's steps per update of the Relation Replay Net φ (default: a tenth of
    the epochs, at least 1), counted within the epoch. `order=printed`: the step is taken with the weights w(φ), then φ
    learns from the outer loss at the new θ. After the warm-up the real step is also the virtual one, and nothing is
    computed twice. `order=fresh`, as in the released code: φ learns first, on the current new batch and memory draws of
    its own, then the step is taken with the new φ.

    The outer loss is on all rows of the memory. With `outer_rows=turns` it is on a fifth of them, held out of
    rehearsal, another fifth in each epoch. `outer_views` are the `usual` views of these rows, `strong` ones, or samples
    `mixed` in pairs. `outer_new` adds the new samples' own loss, in proportion: 1/(t + 1) of the outer loss after t
    tasks.

    Departs: a network with dropout draws another mask for the forward-mode pass than for the step itself.
    """

    derived = ("tried",)
    interval: int | None = None
    order: str = "printed"
    hypergradient: str = "forward"
    outer_rows: str = "all"
    outer_views: str = "usual"
    outer_new: bool = False
    later: ClassVar[dict[str, Any]] = {"learned": (), "outer_rows": "all", "outer_views": "usual", "outer_new": False}

    KNOWN: ClassVar = {"order": ORDERS, "hypergradient": HYPERGRADIENTS, "outer_views": outer.VIEWS}
    # Which rows of the memory a step rehearses and which the outer loss is on, by `outer_rows`; None: the method's own.
    POOLS: ClassVar[dict[str, tuple[str | None, str | None]]] = {"all": (None, None), "turns": ("others", "held")}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.interval is not None:
            number("interval", self.interval, whole=True, positive=True)
        for name, known in (self.KNOWN | {"outer_rows": self.POOLS}).items():
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)

    def begin(self, method: Method, net: MainNet, seed: int) -> None:
        super().begin(method, net, seed)
        self.tried: bool = False
        if ranks.distributed() and self.hypergradient != "forward":
            raise BadInput(
                f"hypergradient {self.hypergradient} cannot run over several ranks; set hypergradient=forward"
            )

    def schedule(self, training: Training) -> dict[str, Any]:
        return super().schedule(training) | {"interval": max(1, training.epochs // 10)}

    def begin_epoch(self, task: int, epoch: int, epochs: int) -> None:
        super().begin_epoch(task, epoch, epochs)
        self.every: int = max(1, epochs // 10) if self.interval is None else self.interval
        self.share: float = 1 / (task + 1) if self.outer_new else 0.0  # the new samples' share of the outer loss

    def begin_stream(self, filled: bool) -> None:
        """The RRN learns from each mini-batch."""
        super().begin_stream(filled)
        self.every, self.share = 1, 0.0

    def due(self, number: int) -> bool:
        """Is it the RRN's turn to learn, at this step of the epoch?"""
        return self.phase != "preset" and number % self.every == 0

    def variant(self, number: int) -> object:
        return self.due(number)

    def draws(self, own: tuple[Draw, ...]) -> tuple[Draw, ...]:
        return outer.drawn(own, 1 if self.order == "printed" else 2, self.POOLS[self.outer_rows], self.outer_views)

    def loss(self, method: Method, step: Step, terms: Terms) -> Tensor:
        """What the real step descends: the terms under w(φ), or under the preset weights while warming up."""
        due, in_use = self.due(step.number), self.phase == "relation"
        if due and self.order == "fresh":
            self._learn_first(method, step)
        self.in_hand: tuple[Tensor, Tensor | None] | None = None  # what `after` learns from
        if not in_use and not (due and self.order == "printed"):
            return weighed(terms.losses, self.preset)
        weights = self.weigh(terms)
        used = self.used(weights.detach()) if in_use else self.preset
        if due and self.order == "printed":
            as_learned = in_use and type(self).used is Relational.used  # then the real step is the virtual one
            self.in_hand = weights, None if as_learned else self._aside(method, step, terms, weights)
        if in_use:
            step.tape.keep(weights=used, weight_labels=diagnostics.labels(terms))
        return weighed(terms.losses, used)

    def after(self, method: Method, step: Step, terms: Terms, direction: Tensor) -> None:
        if not self.tried:
            self._try(method, step)
        if self.in_hand:
            (weights, aside), self.in_hand = self.in_hand, None
            stepped = torch.sub(step.net.theta.detach(), direction if aside is None else aside, alpha=step.sgd.lr)
            self._learn(method, step, terms, weights, step.replay, step.extra, stepped)

    def outer(self, method: Method, net: MainNet, replay: tuple[Batch, ...]) -> Tensor:
        """What the weights are to be good for."""
        if self.outer_views != "mixed":
            return method.outer(net, replay)
        seen = seen_by(net, *map(outer.mixed, replay))
        return outer.outer_loss([*method.rehearse(*seen), *method.rehearse(*map(outer.neighbour, seen))]) / 2

    def _try(self, method: Method, step: Step) -> None:
        """A network without the hypergradient is refused in the first step, and not when the first task is learned."""
        net, x = step.net, step.new.x
        losses = lambda theta: method.terms(net.at(theta, virtual=True), step.new, step.replay).losses
        outer = lambda theta: self.outer(method, net.at(theta, virtual=True), step.replay)
        weights = self.preset.expand(len(x), -1)
        before = copied(method.state())
        with torch.random.fork_rng([x.device] if x.is_cuda else []):  # dropout's next mask is what it would have been
            check(self.hypergradient, losses, net.theta, weights, outer)
        kind = lambda of: (of.shape, of.dtype, of.device)
        same = lambda one, of: kind(one) == kind(of) and torch.isclose(one, of, 0, 0, equal_nan=True).all()
        now = method.state()
        if changed := sorted(name for name in now if name not in before or not same(before[name], now[name])):
            warnings.warn(
                f"{type(method).__name__} changes {', '.join(changed)} where it says what its terms are, and "
                f"{type(self).__name__} asks that several times a step; change it in after_step or remember",
                Notice,
                stacklevel=1,
            )
        self.tried = True

    def _learn_first(self, method: Method, step: Step) -> None:
        """`fresh`: a virtual step from the current new batch and memory draws of its own."""
        count = len(method.own_draws())
        inner, held = step.extra[:count], step.extra[count:]
        theta = step.net.theta
        terms = method.terms(step.net.at(theta, virtual=True), step.new, inner)
        weights = self.weigh(terms)
        stepped = torch.sub(theta.detach(), self._aside(method, step, terms, weights), alpha=step.sgd.lr)
        self._learn(method, step, terms, weights, inner, held, stepped)

    def _aside(self, method: Method, step: Step, terms: Terms, weights: Tensor) -> Tensor:
        """The direction a step with w(φ) would take, while the real step takes another."""
        gradient = step.net.gradient(weighed(terms.losses, weights.detach()), retain_graph=True)
        return step.sgd.direction(step.net.theta, method.direction(gradient, step), virtual=True)

    def _learn(self, method: Method, step: Step, terms: Terms, weights: Tensor, inner, held, stepped: Tensor) -> None:
        """One RRN update from the step θ → `stepped` taken with `weights`."""
        net = step.net
        losses = lambda theta: method.terms(net.at(theta, virtual=True), step.new, inner).losses

        def buffer(theta: Tensor) -> Tensor:
            loss = self.outer(method, net.at(theta, virtual=True), held)
            if not self.share:
                return loss
            (new,) = seen_by(net, step.new)
            return (1 - self.share) * loss + self.share * cross_entropy(new).loss.mean()

        G = HYPERGRADIENTS[self.hypergradient](losses, net.theta, weights, buffer, stepped)  # [B, k]
        self.improve(weights, G * (-step.sgd.lr / len(G)))
        step.tape.keep(proposed=weights, G=G, labels=diagnostics.labels(terms), norms=norms(terms))
