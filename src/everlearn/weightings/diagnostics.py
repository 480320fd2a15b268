"""What the weights were: statistics of an epoch, and a review at the end of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from everlearn.core.feeding import viewed
from everlearn.core.seeding import seeded
from everlearn.core.terms import EMPTY, Batch, Terms, seen_by
from everlearn.weightings.bilevel import gradient

if TYPE_CHECKING:
    from everlearn.data import Task
    from everlearn.learner import Learner

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SAMPLES = 512  # validation pairs to average weights over
EACH = 16  # samples per class in the table of similarities
OLD, NEW = 200, 50  # classes in it, at most: a review costs the same however many there are


def labels(terms: Terms) -> Tensor:
    """The label of each row of each term, [B, k]; EMPTY on rows of an empty memory."""
    known = lambda batch: batch.y if batch.there is None else torch.where(batch.there, batch.y, EMPTY)
    size = terms.size
    first = lambda y: y.view(size, -1)[:, 0] if len(y) > size else y.repeat_interleave(size // len(y))  # as `paired`
    return torch.stack([first(known(batch)) for batch in terms.batches], dim=1)


def epoch(names: Sequence[str], tape: dict[str, Tensor]) -> dict[str, Any]:
    """Mean, spread and quantiles of each term's weight and of G(j), over the epoch and for each class."""
    columns = {"weights": "weight_labels", "proposed": "labels", "G": "labels"}
    record = {key: _terms(names, tape[key], tape[labels]) for key, labels in columns.items() if key in tape}
    if "norms" in tape:
        record["norms"] = dict(zip(names, tape["norms"].mean(dim=(0, 1)).tolist()))
    return record


def _terms(names: Sequence[str], values: Tensor, labels: Tensor) -> dict:
    rows, classes = (tensor.reshape(-1, len(names)).cpu().numpy() for tensor in (values.double(), labels))
    return {name: _term(rows[:, j], classes[:, j]) for j, name in enumerate(names)}


def _term(values: np.ndarray, labels: np.ndarray) -> dict:
    order = values.argsort()
    values, labels = values[order], labels[order]
    by_class = labels.argsort(kind="stable")
    (whole,) = _spreads(values, np.zeros_like(labels)).values()
    return {**whole, "classes": _spreads(values[by_class], labels[by_class])}


def _spreads(values: np.ndarray, labels: np.ndarray) -> dict[str, dict]:
    """Mean, standard deviation and quantiles of the values of each label, to four digits; sorted by label and value."""
    found, first, count = np.unique(labels, return_index=True, return_counts=True)
    average = lambda of: np.add.reduceat(of, first) / count
    mean = average(values)
    std = np.sqrt(average((values - np.repeat(mean, count)) ** 2))
    below, part = np.divmod(np.multiply.outer(QUANTILES, count - 1), 1)  # where a quantile lies among the sorted values
    low = first + below.astype(int)
    high = np.minimum(low + 1, first + count - 1)
    quantiles = values[low] + part * (values[high] - values[low])
    digits = lambda rows: [float(f"{value:.4g}") for value in rows.tolist()]
    figures = zip(found.tolist(), digits(mean), digits(std), map(digits, quantiles.T))
    return {str(c): {"mean": m, "std": s, "quantiles": q} for c, m, s, q in figures}


def task(weigh: Callable[[Terms], Tensor] | None, learner: Learner, old: Sequence[Task], new: Task) -> dict[str, Any]:
    """At the end of a task: the average weights over validation samples of old and new tasks (Fig. 5b), if there is
    something that weighs, and the mean gradient similarity of every class met with each new class (Proposition 1). The
    network is in evaluation mode."""
    if not old or new.test is None or any(task.test is None for task in old):
        return {}
    try:
        with learner.net.evaluating(), seeded(learner.seed, learner.tasks, device=learner.device):
            return {
                "validation": None if weigh is None else _validation(weigh, learner, old, new),
                "similarity": _similarity(learner, new),
            }
    finally:
        learner.net.unbind()


@torch.no_grad()
def _validation(weigh: Callable[[Terms], Tensor], learner: Learner, old: Sequence, new) -> dict | None:
    """Pairs of a new and an old validation sample. A term that needs recorded logits has them only of the memory, so a
    method with such a term is given the memory's samples of old classes; None where it holds none."""
    method = learner.method
    pick = torch.Generator().manual_seed(0)
    rows = lambda n: torch.randint(n, (SAMPLES,), generator=pick).to(learner.device)
    x_new, y_new = (tensor.to(learner.device) for tensor in new.test)
    some = lambda batch: batch.rows(rows(len(batch.y)))
    if method.keeps:
        classes = torch.tensor([c for task in old for c in task.classes], device=learner.device)
        pool = _remembered(learner, torch.isin(learner.memory.y, classes))
        count, aside = len(pool.y), lambda: some(pool)
    else:
        tested = [len(task.test[1]) for task in old]
        to = lambda x, y: Batch(x.to(learner.device), y.to(learner.device))
        count, aside = sum(tested), lambda: to(*_among(old, tested, rows(sum(tested)).tolist()))
    if not count:
        return None
    replay = [aside() for _ in method.own_draws()]
    new, *replay = _viewed(learner, [some(Batch(x_new, y_new)), *replay])
    terms = method.terms(learner.net.at(learner.net.theta), new, tuple(replay))
    return {
        "weights": dict(zip(method.names, weigh(terms).mean(dim=0).tolist())),
        "old": "memory" if method.keeps else "validation",
    }


def _remembered(learner: Learner, which: Tensor) -> Batch:
    """Some rows of the memory, samples as they are stored."""
    memory = learner.memory
    return Batch(memory.x, memory.y, stored=memory.stored).rows(which)


def _among(tasks: Sequence[Task], sizes: Sequence[int], rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """These rows of all tasks' test samples one after another, which are not put together for it."""
    ends = np.cumsum(sizes)
    of = np.searchsorted(ends, rows, side="right")
    picked = [(tasks[task].test, row - int(ends[task]) + sizes[task]) for task, row in zip(of, rows)]
    return torch.stack([x[row] for (x, _), row in picked]), torch.stack([y[row] for (_, y), row in picked])


def _some(classes: list[int], most: int) -> list[int]:
    """At most so many of them, evenly."""
    return classes if len(classes) <= most else [classes[n * len(classes) // most] for n in range(most)]


def _viewed(learner: Learner, batches: Sequence[Batch]) -> Iterator[Batch]:
    """New samples and a batch per draw, in the method's views, not augmented."""
    views = [learner.method.views, *(draw.views for draw in learner.method.own_draws())]
    return viewed(batches, views, learner.inputs, None)


def _similarity(learner: Learner, new) -> dict:
    """⟨mean gradient of a class's memory loss, that of a new class's loss⟩; below 0, learning one harms the other."""
    method, theta = learner.method, learner.net.theta
    net = lambda t: learner.net.at(t, virtual=True)
    x, y = (tensor.to(learner.device) for tensor in new.test)

    def of_new(c: int) -> Tensor:
        learn = lambda t: method.learn(*seen_by(net(t), arriving))[0]
        return gradient(lambda t: learn(t).loss[arriving.y == c].mean(), theta)

    def of_memory(c: int) -> Tensor:
        rows = (held == c).nonzero()[:EACH, 0]
        batches = [_remembered(learner, rows)] * len(method.own_draws())
        _, *replay = _viewed(learner, [Batch(x[:1], y[:1]), *batches])
        return gradient(lambda t: method.outer(net(t), tuple(replay)), theta)

    held = learner.memory.held()[1]
    met = _some([c for c in held.unique().tolist() if c >= 0], OLD)
    tested = _some([c for c in new.classes if bool((y == c).any())], NEW)
    rows = torch.cat([(y == c).nonzero()[:EACH, 0] for c in tested])
    # Together, as they are learned: a loss may depend on who is there.
    arriving = next(_viewed(learner, [Batch(x[rows], y[rows])]))
    directions = torch.stack([of_new(c) for c in tested])
    return {"classes": met, "new": tested, "G": [(directions @ of_memory(c)).tolist() for c in met]}
