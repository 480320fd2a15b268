"""The sentences that the terminal and the page both say about an explanation."""

from __future__ import annotations

from collections.abc import Iterable

from everlearn.errors import plural
from everlearn.report.explain import Explanation, Similarity
from everlearn.report.rounding import decimals, signed
from everlearn.report.surface import Surface

MATRIX = "Class-IL accuracy on the test samples of each task (column) after learning each task (row), in %."
BY_TASK = "Accuracy of each class among all classes after each task, in %; grey before it was learned."
LOST = (
    "Test samples of an old class that are taken for another one, in % of its samples: "
    "when the class was learned, and at the end."
)
MEMORY = "Samples of each class in the memory after each task."
MEMORY_BY_TASK = "Samples in the memory after each task, by the task their classes were learned in."
WEIGHTS = (
    "How much a new and a memory sample count in the training loss, epoch by epoch: 1 counts in full, 0 not at all."
)
RESPONSE = (
    "What the Relation Replay Net, as it is at the end, answers to a pair of losses; "
    "each map's shades run over its own range."
)
SIMILARITY = (
    "Mean inner product of an old class's (row) and a new class's (column) gradients: "
    "below 0, learning the new class disturbs the old one."
)
BY_CLASS = (
    "Mean weights of each class's samples in the last epoch of each task; "
    "a class has no weight as new once its task is over."
)
VALIDATION = "Average weights over samples not trained on, pairs of a new and an old task's, at the end of each task."
RECORDED = " Old samples are the memory's here: it alone has recorded logits."


def series(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def heading(e: Explanation) -> str:
    return f"{e.method} on {e.stream}"


def subheading(e: Explanation) -> str:
    memory, epochs, seed = e.settings.values()
    kept = f"memory {memory}" if memory else "no memory"
    length = f"{plural(epochs, 'epoch')} per task"
    return f"{kept}, {length}, seed {seed}, Class-IL ACC {e.accuracy:.1f} %"


def forgotten(e: Explanation) -> str:
    """What was lost most, in a sentence."""
    of = e.remembered
    if len(e.matrix) == 1:
        return "There is only one task, and so nothing to forget."
    worst = max(of.accuracy, key=of.loss, default=None)
    if worst is None or of.loss(worst) <= 0:
        return "No class has a lower accuracy at the end than when it was learned."
    to = next((lost for lost in of.lost if lost.old == worst), None)
    most = f", most of them to {e.name(to.new)} (+{to.now - to.then:.1f})" if to else ""
    return f"Most was lost by {e.name(worst)}: {of.loss(worst):.1f} points{most}."


def ending(e: Explanation) -> str:
    """The weights in one sentence."""
    last = next((epoch for epoch in reversed(e.epochs) if epoch.weights or epoch.proposed), None)
    if last is None:
        return "Preset: " + series(f"{term} {weight:g}" for term, weight in zip(e.terms, e.preset)) + "."
    of = series(f"{value.mean:.4f} ({term})" for term, value in (last.weights or last.proposed).items())
    return f"At the end of task {last.task + 1} the mean weights {'are' if last.weights else 'proposed are'} {of}."


def holding(s: Surface) -> str:
    norms = series(f"{norm:.3g} ({term})" for term, norm in s.norms.items())
    losses = "".join(f", the {term} loss at {loss:.3g}" for term, loss in s.held.items())
    return f"Logit norms held at {norms}{losses}: their last means."


def disturbance(e: Explanation, s: Similarity) -> str:
    """The worst of a task in one sentence."""
    worst = s.harms()
    if not worst:
        return "No old class is disturbed." if set(s.classes) - set(s.new) else "No old class is in the memory."
    g, old, new = worst[0]
    return f"{e.name(new)} disturbs {e.name(old)} most ({signed(g, decimals(s.scale))})."


def validation(e: Explanation) -> str:
    return VALIDATION + (RECORDED if any(task.validation and task.old == "memory" for task in e.tasks) else "")
