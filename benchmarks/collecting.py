"""How long does it take to read many runs? 2,000 folders of them, read without an index, with it, and in full.

    python benchmarks/collecting.py [--runs 2000] [--json FILE]

The folders are those of runs of ER and of its relational version, of ten seeds each at a hundred learning rates: copies
of two small runs with other settings in them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from records import keep, options

import everlearn
from everlearn.collection import collect
from everlearn.collection.index import NAME
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.seals import sealed, sums
from everlearn.experiments.store import Store


def copies(root: Path, runs: int) -> None:
    """Folders of runs, as if made an hour ago."""
    with tempfile.TemporaryDirectory() as made:
        kinds = []
        for method in ("er", "rer"):
            document = everlearn.run(method, out=made, epochs=10, keep=False)
            experiment = Experiment.parse(document["experiment"])
            kinds.append((document, experiment, (Store(made).path(experiment) / "metrics.jsonl").read_bytes()))
        for number in range(runs):
            document, experiment, lines = kinds[number % 2]
            training = replace(experiment.training, lr=0.01 * (1 + number // 20))
            other = replace(experiment, training=training, seed=number // 2 % 10)
            made_by = document["provenance"] | {"settings": other.hash}
            result = document | {"experiment": other.document(), "provenance": made_by}
            result["class_il"] = result["class_il"] | {"acc": result["class_il"]["acc"] - number % 7}
            folder = root / other.name
            folder.mkdir()
            (folder / "experiment.json").write_text(json.dumps(other.document(), indent=1))
            (folder / "metrics.jsonl").write_bytes(lines)
            (folder / "result.json").write_text(json.dumps(sealed(result, sums(folder, ())), indent=1))
            for file in folder.iterdir():
                os.utime(file, (time.time() - 3600,) * 2)


def timed(what) -> tuple[float, object]:
    start = time.perf_counter()
    found = what()
    return round(time.perf_counter() - start, 2), found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    given = parser.parse_args()
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copies(root, given.runs)
        seconds["first reading"], first = timed(lambda: collect([root]))
        seconds["second reading"], second = timed(lambda: collect([root]))
        assert [asdict(row) for row in first.rows] == [asdict(row) for row in second.rows]
        assert sum(len(row.runs) for row in first.rows) == given.runs
        seconds["every epoch and task of all"], _ = timed(
            lambda: [run.history for row in second.rows for run in row.runs]
        )
        words = [sys.executable, "-m", "everlearn", "compare", str(root)]
        seconds["everlearn compare, a process"], _ = timed(
            lambda: subprocess.run(words, capture_output=True, check=True)
        )
        record = {"runs": given.runs, "seconds": seconds, "index_bytes": (root / NAME).stat().st_size}
    print(json.dumps(record, indent=1))
    keep(record, given.json)


if __name__ == "__main__":
    main()
