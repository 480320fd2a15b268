"""Run what the reproduction lacks on this machine's GPU, and keep a record of each run in results/.

python docs/reproduce.py                             what is on record, what is lacking, and about how long it takes
python docs/reproduce.py --data DIR [--minutes N]    run it, or the most valuable of it that fits into N minutes

Of what it takes the longest runs begin first, so that short ones fill up the end. Stopped, killed or out of time, the
same command goes on. Runs that are complete under --out, from wherever they came, are kept and not run. On a machine
that is lent for a while, `--carry FILE` takes up what was left unfinished there the last time, and leaves at the end
what is unfinished now, in pieces FILE.0, FILE.1, … that small transfers have room for.
"""

import argparse
import contextlib
import functools
import glob
import io
import json
import math
import os
import re
import signal
import sys
import tarfile
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from everlearn.errors import EverlearnError
from everlearn.experiments import seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import published
from everlearn.experiments.results import read_lines, validation
from everlearn.experiments.store import CHECKPOINT, Store
from everlearn.experiments.studies import STUDIES, study
from everlearn.launchers import DONE, perform

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"  # folders with a record per run, and for each one with the curves of relational runs
STREAMS = ("cifar10", "cifar100", "tinyimagenet")
FOLDERS = (*STREAMS, "similarity")

SIX = r"(r?er|r?er-ace|der\+\+|rder)"
RULE = r"der\+\+\+consolidate"
ALL = rf"({SIX}|{RULE})"
# In order of value: what it is for, the study, its rows, seeds. First three seeds of what the main claims on CIFAR-10
# rest on, then one of every cell of the six methods and the rule, then three of CIFAR-100; then all else.
PLAN = [
    ("the six methods, memory 200 and 500, three seeds", "table1-cifar10", rf"{SIX}, M = (200|500)", 3),
    ("the rule on DER++, memory 200 and 500, three seeds", "outer-cifar10", rf"{RULE}, M = (200|500)", 3),
    ("CIFAR-100: the six methods and the rule, memory 200 and 500", "table2-cifar100", rf"{ALL}, M = (200|500)", 1),
    ("two tasks, alike and not, one seed", "similarity", ".*", 1),
    ("RDER at memory 50, a row of three tables", "table5-small-memory", "rder, M = 50", 1),
    ("DER++ and RDER at memory 5120, rows of three tables", "table1-cifar10", r"(der\+\+|rder), M = 5120", 1),
    ("the six methods and the rule, memory 5120", "table1-cifar10", rf"{ALL}, M = 5120", 1),
    ("the six methods and the rule, memory 50 and 100", "table5-small-memory", rf"{ALL}, .*", 1),
    ("CIFAR-100: the same, memory 100 and 5120", "table2-cifar100", rf"{ALL}, M = (100|5120)", 1),
    ("Vanilla, memory 200, 500 and 5120", "table3-vanilla", r"der\+\+\+vanilla, .*", 1),
    ("Split, memory 200, 500 and 5120", "table4-split", r"der\+\+\+split, .*", 1),
    ("warm-up 17, 25 and 33, memory 50, 200 and 500", "table6-warmup", ".*", 1),
    ("Interval 1, 5 and 10, memory 50, 200 and 500", "table7-interval", ".*", 1),
    (
        "CIFAR-100: the six methods and the rule, memory 200 and 500, three seeds",
        "table2-cifar100",
        rf"{ALL}, M = (200|500)",
        3,
    ),
    (
        "as the released code has it, where CIFAR-100 is off",
        "released-cifar100",
        "(er-ace|rer|rer-ace), as released, M = 200",
        1,
    ),
    (
        "as the released code has it, where CIFAR-10 is off, and RDER",
        "released-cifar10",
        r"rer, as released, M = (50|5120)|er-ace, as released, M = 5120|rder, as released, M = (200|500)",
        1,
    ),
    ("both bounds and the regularisers", "table1-cifar10", "joint|finetune|oewc|si|lwf", 1),
    (
        "the comparators with a memory of 200, 500 and 5120, GEM of 200 and 500",
        "table1-cifar10",
        "(agem|icarl|gss), .*|gem, M = (200|500)",
        1,
    ),
    ("both presets and both orders of update, memory 200, one seed", "presets-cifar10", ".*", 1),
    ("new samples' weights alone? Memory 200, one seed", "alone-cifar10", ".*", 1),
    ("an outer loss on labels alone? Memory 500, one seed", "outer-cifar10", ".*, M = 500", 1),
    ("Vanilla, memory 200 and 500, three seeds", "table3-vanilla", r"der\+\+\+vanilla, M = (200|500)", 3),
    ("Split, memory 200 and 500, three seeds", "table4-split", r"der\+\+\+split, M = (200|500)", 3),
    ("warm-up 17, 25 and 33, memory 200 and 500, three seeds", "table6-warmup", "rder, M = (200|500), .*", 3),
    ("Interval 1, 5 and 10, memory 200 and 500, three seeds", "table7-interval", "rder, M = (200|500), .*", 3),
    ("two tasks, alike and not, ten seeds", "similarity", ".*", 10),
    ("both presets and both orders of update, memory 200, three seeds", "presets-cifar10", ".*", 3),
    (
        "the bounds and the comparators, memory 200 and 500, three seeds",
        "table1-cifar10",
        "joint|finetune|oewc|si|lwf|(gem|agem|icarl|gss), M = (200|500)",
        3,
    ),
    ("an outer loss on labels alone? Memory 200 and 500, three seeds", "outer-cifar10", ".*", 3),
    ("new samples' weights alone? Memory 200, three seeds", "alone-cifar10", ".*", 3),
    ("relation or phase? Memory 200, three seeds", "phase-cifar10", ".*", 3),
    ("the six methods, memory 200 and 500, five seeds", "table1-cifar10", rf"{SIX}, M = (200|500)", 5),
    ("Tiny-ImageNet: ER, DER++, RDER and the rule", "table1-tinyimagenet", rf"(er|der\+\+|rder|{RULE}), M = 200", 1),
    ("GEM with a memory of 5120, which is in every step", "table1-cifar10", "gem, M = 5120", 1),
]
# The paper's tables: their names and studies. A cell is a row that has published figures.
TABLES = {
    "I, CIFAR-10": "table1-cifar10",
    "I, Tiny-ImageNet": "table1-tinyimagenet",
    "II, CIFAR-100": "table2-cifar100",
    "III, Vanilla": "table3-vanilla",
    "IV, Split": "table4-split",
    "V, small memories": "table5-small-memory",
    "VI, warm-up": "table6-warmup",
    "VII, Interval": "table7-interval",
    "Fig. 5, similarity": "similarity",
}
START = 1  # minute from a process's start to full speed
DEVICE, PRECISION = "cuda", "bfloat16"
UNKNOWN = 4.0  # minutes a run of a method takes of which there is no record
LATEST = 3  # records of a method that say what it takes: the code gets faster
ROOM = 50.0  # MiB of unfinished runs to carry; one of a ResNet-18 has 43, with a memory of 5120 images 58
PIECE = 15 * 2**20  # bytes of a file of them
CHECKPOINTS = "600"  # seconds between two of a run: all runs wait for the thread that writes one, 0.2 to 0.7 s


def rows(name: str, pattern: str, seeds: int) -> dict[str, list[Experiment]]:
    """The experiments of a study's rows, by label, as they are run on a GPU."""
    every = study(name, seeds, given={"precision": PRECISION}).rows
    return {label: row for label, row in every.items() if re.fullmatch(pattern, label)}


def recorded() -> dict[Experiment, dict]:
    """All runs on record."""
    paths = [path for folder in FOLDERS for path in sorted((RESULTS / folder).glob("*.json"))]
    documents = [json.loads(path.read_text()) for path in paths]
    return {experiment(document): document for document in documents}


def folder(experiment: Experiment) -> str:
    """Where its record is: with those of its stream, or of two tasks of chosen classes."""
    return "similarity" if experiment.stream.get("classes") else experiment.stream.name


def experiment(run: dict) -> Experiment:
    """The settings of a record, of whichever format."""
    return _parsed(json.dumps(run["experiment"]))


@functools.cache
def _parsed(text: str) -> Experiment:
    return Experiment.parse(json.loads(text))


def gpu_minutes(runs: dict[Experiment, dict]) -> dict[Experiment, float]:
    """What each run had of the GPU: an instant belongs in equal parts to all that were under way."""
    end = lambda run: datetime.fromisoformat(run["provenance"]["finished"]).timestamp()
    spans = {experiment: (end(run) - run["seconds"], end(run)) for experiment, run in runs.items()}
    minutes = dict.fromkeys(runs, 0.0)
    for start, stop in pairwise(sorted({instant for span in spans.values() for instant in span})):
        under_way = [experiment for experiment, (first, last) in spans.items() if first <= start and stop <= last]
        for experiment in under_way:
            minutes[experiment] += (stop - start) / len(under_way) / 60
    return minutes


def costs(runs: dict[Experiment, dict]) -> dict[str, float]:
    """Minutes of the GPU a run on all classes takes, by what tables call it: the median of the latest records. Of runs
    on some of them, which have the GPU's start in them as often, only where there are no others."""
    of: dict[str, list[tuple[bool, float]]] = {}
    minutes = gpu_minutes(runs)
    for experiment in sorted(runs, key=lambda e: runs[e]["provenance"]["finished"]):
        part = share(experiment)
        of.setdefault(experiment.label, []).append((part < 1, minutes[experiment] / part))
    whole = {label: [value for some, value in values if not some] for label, values in of.items()}
    return {label: median((whole[label] or [value for _, value in of[label]])[-LATEST:]) for label in of}


def cost(experiment: Experiment, known: dict[str, float]) -> float:
    """Minutes it takes, about. GEM's step passes its whole memory."""
    images = experiment.training.batch + experiment.memory
    guess = known.get("er", UNKNOWN) / 2 * images / experiment.training.batch if experiment.label == "gem" else UNKNOWN
    return known.get(experiment.label, guess) * share(experiment)


def share(experiment: Experiment) -> float:
    """Of the work on all of a CIFAR, this has so much. Tiny-ImageNet has twice the images, of four times the pixels."""
    kept = experiment.stream.get("classes")  # chosen on CIFAR-10 alone
    return len(kept) / 10 if kept else 8.0 if experiment.stream.name == "tinyimagenet" else 1.0


def progress() -> Iterator[tuple[str, int, dict[Experiment, float]]]:
    """What is wanted, how many runs of it are on record, and those lacking that are not wanted further up: about how
    many minutes each takes."""
    runs = recorded()
    known, named = costs(runs), set()
    for what, name, pattern, seeds in PLAN:
        wanted = [experiment for row in rows(name, pattern, seeds).values() for experiment in row]
        there = sum(experiment in runs for experiment in wanted)
        lacking = [e for e in sorted(wanted, key=lambda e: e.seed) if e not in runs and e not in named]
        named |= set(lacking)
        yield what, there, {e: cost(e, known) for e in lacking}


def cells(table: str) -> dict[str, list[Experiment]]:
    """The experiments of each cell of a table of the paper, five seeds of it or ten."""
    every = rows(table, ".*", STUDIES[table][0])
    return {label: row for label, row in every.items() if published(table, label)}


def begun(experiment: Experiment, store: Store) -> float:
    """How much of it is done, if it has a checkpoint to go on from; else 0."""
    part, epochs = store.part(experiment), experiment.training.epochs * (experiment.stream.get("tasks") or 1)
    if not (part / CHECKPOINT).exists():
        return 0.0
    with contextlib.suppress(FileNotFoundError):
        return min(sum(line["event"] == "epoch" for line in read_lines(part)) / epochs, 1.0)
    return 0.0


def chosen(minutes: float, store: Store, carried: bool = False) -> list[Experiment]:
    """What fits into so many minutes: begun runs first, then by value; of these the long ones first, so that short ones
    fill up the end, when runs are no longer enough for the whole GPU. What has to be `carried` over several such times,
    for none is long enough, is begun, too, while there is half of one left."""
    lacking = {experiment: cost for _, _, of in progress() for experiment, cost in of.items()}
    done = {experiment: begun(experiment, store) for experiment in lacking}
    fitting, left = [], minutes
    for experiment in sorted(lacking, key=lambda e: not done[e]):
        rest = lacking[experiment] * (1 - done[experiment])
        if rest <= left or (carried and rest > minutes and left > minutes / 2):
            fitting.append(experiment)
            left -= rest
    return sorted(fitting, key=lambda e: (not done[e], -lacking[e]))


def pieces(carried: Path) -> list[Path]:
    """The files of an archive, in order."""
    return sorted(carried.parent.glob(f"{glob.escape(carried.name)}.*"), key=lambda piece: int(piece.suffix[1:]))


def unpack(carried: Path, out: Path) -> None:
    """The unfinished runs of the last time; what is there already has got further."""
    content = b"".join(piece.read_bytes() for piece in pieces(carried))
    if not content:
        return
    there = {part.name for part in out.glob("*.part")}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        new = [member for member in archive if member.name.partition("/")[0] not in there]
        archive.extractall(out, new, filter="data")


def pack_up(carried: Path, todo: list[Experiment], store: Store, room: float) -> None:
    """Of these runs the unfinished ones that have a checkpoint, who got furthest first, as far as there is room."""
    packed, done = io.BytesIO(), {experiment: begun(experiment, store) for experiment in todo}
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for experiment in sorted(filter(done.get, todo), key=lambda e: -done[e]):
            part = store.part(experiment)
            if (size := sum(file.stat().st_size for file in part.iterdir())) <= room:
                archive.add(part, part.name)
                room -= size
    before, content = pieces(carried), packed.getvalue() if any(done.values()) else b""
    for number, start in enumerate(range(0, len(content), PIECE)):
        Path(f"{carried}.{number}").write_bytes(content[start : start + PIECE])
    for piece in before[math.ceil(len(content) / PIECE) :]:
        piece.unlink()


def curves(folder: Path) -> dict:
    """Losses and mean weights of a run, one number an epoch."""
    epochs = [line for line in read_lines(folder) if line["event"] == "epoch"]
    terms = list(epochs[0]["loss"])
    weight = lambda line, term: round(line["weights"][term]["mean"], 5) if "weights" in line else None
    return {
        "task": [line["task"] for line in epochs],
        "phase": "".join(line.get("phase", "preset")[0] for line in epochs),  # preset, warm-up, relation
        "loss": {term: [round(line["loss"][term], 5) for line in epochs] for term in terms},
        "weights": {term: [weight(line, term) for line in epochs] for term in terms},
    }


def write(experiment: Experiment, folder: Path, document: dict, indent: int | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{experiment.name}.json").write_text(json.dumps(seals.sealed(document), indent=indent) + "\n")


def keep(experiment: Experiment, store: Store) -> None:
    """A record of the run, if it is complete, and of a relational one its curves."""
    if (result := store.result(experiment)) is None:
        return
    weighed = {"validation": found} if (found := validation(store.path(experiment))) else {}
    write(experiment, RESULTS / folder(experiment), result | weighed, 1)
    if experiment.weighting.get("warmup") is not None:
        write(experiment, RESULTS / f"{folder(experiment)}-epochs", curves(store.path(experiment)), None)
    print(f"{experiment.name}: Class-IL ACC {result['class_il']['acc']:.2f}, {result['seconds']:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no more than fits into so many")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="the runs' own folders")
    parser.add_argument("--carry", type=Path, metavar="FILE", help="unfinished runs, read and written in pieces")
    parser.add_argument("--room", type=float, default=ROOM, metavar="MIB", help="what they may take")
    given = parser.parse_args()
    store = Store(given.out)
    if given.carry:
        unpack(given.carry, given.out)
    for _, _, lacking in progress():
        for experiment in lacking:
            keep(experiment, store)
    for what, there, lacking in progress():
        print(f"{what}: {there} on record, {len(lacking)} to run, about {sum(lacking.values()):.0f} minutes")
    if given.data is None:
        return
    todo = chosen(given.minutes - START, store, carried=given.carry is not None)
    tell = lambda experiment, line: keep(experiment, store) if line is DONE else None
    try:
        with ending(given.minutes):
            outcomes = perform(todo, store, device=DEVICE, data=given.data, report=tell)
    except EverlearnError as error:
        sys.exit(f"{error}")
    finally:
        if given.carry:
            pack_up(given.carry, todo, store, given.room * 2**20)
    if wrong := [f"{e.name}: {outcome}" for e, outcome in zip(todo, outcomes) if isinstance(outcome, Exception)]:
        sys.exit("\n".join(wrong))


@contextlib.contextmanager
def ending(minutes: float) -> Iterator[None]:
    """Inside, the end of the time is as a scheduler's signal is: a run hears it between two steps and leaves a
    checkpoint."""
    if minutes < float("inf"):
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit("the time is up; what is unfinished goes on the next time"))
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGUSR1))  # runs do not wait with this one
        signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    os.environ.setdefault("EVERLEARN_CHECKPOINT", CHECKPOINTS)
    main()
