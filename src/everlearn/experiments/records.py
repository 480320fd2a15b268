"""Results as documents: of one run, of a study, and of a run beside its repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from everlearn import metrics
from everlearn.errors import BadInput
from everlearn.experiments import provenance
from everlearn.experiments.experiment import Experiment, NoDocument
from everlearn.experiments.published import published
from everlearn.experiments.results import read_opened, results_in, validation
from everlearn.experiments.store import Store
from everlearn.experiments.studies import Study
from everlearn.metrics import METRICS, Accuracies

Outcomes = Mapping[Experiment, dict | Exception]


def read(path: Path, data: Path | None = None, edited: bool = False) -> list[tuple[Experiment, dict]]:
    """The experiment of a run's record, as it can be run again, and the record; of several seeds' each."""
    found = results_in(read_opened(path, edited, several=True).document)
    try:
        return [(Experiment.read(document["experiment"], data), document) for document in found]
    except NoDocument:
        raise BadInput(f"{path} is not the record of a run, or is incomplete") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def same(then: dict, now: dict) -> bool:
    """Did a repetition come out the same, to the last digit?"""
    return len(set(metrics.agreeing(then, now))) == 1 and metrics.alike(then, now)


def several(documents: Sequence[dict]) -> dict:
    """One document for several runs that differ in their seeds alone."""
    return {"runs": documents, "summary": metrics.across(documents)}


def complete(study: Study, of: Outcomes) -> dict[str, dict[Experiment, dict]]:
    """The results of each row that has any."""
    rows = {label: {e: found for e in row if isinstance(found := of[e], dict)} for label, row in study.rows.items()}
    return {label: runs for label, runs in rows.items() if runs}


def failures(outcomes: Outcomes) -> dict[str, str]:
    """What went wrong, by run."""
    return {e.name: str(outcome) for e, outcome in outcomes.items() if isinstance(outcome, Exception)}


def gains(documents: Mapping[str, Sequence[dict]], bases: Mapping[str, str]) -> dict[str, tuple[str, dict | None]]:
    """What each row gains on the one it is compared with, seed by seed."""
    seed = lambda run: run["experiment"]["seed"]
    of = lambda label: metrics.gain(documents[label], documents.get(bases[label], []), seed)
    return {label: (bases[label], of(label)) for label in documents if label in bases}


def study(study: Study, of: Outcomes, store: Store) -> dict:
    """A study as one small document: its settings, every run's figures, the published ones."""
    figures = lambda e, d: {
        "seed": d["experiment"]["seed"],
        "seconds": d["seconds"],
        **{setting: {metric: d[setting][metric] for metric in METRICS} for setting in Accuracies._fields},
        **({"validation": found} if (found := validation(store.path(e))) else {}),
    }
    found = complete(study, of)
    rows = {
        label: {
            "experiment": {**next(iter(of_row)).document(), "seed": None},
            "runs": [figures(e, d) for e, d in of_row.items()],
            "summary": metrics.across(list(of_row.values())),
            **({"published": row} if (row := published(study.name, label)) else {}),
        }
        for label, of_row in found.items()
    }
    each = [document["provenance"] for row in found.values() for document in row.values()]
    failed = {"failed": wrong} if (wrong := failures(of)) else {}
    return {"study": study.name, "rows": rows, "provenance": provenance.merged(each) if each else None, **failed}
