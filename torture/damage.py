"""Damage to the files of runs and to records: is it noticed?

    python torture/damage.py [--count 1600] [--seed 0] [--out torture/results/damage.json]

Each case damages one file once: a bit flipped, a digit changed, a block of zeros, cut short, emptied, something added,
another run's file in its place, gone. Then it is read as the commands read it. A case holds if the damage is said in
one sentence, or if it is harmless: what was read is what was written (other spaces in JSON), or a run that goes on from
what is left ends with the bits of one that was not disturbed.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch
from record import Record, options

import everlearn
from everlearn.collection import collect, index
from everlearn.errors import BadInput, EverlearnError, Notice
from everlearn.experiments import records, run, seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.results import read_result
from everlearn.experiments.store import CHECKPOINT, Store

SMALL = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=2, batch=64, memory=20)
CLAIM = "Damage to a file of a run or to a record is noticed in one sentence, or changes nothing."


def flip(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def digit(content: bytes, rng: random.Random) -> bytes:
    places = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    at = rng.choice(places) if places else rng.randrange(len(content))
    return content[:at] + bytes([48 + (content[at] - 47) % 10]) + content[at + 1 :]


def zeros(content: bytes, rng: random.Random) -> bytes:
    at, length = rng.randrange(len(content)), rng.choice((1, 16, 512))
    return (content[:at] + bytes(length) + content[at + length :])[: len(content)]


DAMAGES = {
    "bit": flip,
    "digit": digit,
    "zeros": zeros,
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "emptied": lambda content, rng: b"",
    "added": lambda content, rng: content + rng.randbytes(rng.choice((1, 40))),
    "twice": lambda content, rng: content + content,
}
OTHERS = ("another's", "gone")


def damaged(file: Path, kind: str, other: Path, rng: random.Random) -> bool:
    """Damage it; is it another file than before?"""
    before = file.read_bytes()
    if kind == "gone":
        file.unlink()
        return True
    after = other.read_bytes() if kind == "another's" else DAMAGES[kind](before, rng) if before else b"x"
    file.write_bytes(after)
    return after != before


class Harmless(Exception):
    """Nothing that is read has changed."""


def told(error: Exception) -> str | None:
    """What is wrong with an error: it is to be one sentence."""
    return None if str(error) and "\n" not in str(error) else f"not one sentence: {error!r}"


def plain(collection) -> list:
    runs = [run for row in collection.rows for run in row.runs]
    return sorted((r.name, r.seed, r.key, str(r.figures), str(r.matrices), str(r.settings)) for r in runs)


class Folder:
    """A finished run, with all files a run can leave."""

    def __init__(self, root: Path):
        self.root = root
        for seed in (0, 1):
            everlearn.run("rer", out=root / str(seed), seed=seed, warmup=1, **SMALL)
        self.whole, self.other = (next((root / str(seed)).iterdir()) for seed in (0, 1))
        self.files = sorted(path.name for path in self.whole.iterdir())
        self.result, self.known = read_result(self.whole), plain(collect([self.whole]))
        self.state = everlearn.Learner.load(self.whole).state()

    def case(self, file: str, kind: str, rng: random.Random) -> str | None:
        copy = Path(shutil.copytree(self.whole, self.root / "copy" / self.whole.name))
        try:
            if not damaged(copy / file, kind, self.other / file, rng):
                raise Harmless
            wrong = {self._result(copy), self._collected(copy)}
            if file in seals.OWN and wrong == {"same"}:  # the result does not hang on it; who reads it notices
                wrong = {self._learner(copy)}
            if wrong == {None}:
                return None
            raise Harmless if wrong == {"same"} else AssertionError(", ".join(map(str, wrong)))
        finally:
            shutil.rmtree(copy)

    def _result(self, copy: Path) -> str | None:
        """None if damage was noticed."""
        try:
            return "same" if read_result(copy) == self.result else "another result was read"
        except BadInput as error:
            return told(error)

    def _collected(self, copy: Path) -> str | None:
        found = collect([copy], index=False)
        if found.problems:
            return None if not found.rows else "it is in a table, too"
        return "same" if plain(found) == self.known else "another run was read"

    def _learner(self, copy: Path) -> str | None:
        try:
            state = everlearn.Learner.load(copy).state()
        except BadInput as error:
            return told(error)
        same = state.keys() == self.state.keys() and all(torch.equal(state[key], self.state[key]) for key in state)
        return "same" if same else "another learner was read"


class Checkpointed:
    """A run that was stopped half-way."""

    def __init__(self, root: Path):
        self.store, self.clean = Store(root / "runs"), Store(root / "clean")
        self.experiments = [Experiment.of("er", seed=seed, **SMALL | dict(epochs=1)) for seed in (0, 1)]
        self.parts = []
        for experiment in self.experiments:
            self._perform(experiment, self.clean)
            try:
                self._perform(experiment, self.store, stop=True)
            except KeyboardInterrupt:
                self.parts.append(Path(shutil.copytree(self.store.part(experiment), root / f"part{experiment.seed}")))
            self.store.forget(experiment)
        self.files = sorted(path.name for path in self.parts[0].iterdir())
        assert CHECKPOINT in self.files
        self.expected = self._outcome(self.clean)

    def _perform(self, experiment: Experiment, store: Store, stop: bool = False) -> None:
        def report(record: dict) -> None:
            if stop and record["event"] == "task":
                raise KeyboardInterrupt

        run.finish(run.recorded(experiment, store, "cpu", report=report))

    def _outcome(self, store: Store) -> tuple:
        result = store.result(self.experiments[0])
        lines = (store.path(self.experiments[0]) / "metrics.jsonl").read_text().splitlines()
        bare = [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]
        return result["class_il"], result["task_il"], bare

    def case(self, file: str, kind: str, rng: random.Random) -> str | None:
        first = self.experiments[0]
        shutil.copytree(self.parts[0], part := self.store.part(first))
        try:
            damaged(part / file, kind, self.parts[1] / file, rng)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    self._perform(first, self.store)
                except EverlearnError as error:
                    assert told(error) is None, told(error)
                    warnings.warn(str(error), Notice, stacklevel=1)  # it was said
                    self._perform(first, self.store)  # the way out of every such sentence
            if self._outcome(self.store) != self.expected:
                raise AssertionError("the run ended otherwise")
            if not any(issubclass(one.category, Notice) for one in said):
                raise Harmless
            return None
        finally:
            self.store.forget(first)


class Documents:
    """What the commands print with --json, kept as files."""

    def __init__(self, root: Path, runs: Folder):
        self.root = root
        one, two = runs.result, read_result(runs.other)
        figures = lambda d: {"seed": d["experiment"]["seed"], "seconds": 1.0, "class_il": d["class_il"]}
        row = {"experiment": {**one["experiment"], "seed": None}, "runs": [figures(one), figures(two)]}
        made = {
            "run": one,
            "seeds": records.several([one, two]),
            "demo": {"rer": records.several([one, two])},
            "again": {"rer": {"then": one, "now": one, "same": True}},
            "study": {"study": "mine", "rows": {"rer": row}, "provenance": one["provenance"]},
        }
        self.files = []
        for name, document in made.items():
            (root / f"{name}.json").write_text(json.dumps(seals.sealed(document), indent=1) + "\n")
            self.files.append(f"{name}.json")
        self.known = {file: plain(collect([root / file])) for file in self.files}
        (root / "another.json").write_text(json.dumps(seals.sealed(two | {"seconds": 2.0})))

    def case(self, file: str, kind: str, rng: random.Random) -> str | None:
        path, before = self.root / file, (self.root / file).read_bytes()
        try:
            # Another whole record under this name is no damage: nothing says which one belongs there.
            other = self.root / "half"
            whole = (self.root / "another.json").read_bytes()
            other.write_bytes(whole[: len(whole) // 2])
            damaged(path, kind, other, rng)
            try:
                found = collect([path])
            except BadInput as error:
                return told(error)
            if found.problems:
                return None if not found.rows else "it is in a table, too"
            raise Harmless if plain(found) == self.known[file] else AssertionError("another record was read")
        finally:
            path.write_bytes(before)


class Indexed:
    """The index beside a folder of many runs."""

    def __init__(self, root: Path, runs: Folder):
        self.root, document = root, runs.result
        for seed in range(index.LEAST):
            experiment = Experiment.parse(document["experiment"] | {"seed": seed})
            folder = root / experiment.name
            folder.mkdir(parents=True)
            result = seals.sealed(document | {"experiment": experiment.document()})
            (folder / "result.json").write_text(json.dumps(result))
            os.utime(folder / "result.json", (1e9, 1e9))
        self.known, self.files = plain(collect([root])), [index.NAME]
        self.whole = (root / index.NAME).read_bytes()
        (root.parent / "other").write_bytes(self.whole[::-1])

    def case(self, file: str, kind: str, rng: random.Random) -> str | None:
        (self.root / file).write_bytes(self.whole)
        damaged(self.root / file, kind, self.root.parent / "other", rng)
        if plain(collect([self.root])) != self.known:
            raise AssertionError("other runs were read")
        raise Harmless


def torture(count: int, seed: int) -> Record:
    record, outcomes = Record("damage", CLAIM), Counter()
    os.environ["EVERLEARN_CHECKPOINT"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("folder", "stopped", "documents", "index/runs"):
            (root / name).mkdir(parents=True)
        finished = Folder(root / "folder")
        kinds = {  # and how many of ten cases are of this kind
            "finished run": (finished, 5),
            "stopped run": (Checkpointed(root / "stopped"), 1),
            "record": (Documents(root / "documents", finished), 3),
            "index": (Indexed(root / "index" / "runs", finished), 1),
        }
        for group, (of, share) in kinds.items():
            for number in range(max(1, count * share // 10)):
                rng = random.Random(f"{seed} {group} {number}")
                file, kind = of.files[number % len(of.files)], rng.choice((*DAMAGES, *OTHERS))
                try:
                    wrong = of.case(file, kind, rng)
                    outcomes["noticed"] += wrong is None
                except Harmless:
                    wrong = None
                    outcomes["harmless"] += 1
                except AssertionError as error:
                    wrong = f"silent: {error}"
                    outcomes["silent"] += 1
                except Exception as error:
                    wrong = f"a traceback: {error!r}"
                    outcomes["tracebacks"] += 1
                record.tried(f"{group}: {file}", f"{kind}, case {number}", wrong)
    record.figures |= {key: outcomes[key] for key in ("noticed", "harmless", "silent", "tracebacks")}
    return record


def main() -> int:
    given = options(__doc__.splitlines()[0], 1600).parse_args()
    return torture(given.count, given.seed).end(given.out)


if __name__ == "__main__":
    sys.exit(main())
