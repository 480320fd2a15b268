"""Runs in documents: of one run, of several seeds, of a study, of the demo, of runs and their repetitions.

What is read of a run is a digest: plain data that JSON keeps as they are, so that an index can hold them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from everlearn.collection.model import SETTINGS, Figures, Matrices, Repeat, Run, no_figures
from everlearn.errors import MALFORMED
from everlearn.experiments import records, seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import Figure
from everlearn.metrics import METRICS

Digest = dict[str, Any]  # fields of a Run, without where it was found
FORMAT = 4  # of digests in an index: raised when they come to mean something else
KINDS = {  # by the keys they have
    "run": {"experiment", "class_il"},
    "study": {"rows"},
    "failure": {"experiment", "failed"},
    "curves": {"task", "phase", "loss", "weights"},
    "imported": {"imported", "runs"},
    "seeds": {"runs"},
}


class Foreign(ValueError):
    """JSON that is no document of ours."""


def kind(document: Any) -> str:
    """What a document is, by its keys: run, study, failure, seeds, imported, again, demo, curves, or foreign."""
    if not isinstance(document, dict) or not document:
        return "foreign"
    for name, keys in KINDS.items():
        if keys <= document.keys():
            return name
    each = lambda *keys: all(isinstance(of, dict) and {*keys} <= of.keys() for of in document.values())
    return "again" if each("then", "now") else "demo" if each("runs") else "foreign"


def digests(opened: seals.Opened, name: str, place: str, edited: bool = False) -> list[Digest]:
    """The runs in a document that was read from `place`; ValueError and its like where it is not whole. A result within
    it may have a seal of its own."""
    document, what = opened.document, kind(opened.document)
    if not opened.sealed:
        document = _unsealed(document, what, edited)
    return [found | {"sealed": opened.sealed} for found in _digests(document, what, name, place)]


def _unsealed(document: Any, what: str, edited: bool) -> Any:
    """A document whose inner results may be sealed one by one: their seals are checked and removed."""
    each = lambda runs: [seals.opened(run, edited).document for run in runs]
    if what == "seeds":
        return document | {"runs": each(document["runs"])}
    if what == "demo":
        return {label: row | {"runs": each(row["runs"])} for label, row in document.items()}
    if what == "again":
        return {
            of: pair | dict(zip(("then", "now"), each([pair["then"], pair["now"]]))) for of, pair in document.items()
        }
    return document


def _digests(document: Any, what: str, name: str, place: str) -> list[Digest]:
    if what == "run":
        return [digest(document, name)]
    if what == "seeds":
        return [digest(run, f"{name}, {n + 1}") for n, run in enumerate(document["runs"])]
    if what == "imported":
        return [_imported(run, str(document["imported"])) for run in document["runs"]]
    if what == "demo":
        return [
            digest(run, f"{name}, {label}, {n + 1}", label=str(label), study=name)
            for label, row in document.items()
            for n, run in enumerate(row["runs"])
        ]
    if what == "again":
        return [
            digest(pair["then"], str(of), repeats=[[place, records.same(pair["then"], pair["now"])]])
            for of, pair in document.items()
        ]
    if what == "study":
        return _study(document)
    if what == "failure":
        return []
    raise Foreign("it is no record of a run or a study")


def failures(document: Any) -> dict[str, str]:
    """The runs that failed, of a study or on their own, and why."""
    wrong = document.get("failed") if kind(document) in ("study", "failure") else None
    return {str(run): str(why) for run, why in wrong.items()} if isinstance(wrong, dict) else {}


def digest(document: Mapping[str, Any], name: str, **more: Any) -> Digest:
    """The digest of one run, made of its result document."""
    described, origin = document["experiment"], document.get("provenance")
    known = described_by(described)
    return _digest(document, name, int(described["seed"]), known, origin, document.get("classes"), **more)


def _study(document: Mapping[str, Any]) -> list[Digest]:
    """The runs of a study's rows. A row without an experiment is known by its label and by its `settings`, if any."""
    study, found = str(document.get("study")), []
    for label, row in document["rows"].items():
        if "experiment" in row:
            known = described_by(row["experiment"] | {"seed": 0})
        else:
            settings = plain(dict(row.get("settings") or {}))
            known = _known_by([study, label, settings], str(settings.get("method", label)), settings)
        more = {"label": str(label), "study": study, "published": _published(row.get("published"))}
        for n, run in enumerate(row["runs"]):
            seed = run.get("seed")
            name = f"{study}, {label}, {'run' if seed is None else 'seed'} {n if seed is None else seed}"
            found.append(_digest(run, name, seed, known, document.get("provenance"), row.get("classes"), **more))
    return found


def _imported(run: Mapping[str, Any], whose: str) -> Digest:
    """Somebody else's run, of which settings and figures are taken."""
    settings = plain(dict(run["settings"]))
    known = _known_by([whose, settings], f"{settings.get('method', '')} ({whose})", settings)
    measures = {setting: run.get(setting) for setting in SETTINGS}
    return _digest(measures, str(run["name"]), run.get("seed"), known, {"imported": whose})


def _digest(
    run: Mapping[str, Any], name: str, seed: Any, known: Digest, origin: Any, classes: Any = (), **more: Any
) -> Digest:
    """A run of what was measured in it, what is `known` of its experiment, and the provenance it has from its
    `origin`."""
    figures, matrices = measured(run)
    seconds, weights = run.get("seconds"), run.get("validation") or {}
    return {
        "name": name,
        "seed": None if seed is None else int(seed),
        **known,
        "figures": figures,
        "matrices": matrices,
        "seconds": None if seconds is None else number(seconds),
        "classes": [str(c) for c in classes or ()],
        "provenance": plain(dict(origin or {})),
        "validation": {str(term): number(weight) for term, weight in weights.items()},
        **more,
    }


def _known_by(what: Any, title: str, settings: dict[str, Any]) -> Digest:
    """What is known of an experiment that is none of ours, or cannot be read as one: `what` tells it from others."""
    return {"key": _hash(what), "recipe": None, "title": title, "settings": settings}


def described_by(document: Mapping[str, Any]) -> Digest:
    """What an experiment's document says, as far as it can be understood."""
    try:
        experiment = replace(Experiment.parse(document), seed=0)
    except MALFORMED:  # of objects, say, or of somebody else's method that is not here
        settings = {str(k): plain(v) for k, v in document.items() if k != "seed" and not isinstance(v, dict)}
        method = document["method"]
        title = str(method["name"] if isinstance(method, dict) else method)
        return _known_by({key: value for key, value in document.items() if key != "seed"}, title, settings)
    same = replace(experiment, training=replace(experiment.training, precision="float32"))
    return {
        "key": experiment.hash,
        "recipe": same.hash,
        "title": experiment.label,
        "settings": _flat(experiment),
        "written": _written(experiment),
    }


def _written(experiment: Experiment) -> dict[str, str]:
    """The places of users' own source files, by the setting that holds the hash of each, such as `method.source`."""
    specs = {kind: getattr(experiment, kind) for kind in ("method", "weighting", "network")}
    return {f"{kind}.source": spec.at for kind, spec in specs.items() if spec and spec.source and spec.at}


def _flat(experiment: Experiment) -> dict[str, Any]:
    """All settings by their names, a network's always with `network.` before: a weighting may have one called so. So
    are those of a stream of one's own, with `stream.`: each makes other data of it."""
    network, stream = experiment.network, experiment.stream
    own = stream.options if stream.at else ()
    bare = replace(experiment, network=None, stream=replace(stream, options=()) if own else stream)
    named = {
        "network": network and network.name,
        **{f"network.{k}": v for k, v in (network.options if network else ())},
        **{f"stream.{k}": v for k, v in own},
        **({"stream.source": stream.source[:8]} if stream.source else {}),
    }
    flat = bare.settings() | {"network": named.pop("network")} | named
    for key in _written(experiment):  # rows may differ in nothing but the version of a source file
        flat[key] = getattr(experiment, key.partition(".")[0]).source[:8]
    return {key: plain(value) for key, value in flat.items() if key != "seed"}


def measured(document: Mapping[str, Any]) -> tuple[Figures, Matrices]:
    """Figures and matrices of a result; what is not there is None, or no matrix."""
    figures, matrices = no_figures(), {}
    for setting in SETTINGS:
        of = document.get(setting)
        if of is None:
            continue
        figures[setting] |= {metric: number(of[metric]) for metric in METRICS if of.get(metric) is not None}
        if of.get("matrix"):
            matrices[setting] = [[None if v is None else number(v) for v in row] for row in of["matrix"]]
            if len({*map(len, matrices[setting])}) != 1:
                raise ValueError("rows of different lengths")
    if all(value is None for of in figures.values() for value in of.values()):
        raise ValueError("no figure in it")
    return figures, matrices


def number(value: Any) -> float:
    """The value, if it is a finite number; a truth value or a word is refused."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return value


def plain(value: Any) -> Any:
    """The value as JSON would give it back: tuples become lists, and NaN, infinities and objects become words."""
    if isinstance(value, Mapping):
        return {str(key): plain(of) for key, of in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(of) for of in value]
    known = value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
    return value if known else str(value)


def _published(row: Any) -> dict[str, dict[str, list[float] | None]] | None:
    if not row:
        return None
    pair = lambda of: None if of is None else [number(of[0]), number(of[1])]
    return {s: {m: pair(of) for m, of in row[s].items()} for s in SETTINGS if s in row}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def made(digest: Digest, place: Path, given: str) -> Run:
    """The run of a digest, with where it was found; ValueError and its like of what is no digest."""
    more = dict(digest)
    figures = {s: of | {"matrix": more["matrices"].get(s)} for s, of in more["figures"].items()}
    if measured(figures) != (more["figures"], more["matrices"]) or {
        type(more["settings"]),
        type(more["provenance"]),
    } != {dict}:
        raise ValueError("no digest")
    words = [*more["classes"], *(more[key] for key in ("name", "key", "title")), more.get("label") or ""]
    known = type(more["seed"]) in (int, type(None)) and type(more["sealed"]) is bool
    if not known or not all(isinstance(word, str) for word in words):
        raise ValueError("no digest")
    more["classes"] = tuple(more["classes"])
    more["repeats"] = tuple(Repeat(str(where), bool(same)) for where, same in more.get("repeats", ()))
    figure = lambda pair: None if pair is None else Figure(*pair)
    if row := more.get("published"):
        more["published"] = {s: {m: figure(of) for m, of in figures.items()} for s, figures in row.items()}
    return Run(place=place, given=given, **more)
