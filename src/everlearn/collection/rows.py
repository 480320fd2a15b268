"""Runs in rows: those that differ in their seeds alone are together, under a label that tells them from the others."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from everlearn import registry
from everlearn.collection.documents import described_by
from everlearn.collection.model import Repeat, Row, Run, differing, no_figures
from everlearn.errors import MALFORMED, BadInput, listed
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import Row as Figures
from everlearn.experiments.published import published, tables
from everlearn.experiments.studies import Study, study

# Settings that are in every label if it takes them to tell rows apart. Others are in labels that would be the same
# without: a method's own learning rate, say, is in none.
ALWAYS = ("stream", "stream.source", "memory", "network", "epochs", "classes", "tasks")
DATA = ("stream", "tasks", "classes", "shuffle")  # and the options of a stream of one's own


def rows(runs: Iterable[Run]) -> tuple[Row, ...]:
    """Runs grouped into rows, each with a label that no other row has."""
    by_key: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        by_key.setdefault(run.key, {}).setdefault(run.given, []).append(run)
    groups: list[list[Run]] = []
    for by_path in by_key.values():
        apart = [_once(of) for of in by_path.values()]
        groups += [_once([run for of in apart for run in of])] if _mergeable(apart) else apart
    named = labels(groups)
    return tuple(_row(label, sorted(runs, key=_by_seed)) for label, runs in zip(named, groups))


def _by_seed(run: Run) -> tuple[bool, int]:
    return run.seed is None, run.seed or 0


def _once(runs: Sequence[Run]) -> list[Run]:
    """Each seed once: what is there more often is a copy, or the same experiment run again."""
    kept: dict[Any, Run] = {}
    for run in sorted(runs, key=lambda run: not run.matrices):  # those with accuracy matrices first
        seed = run.name if run.seed is None else run.seed
        if (first := kept.get(seed)) is None:
            kept[seed] = run
            continue
        more = () if copy(first, run) else (Repeat(str(run.place), same(first, run)),)
        distinct = dict.fromkeys((*first.repeats, *run.repeats, *more))
        kept[seed] = replace(first, repeats=tuple(distinct), curves=first.curves or run.curves)
    return list(kept.values())


def _mergeable(apart: Sequence[Sequence[Run]]) -> bool:
    """May what several paths hold of an experiment stand in one row? If no seed of it was run in two of them."""
    first: dict[Any, Run] = {}
    return all(copy(first.setdefault(run.seed, run), run) for runs in apart for run in runs)


def copy(one: Run, other: Run) -> bool:
    """Are both records of one and the same run?"""
    stamp = lambda run: (run.provenance.get("finished"), run.provenance.get("commit"))
    if one is other or (one.study is None and other.study is None):
        return one is other or (stamp(one) == stamp(other) and same(one, other))
    return same(one, other)  # a study's document does not say when each of its runs was made


def same(one: Run, other: Run) -> bool:
    """Do two runs have the same figures? Where both have accuracy matrices, these must agree to the last digit."""
    if one.matrices.keys() == other.matrices.keys() and one.matrices:
        return one.matrices == other.matrices
    known = [(a, b) for s in one.figures for a, b in zip(one.figures[s].values(), other.figures[s].values())]
    return all(math.isclose(a, b) for a, b in known if a is not None and b is not None)


def labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """A label for each row: its study's, or its method and weighting, the settings that tell it from the others, and
    those others have otherwise that are not its default."""
    firsts = [runs[0] for runs in groups]
    everywhere = _splitting(firsts, ALWAYS)
    settings = [_telling(run.settings, everywhere) for run in firsts]
    tied: dict[str, list[int]] = {}
    for n, run in enumerate(firsts):
        tied.setdefault(_label(run.title, settings[n]), []).append(n)
    for rows in tied.values():
        of = [firsts[n] for n in rows]
        apart = list(differing({str(n): run.settings for n, run in enumerate(of)}))
        telling, known = _splitting(of, apart), usual(of[0].settings) if len(of) > 1 else {}
        for n in rows:
            own = _telling(firsts[n].settings, apart)
            settings[n] |= {k: v for k, v in own.items() if k in telling or (known and known.get(k) != v)}
    own = [next((run.label for run in runs if run.label), None) for runs in groups]
    found = [label or _label(run.title, of) for label, run, of in zip(own, firsts, settings)]
    found = _apart(found, [next((run.study for run in runs if run.study), None) for runs in groups])
    found = _apart(found, _short([run.given for run in firsts]))
    found = _apart(found, [run.key[:8] for run in firsts])
    return _apart(found, [str(number + 1) for number in range(len(firsts))])


def _splitting(runs: Sequence[Run], keys: Sequence[str]) -> list[str]:
    """The settings that are needed to tell the runs apart: each of these separates runs that those before it do not."""
    chosen: list[str] = []
    kinds = lambda keys: {repr([run.settings.get(key) for key in keys]) for run in runs}
    for key in keys:
        if len(kinds([*chosen, key])) > len(kinds(chosen)):
            chosen.append(key)
    return chosen


def usual(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a method has by default on this stream, with this memory and the like; nothing is known of others' own."""
    with contextlib.suppress(*MALFORMED):
        if all(settings[kind] in registry.BUILT_IN[kind] for kind in ("method", "stream", "network")):
            default = Experiment.of(**{key: settings[key] for key in ("method", *ALWAYS) if key in settings})
            return described_by(default.document())["settings"]
    return {}


def _telling(settings: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The settings of these names that belong in a label: those with a value, and no memory of 0."""
    return {k: settings[k] for k in keys if settings.get(k) is not None and (k, settings[k]) != ("memory", 0)}


def _label(title: str, settings: Mapping[str, Any]) -> str:
    named = (f"{'M' if key == 'memory' else key} = {shown(value)}" for key, value in settings.items())
    return ", ".join([title, *named])


def shown(value: Any) -> str:
    """The value of a setting as it is shown in a label."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _apart(labels: Sequence[str], more: Sequence[str | None]) -> list[str]:
    """Labels that are there twice with something added to tell them apart, where it does."""
    words: dict[str, set[str | None]] = {}
    for label, word in zip(labels, more):
        words.setdefault(label, set()).add(word)
    return [f"{label} ({word})" if word and len(words[label]) > 1 else label for label, word in zip(labels, more)]


def _short(paths: Sequence[str]) -> list[str]:
    """Each path's last parts, as many as are needed to tell the paths apart."""
    parts = {path: os.path.normpath(path).split(os.sep) for path in paths}
    for length in range(1, 1 + max(map(len, parts.values()), default=1)):
        short = {path: os.sep.join(of[-length:]) for path, of in parts.items()}
        if len({*short.values()}) == len(parts):
            return [short[path] for path in paths]
    return list(paths)


def planned(study: Study) -> list[Row]:
    """A study's rows before they are run, each of its first seed: they have settings and no figures."""
    nothing: Any = dict(figures=no_figures(), matrices={}, seconds=None, classes=(), provenance={}, sealed=False)
    run = lambda e: Run(e.name, Path(study.name), study.name, e.seed, **described_by(e.document()), **nothing)
    return [Row(label, (run(first),)) for label, (first, *_) in study.rows.items()]


def bases(rows: Sequence[Row], against: str) -> dict[str, Row]:
    """The row each row is set against: the one of this label; or, of those whose label starts so, else whose method and
    weighting are called so, the one most like it in its settings, with the same stream, memory and the like, or whose
    label is else the same. Of several versions of a file of one's own it is the one the file has now. A row that
    several are equally like is set against none of them, and these are not set against each other."""
    if (one := next((row for row in rows if row.label == against), None)) is not None:
        others = {row.label: one for row in rows if row is not one and _same_data(row, one)}
        if len(rows) > 1 and not others:
            raise BadInput(f"no other row is on the data of '{against}', so none can be compared with it")
        return others
    of_name = [row for row in rows if row.label.startswith(f"{against}, ")]
    title = against.rpartition(":")[2]  # of one in a file, `mine.py:Brier`, the class's
    of_name = of_name or [row for row in rows if row.runs[0].title in (against, title)]
    now = [row for row in of_name if row.current]
    of_name = [row for row in of_name if row.current or not any(_version(row, other) for other in now)]
    names, found = [row.label for row in of_name], {}
    for row in rows:
        alike = ", ".join([against, *row.label.split(", ")[1:]])
        near: dict[tuple[int, bool], list[Row]] = {}
        for other in of_name if row.label not in names else ():
            if _comparable(row, other):
                near.setdefault((_unlike(row, other), other.label != alike), []).append(other)
        if near and len(nearest := near[min(near)]) == 1:
            found[row.label] = nearest[0]
    if not found and len(names) > 1:
        what = "versions of its source, none the file's now" if _version(*of_name[:2]) else "rows"
        raise BadInput(f"'{against}' is of several {what}; choose: {listed(names)}")
    if not found:
        raise BadInput(f"no row can be compared with '{against}'; the rows: {listed([row.label for row in rows])}")
    return found


def _comparable(row: Row, other: Row) -> bool:
    """Do they have the same data, network, epochs and memory, as far as it is known of both?"""
    one, two = row.settings, other.settings
    alike = lambda k: one[k] == two[k] or (k == "memory" and 0 in (one[k], two[k]))
    return _same_data(row, other) and all(alike(key) for key in ALWAYS if key in one and key in two)


def _same_data(row: Row, other: Row) -> bool:
    """Are they on the same tasks of the same data, as far as it is known of both?"""
    one, two = row.settings, other.settings
    data = [key for key in one if key in DATA or key.startswith("stream.")]
    return all(one[key] == two[key] for key in data if key in two)


def _version(row: Row, other: Row) -> bool:
    """Do both rows use a user's own source file of the same name, with different content?"""
    one, two = row.runs[0], other.runs[0]
    named = lambda run, key: run.settings.get(key.partition(".")[0])
    both = [key for key in one.written if key in two.written and named(one, key) == named(two, key)]
    return _comparable(row, other) and any(one.settings[key] != two.settings[key] for key in both)


def _unlike(row: Row, other: Row) -> int:
    """The number of settings that both rows have and in which they differ."""
    one, two = row.settings, other.settings
    return sum(one[key] != two[key] for key in one if key in two)


def _row(label: str, runs: Sequence[Run]) -> Row:
    first = runs[0]
    if first.published:
        return Row(label, tuple(runs), first.published, first.study)
    table, figures = _printed().get(first.recipe or "", (None, None))
    return Row(label, tuple(runs), figures, table)


@functools.cache
def _printed() -> Mapping[str, tuple[str, Figures]]:
    """The published figures, by the recipe of their experiments; of two tables the first."""
    found: dict[str, tuple[str, Figures]] = {}
    for table in tables():
        for label, (experiment, *_) in study(table, 1, given={"precision": "float32"}).rows.items():
            if (figures := published(table, label)) is not None:
                found.setdefault(replace(experiment, seed=0).hash, (table, figures))
    return found
