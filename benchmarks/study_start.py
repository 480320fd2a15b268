"""How long does a study over 10,000 finished runs take to start, and to print its table?

    python benchmarks/study_start.py [--runs 10000] [--json FILE]

The folders are those of runs of ER and of its relational version at a hundred learning rates: copies of two small runs
with other settings in them. One run of the study is not there: starting is all that happens before that one begins.
Seconds are of the processor, of this process and those it starts.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from collecting import copies
from records import keep, options

from everlearn.experiments.store import Store
from everlearn.experiments.studies import study
from everlearn.launchers import perform
from everlearn.report.progress import Display, notes

STUDY = """seeds = {seeds}
[[grid]]
method = ["er", "rer"]
epochs = 10
lr = [{rates}]
"""


def timed(what) -> tuple[float, object]:
    spent = lambda: sum(os.times()[:4])
    before, found = spent(), what()
    return round(spent() - before, 2), found


class Begun(Exception):
    """The first run that is not there."""


def start(file: Path, root: Path) -> int:
    """A study as the command line performs it, up to its first run; how many runs were there."""
    experiments = [e for row in study(str(file), given={"device": "cpu"}).rows.values() for e in row]
    store = Store(root)
    store.prepare()
    notes(experiments)
    Display(experiments, quiet=True)

    def begun(todo, job, report):
        raise Begun(len(experiments) - len(todo))

    sys.modules["begun"] = type(sys)("begun")
    sys.modules["begun"].launch = begun
    try:
        perform(experiments, store, on="begun:launch", device="cpu")
    except Begun as there:
        return there.args[0]
    return len(experiments)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    given = parser.parse_args()
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder, "runs"), Path(folder, "many.toml")
        root.mkdir()
        rates = sorted({0.01 * (1 + number // 20) for number in range(given.runs)})
        file.write_text(STUDY.format(seeds=10, rates=", ".join(map(repr, rates))))
        copies(root, given.runs)
        missing = next(iter(study(str(file), given={"device": "cpu"}).rows.values()))[0]
        kept = Store(root).path(missing).rename(Path(folder, "kept"))
        seconds["until its first run begins"], there = timed(lambda: start(file, root))
        assert there == given.runs - 1
        kept.rename(Store(root).path(missing))
        words = [
            sys.executable,
            "-m",
            "everlearn",
            "study",
            str(file),
            "--out",
            str(root),
            "--device",
            "cpu",
            "--quiet",
        ]
        run = lambda *more: subprocess.run([*words, *more], capture_output=True, check=True)
        seconds["--dry-run, a process"], _ = timed(lambda: run("--dry-run"))
        seconds["the table of all, a process"], _ = timed(run)
        seconds["the table of all again"], _ = timed(run)
        record = {"runs": given.runs, "seconds": seconds}
    print(json.dumps(record, indent=1))
    keep(record, given.json)


if __name__ == "__main__":
    main()
