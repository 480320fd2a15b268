"""Tuning: the fixed weights of a method's loss terms, searched with Optuna on training images held out for it.

The trials are kept in an SQLite file, and each depends on the seed and the finished ones alone: a search that was
stopped, however it was, goes on to the same trials as one that was not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from everlearn import registry
from everlearn.core import ranks
from everlearn.data import Stream, streams
from everlearn.errors import BadInput, EverlearnError
from everlearn.experiments.experiment import Experiment, load
from everlearn.experiments.locks import alone
from everlearn.experiments.run import Run, choose, finish
from everlearn.experiments.store import Store
from everlearn.spec import Spec, look_up

FORMAT = 1  # part of the file's name: raised when the same settings come to mean other trials
RANGE = (0.05, 5.0)  # of each weight but the new samples', which stays as it is
STARTUP = 5  # so many trials are random; later ones are guided by those before them, and may be pruned
HOLDOUT = 0.1


def rivals(given: Sequence[Mapping[str, Any]]) -> dict[str, list[Experiment]]:
    """By method, the experiments asked for, one per seed, and those of its relational version where there is one."""
    own = [Experiment.of(**settings) for settings in given]
    first = own[0]
    if first.weighting.name != "fixed":
        raise BadInput(
            f"{first.label} weighs its loss terms by {first.weighting.name}; "
            f"tune {first.method.name}, its weights are fixed"
        )
    method = first.build()
    if len(method.names) == 1:
        several = [name for name in registry.known("method") if len(registry.find("method", name).names) > 1]
        raise BadInput(
            f"{first.label} has one loss term, so no weights to tune; methods with several: {', '.join(several)}"
        )
    if given[0].get("weights") is not None:
        raise BadInput("weights are what is searched for; leave out --set weights")
    if not method.own_draws():
        return {first.label: own}
    relational = [Experiment.of(**{**settings, "weighting": "relation"}) for settings in given]
    return {first.label: own, relational[0].label: relational}


def weighed(experiment: Experiment, weights: Sequence[float]) -> Experiment:
    """The experiment with other weights."""
    return experiment.with_options("weighting", weights=tuple(weights))


def held_out(stream: Stream, fraction: float = HOLDOUT, seed: int = 0) -> Stream:
    """The stream with a part of its training images, that fraction of each class, in the place of the test images."""
    random, tasks = np.random.default_rng(seed), []
    for task in stream:
        x, y = task.train
        held = torch.zeros(len(y), dtype=torch.bool)
        for label in task.classes:
            rows = np.flatnonzero(y == label)
            count = max(1, round(fraction * len(rows)))
            if count >= len(rows):
                raise BadInput(
                    f"holding out {count} of the {len(rows)} training images of class '{stream.names[label]}' leaves "
                    "none; take a smaller --holdout, or keep other classes"
                )
            held[random.permutation(rows)[:count]] = True
        tasks.append(replace(task, train=(x[~held], y[~held]), test=(x[held], y[held])))
    return replace(stream, tasks=tuple(tasks))


def validation(of: str = "digits", fraction: float = HOLDOUT, data: Path | None = None) -> Stream:
    """A stream by its name, to be chosen on: a part of its training images in the place of the test images."""
    return held_out(streams.load(of, data=data), fraction)


def chosen_on(experiment: Experiment) -> Experiment:
    """The same experiment on training images held out of its stream, one of those built in."""
    stream = look_up("stream", validation)
    options = (("fraction", HOLDOUT), ("of", experiment.stream.name))
    return replace(experiment, stream=Spec(stream.name, options))


def file_of(experiments: Sequence[Experiment], holdout: float = HOLDOUT) -> str:
    """The name of the trials' file: what a person looks for, then a hash of all that makes the trials what they are."""
    text = json.dumps([FORMAT, RANGE, STARTUP, holdout, [experiment.hash for experiment in experiments]])
    return f"tune-{experiments[0].name.rpartition('-')[0]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.sqlite"


def search(
    experiments: Sequence[Experiment],
    store: Store,
    trials: int,
    *,
    holdout: float = HOLDOUT,
    device: str = "auto",
    data: Path | None = None,
    fresh: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> dict:
    """The best weights of `trials` trials, and every trial's figures. Trials that are there already are not run again.

    A trial's value is the Class-IL ACC on the images held out, the mean of the experiments, which differ in their
    seeds alone. The default weights are the first trial, if they lie in the range searched; the new samples' weight is
    theirs throughout. `seconds` are those of finished trials. `tell` gets a line
    per trial.
    """
    if ranks.distributed():
        raise BadInput("tuning runs in one process; start it without torchrun")
    optuna = _optuna()
    if not 0 < holdout < 1:
        raise BadInput(f"holdout {holdout:g} must lie between 0 and 1; 0.1 holds a tenth of the training images out")
    first, device = experiments[0], choose(device)
    stream, names = held_out(load(first.stream, data), holdout, first.seed), first.build().names[1:]
    own, *others = map(float, first.weighting["weights"])
    store.prepare()
    path = store.root / file_of(experiments, holdout)

    def value(trial) -> float:
        for name in names:
            trial.suggest_float(name, *RANGE, log=True)
        weights = _weights(trial, names, own)
        return _validate([weighed(experiment, weights) for experiment in experiments], stream, device, trial)

    with alone(path.with_name(f".{path.name}.lock"), f"is at work on the trials in {path}"), _in_words(path):
        study = _open(path, fresh)
        figures = lambda: [_figures(trial, names, own) for trial in _finished(study)]
        if there := len(figures()):
            tell(f"trials there already: {there}, in {path}")
        while (number := len(figures())) < trials:
            if number == 0 and not study.get_trials(states=(optuna.trial.TrialState.WAITING,)):
                if all(RANGE[0] <= weight <= RANGE[1] for weight in others):
                    study.enqueue_trial(dict(zip(names, others)))
                else:
                    tell(f"the default weights lie outside {RANGE[0]:g} to {RANGE[1]:g} and are no trial")
            seed = np.random.SeedSequence([first.seed, number]).generate_state(1)
            study.sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP, seed=int(seed[0]))
            study.optimize(value, n_trials=1)
            last = figures()[-1]
            end = f"pruned after {last['tasks']} tasks" if last["acc"] is None else f"{last['acc']:.2f} %"
            weights = ", ".join(f"{weight:g}" for weight in last["weights"])
            tell(f"trial {number + 1} of {trials}: weights {weights}: {end}, {last['seconds']:.1f} s")
        found = figures()[:trials]
    complete = [trial for trial in found if trial["acc"] is not None]
    if not complete:
        raise EverlearnError(
            f"none of {trials} trials came to its end, for the loss did not stay a finite number; "
            f"a smaller learning rate than {first.training.lr} may help (--set lr={first.training.lr / 10:g})"
        )
    return {
        "file": str(path),
        "holdout": holdout,
        "best": max(complete, key=lambda trial: trial["acc"]),  # the earliest of equals
        "pruned": len(found) - len(complete),
        "seconds": round(sum(trial["seconds"] for trial in found), 3),
        "trials": found,
    }


def _weights(trial, names: Sequence[str], own: float) -> tuple[float, ...]:
    """A trial's weights, rounded to three digits so that those shown are those used; first the new samples', `own`."""
    return (own, *(float(f"{trial.params[name]:.3g}") for name in names))


def _figures(trial, names: Sequence[str], own: float) -> dict:
    """A finished trial; one that was pruned has no ACC."""
    return {
        "weights": _weights(trial, names, own),
        "acc": trial.value if trial.state.name == "COMPLETE" else None,
        "tasks": len(trial.intermediate_values),  # learned, over all seeds
        "seconds": round(trial.duration.total_seconds(), 3),
    }


def _finished(study) -> list:
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _validate(experiments: Sequence[Experiment], stream: Stream, device: str, trial) -> float:
    """The trial's value. After every task of every seed the mean over the tasks seen so far is reported, finished seeds
    having a share each, and the trial goes on only if it is not hopeless."""
    from optuna import TrialPruned

    accs: list[float] = []  # of the finished seeds
    for experiment in experiments:

        def report(record: dict) -> None:
            if record["event"] == "task":
                seen = record["task"] + 1
                value, step = fmean([*accs, fmean(record["class_il"][:seen])]), len(accs) * len(stream) + seen
                trial.report(value, step)
                images = sum(len(task.test[1]) for task in stream.tasks[:seen])
                if step < len(experiments) * len(stream) and _hopeless(trial, value, step, images):
                    raise TrialPruned

        run = Run(experiment, stream, device)
        try:
            accs.append(finish(run.steps(report))["class_il"]["acc"])
        except BadInput:
            raise
        except EverlearnError:  # weights too large for the learning rate: the loss is no longer a finite number
            raise TrialPruned from None
    return fmean(accs)


def _hopeless(trial, value: float, step: int, images: int) -> bool:
    """Is it below the median of the trials so far, at this step, by more than two standard errors of an accuracy?

    Optuna's median pruner compares a trial's best report with those of trials that came to their end. Accuracies fall
    from task to task, so it would prune none; given values that rise it pruned 14 of 15 DER++ trials on digits, over
    single images.
    """
    values = [other.intermediate_values[step] for other in _finished(trial.study) if step in other.intermediate_values]
    error = (value * (100 - value) / images) ** 0.5
    return len(values) >= STARTUP and value < median(values) - 2 * error


def _optuna():
    try:
        import optuna
    except ImportError:
        raise BadInput("tuning needs Optuna, which is not installed; pip install 'everlearn[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # `tell` says what there is to say
    return optuna


def _open(path: Path, fresh: bool):
    """The study in a file, new or to go on with. What it has as running was left so by a process that is no more."""
    import optuna

    if path.exists() and not sound(path):
        raise EverlearnError(f"the trials' file {path} is damaged; remove it to begin again")
    try:
        storage = optuna.storages.RDBStorage("sqlite://", {"creator": lambda: sqlite3.connect(path)})  # any path
        named = {"study_name": "weights", "storage": storage}
        if fresh:
            with contextlib.suppress(KeyError):
                optuna.delete_study(**named)
        study = optuna.create_study(**named, direction="maximize", load_if_exists=True)
        for stale in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(stale.number, state=optuna.trial.TrialState.FAIL)
        return study
    except (LookupError, TypeError, ValueError, RuntimeError, AssertionError) as error:  # by its content
        if isinstance(error, optuna.exceptions.StorageInternalError):
            raise
        raise EverlearnError(f"the trials' file {path} is damaged ({error}); remove it to begin again") from None


def sound(path: Path) -> bool:
    """Does SQLite find its own order in it?"""
    try:
        with contextlib.closing(sqlite3.connect(path)) as file:
            return file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Inside, what goes wrong with the trials' file becomes one sentence."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        raise EverlearnError(
            f"the trials' file {path} cannot be used ({getattr(cause, 'orig', cause)}); free some space, or "
            "remove it to begin again"
        ) from None
