"""From accuracies to the numbers of a table. a(t, i) is the accuracy on task i after learning task t, in percent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor

Matrix = Sequence[Sequence[float]]
METRICS = ("acc", "bwt", "forgetting", "fwt")


class Accuracies(NamedTuple):
    """Of each task, in percent: classified among all classes (Class-IL), or among its own task's only (Task-IL)."""

    class_il: list[float]
    task_il: list[float]


def guesses(logits: Tensor, classes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The likeliest class of each sample among all (Class-IL), and among `classes` (Task-IL)."""
    own = torch.tensor(classes, device=logits.device)
    return logits.argmax(dim=1), own[logits[:, own].argmax(dim=1)]


def right(guess: Tensor, labels: Tensor) -> Tensor:
    """How many guesses are right, in percent."""
    return 100 * (guess == labels).double().mean()


def confusion(labels: Tensor, guess: Tensor, classes: int) -> Tensor:
    """How many samples of each class (row) were taken for each (column), [classes, classes]; not of label −1."""
    pairs = (labels * classes + guess)[labels >= 0]
    return torch.bincount(pairs.cpu(), minlength=classes * classes).view(classes, classes)


def summary(matrix: Matrix, untrained: Sequence[float]) -> dict:
    """ACC, BWT, forgetting and forward transfer of a matrix of T rows; `untrained` is the fresh network's accuracy.

    ACC: mean of the last row. BWT: mean over i < T of a(T, i) − a(i, i). Forgetting: mean over i < T of
    max_t a(t, i) − a(T, i), over the rows t that had learned task i. Forward transfer: mean over i > 1 of
    a(i − 1, i) − untrained(i). All but ACC need as many rows as tasks, and two of them. What they are made of is given
    with them.
    """
    last, tasks = matrix[-1], len(matrix[0])
    result = {"acc": fmean(last), "bwt": None, "forgetting": None, "fwt": None}
    if len(matrix) == tasks > 1:
        old = range(tasks - 1)
        result["bwt"] = fmean([last[i] - matrix[i][i] for i in old])
        result["forgetting"] = fmean([max(row[i] for row in matrix[i:]) - last[i] for i in old])
        result["fwt"] = fmean([matrix[i][i + 1] - untrained[i + 1] for i in old])
    return {**result, "untrained": list(untrained), "matrix": [list(row) for row in matrix]}


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation (n − 1; None of one value)."""
    return {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else None}


def across(results: Sequence[dict]) -> dict:
    """Mean and standard deviation (n − 1; None of one run) of each metric over several runs' results."""
    column = lambda setting, metric: [r[setting][metric] for r in results if r[setting][metric] is not None]
    return {
        setting: {metric: spread(values) if (values := column(setting, metric)) else None for metric in METRICS}
        for setting in Accuracies._fields
    }


def gain(runs: Sequence[dict], base: Sequence[dict], seed: Callable[[dict], int]) -> dict | None:
    """The gain in Class-IL ACC over other runs on the same seeds; None if they share no seed."""
    theirs = {seed(run): run["class_il"]["acc"] for run in base}
    return paired([run["class_il"]["acc"] - theirs[seed(run)] for run in runs if seed(run) in theirs])


def paired(gains: Sequence[float]) -> dict | None:
    """Of differences on the same seeds the mean, half of its 95 % confidence interval (Student's t; None of one seed),
    and how many are above 0; None if there are none."""
    from scipy.special import stdtrit  # a part of scikit-learn's own requirements; scipy.stats takes long to import

    if not gains:
        return None
    half = float(stdtrit(len(gains) - 1, 0.975)) * stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None
    return {"mean": fmean(gains), "half_width": half, "ahead": sum(g > 0 for g in gains), "seeds": len(gains)}


def alike(one: dict, other: dict) -> bool:
    """Do the figures made of the accuracies agree?"""
    of = lambda run: [math.nan if (value := run[s][m]) is None else value for s in Accuracies._fields for m in METRICS]
    return all(math.isclose(a, b) or (a != a and b != b) for a, b in zip(of(one), of(other)))


def agreeing(one: dict, other: dict) -> tuple[int, int]:
    """How many accuracies of two runs of an experiment are the same to the last digit, and how many there are."""
    both = [
        pair
        for setting in Accuracies._fields
        for rows in zip_longest(one[setting]["matrix"], other[setting]["matrix"], fillvalue=())
        for pair in zip_longest(*rows)
    ]
    return sum(a == b for a, b in both), len(both)
