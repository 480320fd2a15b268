"""Learners in folders, a run's or a saved one's: opened again, and given a folder of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from everlearn import registry
from everlearn.core import ranks
from everlearn.errors import BadInput
from everlearn.experiments import locks
from everlearn.experiments.run import choose
from everlearn.learner import Learner, saved
from everlearn.learner.saved import LEARNER
from everlearn.spec import Changed, Spec

LOCK = ".lock"  # of a folder a learner is being saved in


def opened(
    folder: Path,
    network: str | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
    changed: bool = False,
) -> Learner:
    """The learner of a run's or a model's folder; `network` says how to build one that is not on record. A method whose
    source has `changed` since will do where only the network is asked for."""
    _found(folder)
    if network is None and options:
        raise BadInput(f"--set {next(iter(options))} is an option of a network; name that with --network")
    named = None if network is None else {"name": network, **(options or {})}
    try:
        learner = Learner.load(folder, named, device=choose(device))
    except Changed:
        if not changed:
            raise
        about = saved.read(folder / LEARNER)[1]
        now = {kind: _as_it_is(kind, Spec.parse(about[kind])) for kind in ("method", "weighting")}
        learner = Learner.load(folder, named, device=choose(device), **now)
    if learner.memory is None:
        raise BadInput(f"the learner in {folder} has met no sample yet; teach it in Python first: learner.update(data)")
    return learner


def _as_it_is(kind: str, spec: Spec) -> Any:
    """What a spec names, whatever it was when the spec was written."""
    return registry.find(kind, spec.at or spec.name)(**dict(spec.options))


def _found(folder: Path) -> None:
    if not (folder / LEARNER).is_file():
        raise BadInput(_nothing(folder))


def _nothing(folder: Path) -> str:
    """Why there is no learner in a folder, and the way out."""
    if not folder.exists():
        return f"there is no folder {folder}"
    if not folder.is_dir():
        return f"{folder} is a file; give the folder of a run, or of a learner that was saved"
    if folder.suffix == ".part":
        return f"{folder} is of a run that is not complete; the command that started it continues it"
    if (folder / "experiment.json").exists():
        return (
            f"{folder} is of a run whose network was not kept (--no-keep, or a study); "
            "run it again with the same command and --keep --fresh"
        )
    inside = sorted(found.parent for found in folder.glob(f"*/{LEARNER}"))
    if inside:
        return f"{folder} is no run's folder; name one of those in it, such as {inside[0]}"
    return (
        f"{folder} holds no learner; `everlearn run` leaves one in its run's folder, and so does learner.save(folder)"
    )


@contextlib.contextmanager
def room(out: Path | None, beside: Path, force: bool = False) -> Iterator[Path]:
    """The folder a learner is to be saved in, made now, and gone again where nothing came of it.

    Without `out` it is a new one beside the learner it comes from. A run's folder is never written to. One process at
    a time has it: a learner that is read inside is not replaced by another's before it is saved.
    """
    if ranks.distributed():
        raise BadInput("a learner is opened and saved by one process; start it without torchrun")
    _found(beside)
    target = _free(beside) if out is None else out
    there = target.exists()
    if there:
        _check(target, force)
    else:
        target.mkdir(parents=True, exist_ok=True)
    lock = target / LOCK
    try:
        with locks.alone(lock, f"saves to {target}"):
            try:
                _check(target, force)  # now that nobody else saves there
                yield target
            finally:
                with contextlib.suppress(OSError):
                    lock.unlink()
    finally:
        with contextlib.suppress(OSError):  # it is not empty: saved
            if not there:
                target.rmdir()


def _check(target: Path, force: bool) -> None:
    if not target.is_dir():
        raise BadInput(f"--out {target} is a file; give the name of a folder")
    if saved.of_a_run(target):
        raise BadInput(f"--out {target} is a run's folder, which stays as it is; give another name")
    if (target / LEARNER).exists():
        if not force:
            raise BadInput(f"there is a learner in {target} already; give another --out, or --force to replace it")
    elif any(not each.name.startswith(LOCK) for each in target.iterdir()):
        raise BadInput(f"--out {target} holds something else; give the name of a new folder")


def _free(beside: Path) -> Path:
    """NAME-taught, or the first of NAME-taught-2, -3 and so on that is not there."""
    folder = beside if beside.name not in ("", "..") else beside.resolve()
    stem = folder.name.partition("-taught")[0]
    names = (f"{stem}-taught{f'-{n}' if n > 1 else ''}" for n in range(1, 10_000))
    return next(folder.with_name(name) for name in names if not folder.with_name(name).exists())
