"""The contract: a method is its differences from fine-tuning. The engine never asks which method it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from everlearn.core import offered
from everlearn.core.offered import given, named
from everlearn.core.part import Part
from everlearn.core.plan import ONE_VIEW, Draw, SlotRule, Views, draws_of, reservoir
from everlearn.core.terms import Batch, Term, Terms, cross_entropy, seen_by
from everlearn.weightings.base import Weighting
from everlearn.weightings.fixed import Fixed
from everlearn.weightings.outer import outer_loss

if TYPE_CHECKING:
    from everlearn.core.step import Step
    from everlearn.core.theta import MainNet
    from everlearn.data import Task
    from everlearn.learner import Learner


class Method(Part):
    """Fine-tuning: L = CE(new). Everything a method may do differently is here, with what happens if it does not.

    `weighting` says how much each term of each row counts. `weights` are the usual fixed ones, all 1 if empty; `preset`
    are those a learned or scheduled weighting starts from, if they differ. Parts that it holds are told of every task.
    """

    names: tuple[str, ...] = ("new",)  # of the loss terms, new samples' first
    weights: tuple[float, ...] = ()
    preset: tuple[float, ...] | None = None
    draws: int | tuple[Draw, ...] = 0  # memory batches for `rehearse`: how many, or each with its size and views
    references: int | tuple[Draw, ...] = 0  # further ones, for `direction` and `remember`
    views: Views = ONE_VIEW  # of new samples: further ones are in `new.others`
    features: bool = False  # batches also have `features`, what the network's head reads
    remembers: bool = False  # it has a memory, written in training by `slot_rule`
    keeps: tuple[str, ...] = ()  # what the memory has beside each sample
    slot_rule: SlotRule | None = staticmethod(reservoir)
    merges: bool = False  # all tasks are learned as one
    captures: bool = True  # its step never waits for a value
    averages: float | str = 0.0  # the decay of the average of the network that is tested, if the training says none
    memory_factor: int = 1  # how many times an ordinary run's share of a GPU's memory it needs
    derived: ClassVar[tuple[str, ...]] = ("weighting",)

    def __init_subclass__(cls, **more: Any) -> None:
        """Weights are inherited with the terms they are of: with another number of terms, they are all 1 again."""
        super().__init_subclass__(**more)
        for name in ("weights", "preset"):
            if name not in vars(cls) and len(getattr(cls, name) or cls.names) != len(cls.names):
                setattr(cls, name, vars(Method)[name])

    def __init__(self, weighting: Weighting | None = None):
        self.weighting: Weighting = weighting or Fixed()

    def learn(self, new: Batch) -> list[Term]:
        """The terms on the new samples. `select` comes before."""
        return [cross_entropy(new)]

    def rehearse(self, *replay: Batch) -> list[Term]:
        """The terms on the memory, one batch per draw. Their sum is also the outer loss of a relational weighting."""
        return []

    def direction(self, gradient: Tensor, step: Step) -> Tensor:
        """The direction to step in, given the gradient of the weighed terms. Virtual steps ask too: no side effects."""
        return gradient

    def after_step(self, step: Step, gradient: Tensor, direction: Tensor) -> None:
        """Once per step, when θ has moved."""

    def kept(self, step: Step, terms: Terms) -> dict[str, Tensor]:
        """What goes into the memory beside each new sample, [B, …]. More: `super().kept(step, terms) | {"age": …}`."""
        return {"logits": terms.new.z, "features": terms.new.features}

    def remember(self, step: Step, terms: Terms) -> None:
        """What to keep of this step: by default the new samples, in the slots drawn for them."""
        if step.slots is not None:
            step.memory.write(step.slots, step.x, step.y, **offered.kept(self, step, terms))

    # Between tasks; `begin_task`, `end_task`, `grow` and `forget` are those of any part -------------------------------
    def fields(self, learner: Learner) -> dict[str, tuple[int, ...]]:
        """The shape of each, () of a number. More: `super().fields(learner) | {"age": ()}`."""
        known = {"logits": lambda: (learner.classes,), "features": lambda: (learner.width,)}
        return {name: known[name]() for name in self.keeps if name in known}

    def training_set(self, learner: Learner, task: Task) -> tuple[Tensor, Tensor]:
        """What to train on: images and labels."""
        return task.train

    def predict(self, learner: Learner, x: Tensor) -> Tensor:
        """A score per class for images as stored, [N, C]."""
        return learner.logits(x)

    def own_draws(self) -> tuple[Draw, ...]:
        return draws_of(self.draws)

    def all_draws(self) -> tuple[tuple[Draw, ...], ...]:
        """The memory batches of a step: for the terms, for the weighting, for the method's other needs."""
        own = self.own_draws()
        drawn = self.weighting.draws(own)
        return drawn[: len(own)], drawn[len(own) :], draws_of(self.references)

    def terms(self, net: MainNet, new: Batch, replay: tuple[Batch, ...]) -> Terms:
        """All terms of a step at one θ; `net` is the Main Net bound to it."""
        new, *old = seen_by(net, new, *replay)
        terms = [*given(self, "learn", new), *(of._replace(preserves=True) for of in given(self, "rehearse", *old))]
        return Terms(named(self, terms))

    def outer(self, net: MainNet, replay: tuple[Batch, ...]) -> Tensor:
        """The outer loss of a relational weighting: the memory's terms, on draws of their own."""
        return outer_loss(self.rehearse(*seen_by(net, *replay)))
