"""A copy of what somebody else wrote, beside the run that was made with it: the record has only a hash of it."""

from __future__ import annotations

import io
import zipfile

from everlearn import registry
from everlearn.experiments.experiment import Experiment, built_in
from everlearn.spec import look_up

ARCHIVE = "source.zip"
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the date of every file in it, so that the same files always give the same bytes


def archive(experiment: Experiment) -> bytes | None:
    """A folder each for its method, weighting, stream and network, with their files and what these import from beside
    them; None if all are built in."""
    files = {
        f"{kind}/{name}": content
        for kind, spec in experiment.specs().items()
        if spec is not None and spec.source is not None and not (kind == "stream" and built_in(spec.at or spec.name))
        for name, content in registry.source_files(look_up(kind, spec).thing).items()
    }
    if not files:
        return None
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as made:
        for name in sorted(files):
            made.writestr(zipfile.ZipInfo(name, LONG_AGO), files[name], zipfile.ZIP_DEFLATED)
    return written.getvalue()
