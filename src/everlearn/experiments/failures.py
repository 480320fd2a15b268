"""A note of a run that failed, beside the runs, until it is begun again: why, where, and with which settings."""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Iterable, Iterator

from everlearn.errors import MALFORMED, BadInput
from everlearn.experiments import provenance, seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Store, spelled
from everlearn.files import write_whole

SUFFIX = ".failed.json"


def note(store: Store, experiment: Experiment, error: Exception) -> None:
    """What went wrong, and its traceback. Where it cannot be written, it has been said. A wrong input is not noted: it
    is answered, and wants other settings."""
    if isinstance(error, BadInput):
        return
    document = {
        "failed": {experiment.name: str(error) or type(error).__name__},
        "experiment": experiment.document(),
        "finished": provenance.now(),
        "traceback": getattr(error, "traceback", "") or "".join(traceback.format_exception(error)),
    }
    with contextlib.suppress(OSError):
        write_whole(store.root / f"{experiment.name}{SUFFIX}", lambda draft: draft.write(spelled(document)))


@contextlib.contextmanager
def noted(store: Store, experiment: Experiment) -> Iterator[None]:
    """Around a run: earlier notes about it are removed, and an error inside leaves a new one."""
    clear(store, [experiment])
    try:
        yield
    except Exception as error:
        note(store, experiment, error)
        raise


def clear(store: Store, experiments: Iterable[Experiment]) -> None:
    """They are begun again, perhaps with another version of a file of one's own: a mistake in it has been mended."""
    notes = [*store.root.glob(f"*{SUFFIX}")]
    again = {_unversioned(experiment.document()) for experiment in experiments} if notes else set()
    for path in notes:
        with contextlib.suppress(OSError, *MALFORMED):  # the file may be anything
            if _unversioned(seals.read(path)["experiment"]) in again:
                path.unlink(missing_ok=True)


def _unversioned(document: dict) -> str:
    """The settings without the hashes of files."""
    plain = lambda of: {key: value for key, value in of.items() if key != "source"} if isinstance(of, dict) else of
    return json.dumps({key: plain(of) for key, of in document.items()}, sort_keys=True)
