"""The contract: a method is its differences from fine-tuning. The engine never asks which method it runs."""

from __future__ import annotations

from torch import Tensor

from everlearn.errors import BadInput
from everlearn.core.plan import reservoir
from everlearn.core.state import Stateful
from everlearn.data.streams import Task
from everlearn.core.terms import Batch, Fixed, Term, Terms, Weighting, cross_entropy, seen_by


class Method(Stateful):
    """Fine-tuning: L = CE(new). Everything a method may do differently is here, with what happens if it does not.

    `names` name the loss terms, new samples' first; `draws` is the number of memory batches they are computed on, and
    `references` that of further ones, for `direction` and `remember`. `remembers`: it has a memory, written in training by
    `slot_rule`, with logits if it `records`. `merges`: all tasks are learned as one. `captures`: its step never waits for
    a value. `weighting` says how much each term of each row counts.
    """

    names: tuple[str, ...] = ("new",)
    draws = references = 0
    remembers = records = merges = False
    slot_rule = staticmethod(reservoir)
    captures = True

    def __init__(self, weighting: Weighting | None = None):
        self.weighting = weighting or Fixed()

    # Inside a step ------------------------------------------------------------------------------------------------
    def learn(self, new: Batch) -> list[Term]:
        """The terms on the new samples."""
        return [cross_entropy(new)]

    def rehearse(self, *replay: Batch) -> list[Term]:
        """The terms on the memory, one batch a draw. Their sum is also the outer loss of a relational weighting."""
        return []

    def direction(self, gradient: Tensor, step) -> Tensor:
        """Which way to go, given the gradient of the weighed terms."""
        return gradient

    def remember(self, step, terms: Terms) -> None:
        """What to keep of this step: unless told otherwise, the new samples, in the slots drawn for them."""
        if step.slots is not None:
            step.memory.write(step.slots, step.x, step.y, terms.new.z.detach())

    # Between tasks ------------------------------------------------------------------------------------------------
    def training_set(self, learner, task: Task) -> tuple[Tensor, Tensor]:
        """What to train on: images and labels."""
        return task.train

    def begin_task(self, learner, task: Task) -> None: ...

    def end_task(self, learner, task: Task) -> None: ...

    def predict(self, learner, x: Tensor) -> Tensor:
        """A score a class for images as stored, [N, C]."""
        return learner.logits(x)

    # Put together -------------------------------------------------------------------------------------------------
    def terms(self, net, new: Batch, replay: tuple[Batch, ...]) -> Terms:
        """All terms of a step at one θ; `net` is the Main Net bound to it."""
        new, *replay = seen_by(net, new, *replay)
        terms = [*self.learn(new), *self.rehearse(*replay)]
        own, names = type(self).__name__, ", ".join(self.names)
        if not all(isinstance(term, Term) and term.loss.shape == new.y.shape for term in terms):
            raise BadInput(f"{own}: learn and rehearse must each give a list of Term(loss, batch), a loss a row")
        if len(terms) != len(self.names):
            raise BadInput(f"{own} has {len(terms)} loss terms and names {len(self.names)} of them ({names})")
        return Terms(terms)

    def outer(self, net, replay: tuple[Batch, ...]) -> Tensor:
        """L^bf: the memory's terms, unweighted, on draws of their own (Eq. 4, and Eq. 13 for DER++)."""
        return sum(term.loss.mean() for term in self.rehearse(*seen_by(net, *replay)))
