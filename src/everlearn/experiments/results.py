"""The result of a run and its records, read from its folder or from a file, or a sentence on why there is none."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

from everlearn.errors import MALFORMED, BadInput, parsed
from everlearn.experiments import seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.seals import Damaged, Edited
from everlearn.metrics import METRICS

RESULT, LINES = "result.json", "metrics.jsonl"


def read_result(path: Path, edited: bool = False) -> dict:
    """The result in a run's folder, or in a file of its own, or a sentence on why it is none."""
    return read_opened(path, edited).document


def read_opened(path: Path, edited: bool = False, several: bool = False) -> seals.Opened:
    """The result with what its seal says. With `several`, a document with the results of several seeds will do, too."""
    file = path if path.is_file() else path / RESULT
    way_out = "remove the folder or run the experiment again with --fresh"
    if file == path:
        way_out = "give a run's folder, or what `run --json` printed"
    try:
        found = seals.opened(seals.read(file), edited, file)
        if file != path and not edited:
            seals.check(path, found.files)
    except Edited as error:
        anew = "get it again from where it came" if file == path else way_out
        raise Edited(f"{error}; {anew}, or {seals.ANYWAY}") from None
    except FileNotFoundError:
        if not path.exists():
            raise BadInput(f"there is no file or folder {path}") from None
        if path.suffix == ".part":
            raise BadInput(
                f"{path} is of a run that is not complete; the command that started it continues it"
            ) from None
        if not (path / "experiment.json").exists():  # a folder of runs, say
            way_out = "name one of a run, such as runs/digits-er-m100-e5-s0-…"
        raise Damaged(f"{path} is not a run's folder, it has no result.json; {way_out}") from None
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None
    except ValueError:
        raise Damaged(f"{file} is incomplete; {way_out}") from None
    if isinstance(found.document, dict) and "rows" in found.document:
        name = found.document.get("study")
        raise BadInput(f"{file} is the record of a study, of many runs; `everlearn study {name}` runs them again")
    if not all(map(_sound, results_in(found.document) if several else [found.document])):
        raise Damaged(f"{file} is not the record of a run; {way_out}")
    return found


def results_in(document: Any) -> list[Any]:
    """The results in a document: one for each seed, or the document itself."""
    runs = document.get("runs") if isinstance(document, dict) else None
    return runs if isinstance(runs, list) and runs else [document]


def _sound(document: Any) -> bool:
    """Does the document have all the fields of a result, each of the right type?"""
    of = lambda key: found if isinstance(found := document.get(key), dict) else {}
    number = lambda value: type(value) in (int, float) and math.isfinite(value)
    row = lambda value: isinstance(value, list) and len(value) > 0 and all(map(number, value))
    matrix = lambda value: isinstance(value, list) and all(map(row, value)) and len({*map(len, value)}) == 1

    def measured(setting: str) -> bool:
        figures = of(setting)
        return (
            {*METRICS, "matrix"} <= figures.keys()
            and matrix(figures["matrix"])
            and number(figures["acc"])
            and all(figures[metric] is None or number(figures[metric]) for metric in METRICS)
        )

    return (
        isinstance(document, dict)
        and type(of("experiment").get("seed")) is int
        and measured("class_il")
        and measured("task_il")
        and number(document.get("seconds", 0))
        and isinstance(document.get("provenance", {}), dict)
        and isinstance(document.get("classes", []), list)
    )


def same(experiment: Experiment, document: dict) -> bool:
    """Does the document describe the experiment, wherever its files lay?"""
    try:
        return Experiment.parse(document).hash == experiment.hash
    except MALFORMED:
        return False


def read_lines(folder: Path) -> list[dict]:
    """The records of a run folder, in the order they came."""
    return [parsed(line) for line in (folder / LINES).read_text().splitlines()]


def validation(folder: Path) -> dict[str, float] | None:
    """The mean weights a relation gave validation samples at the end of a run's last task, if they are on record."""
    with contextlib.suppress(OSError, *MALFORMED):
        reviews = [line.get("validation") for line in read_lines(folder) if line["event"] == "review"]
        return reviews[-1]["weights"] if reviews and reviews[-1] else None
