"""Which loss is the best, chosen without a look at the test images, and how good it is on them.

python docs/flagship.py screen --data DIR --minutes 6      CIFAR-10: candidates on held-out training images
python docs/flagship.py ablation --data DIR --minutes 6    the same without one term after another
python docs/flagship.py final --data DIR --minutes 20      the test: CIFAR-10, memory 200 and 500, seeds 0 to 4
python docs/flagship.py cifar100 --data DIR --minutes 10   the test: CIFAR-100, memory 500, seeds 0 to 2
python docs/flagship.py small [--data DIR]                 with small networks, on the CPU
python docs/flagship.py show                               what is on record
python docs/flagship.py choose                             which candidate becomes the default

Several may be named: the runs of all of them share the GPU. A tenth of the training images of each class is held out,
the rest is learned, and seeds from 100 on are not reported on the test. The candidates are all of CANDIDATES, and the
records of all of them are kept, in results/flagship. The same command goes on where it was stopped.

A candidate becomes the default by its mean over four streams, on held-out images: digits and Fashion-MNIST with small
networks, each the mean over its memories, CIFAR-10 and CIFAR-100 with ResNet-18 for 20 epochs. It has to be the best,
GAIN points above the default, and on no stream more than LOSS below it.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from reproduce import DEVICE, PRECISION, RESULTS, ROOT, START, STREAMS, UNKNOWN, costs, ending, recorded, write

from everlearn.core.ledger import policy
from everlearn.errors import EverlearnError
from everlearn.experiments import records, seals
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Store
from everlearn.experiments.studies import Study
from everlearn.experiments.tune import chosen_on
from everlearn.launchers import DONE, perform

WHOLE = {"retain": dict(method="retain")}
# The terms were chosen first. That a task's own logits are refreshed and the teacher is averaged came after them, and
# last what is refreshed of older samples.
BEFORE = dict(method="retain", refresh=False, refresh_older=True, averaged_teacher=False)
FIRST = {"retain, first form": BEFORE}
ALONE = BEFORE | dict(balance="plain", weighting="relation", learned=("apart",), warmup=0, interval=5)
CANDIDATES = FIRST | {
    "retain, ρ = .1": BEFORE | dict(balance="rho", rho=0.1),
    "retain, prior": BEFORE | dict(balance="prior"),
    "retain, prior and rule": BEFORE | dict(balance="both"),
    "retain, plain": BEFORE | dict(balance="plain"),
    "retain, ρ = .3": BEFORE | dict(balance="rho", rho=0.3),
    "retain, not distilled": BEFORE | dict(weights=(1.0, 1.0, 0.0, 0.1, 0.5)),
    "der++, averaged": dict(method="der++", average=0.999),
    "retain+consolidate": BEFORE | dict(weighting="consolidate"),
    "retain, learned": ALONE,
    "retain, ρ = 1": BEFORE | dict(balance="rho", rho=1.0),
    "der+++consolidate, averaged": dict(method="der++", weighting="consolidate", average=0.999),
    "der++": dict(method="der++"),
}
# What the relation's outer loss is on: the weight of new against old is all it learns.
OUTER = {
    f"retain, learned, {name}": ALONE | options
    for name, options in {
        "in turns": dict(outer_rows="turns"),
        "strong views": dict(outer_views="strong"),
        "mixed": dict(outer_views="mixed"),
        "new in proportion": dict(outer_new=True),
        "labels": dict(weighting="labelled"),
        "labels, new in proportion": dict(weighting="labelled", outer_new=True),
        "labels, new in proportion, in turns": dict(weighting="labelled", outer_new=True, outer_rows="turns"),
    }.items()
}
EARLIER = {  # by a rule of an earlier commit, ρ = min(1, 6/√R)
    "retain, ρ = .28": BEFORE | dict(balance="rho", rho=0.282842712474619),
    "retain, ρ = .28, not distilled": BEFORE
    | dict(balance="rho", rho=0.282842712474619, weights=(1.0, 1.0, 0.0, 0.1, 0.5)),
}
REACH = {"retain, average over half a task": BEFORE | dict(average="task")}
ALL_REFRESHED = {"retain, first form, refreshed": BEFORE | dict(refresh=True)}
OWN = BEFORE | dict(refresh=True, refresh_older=False)
AVERAGED = OWN | dict(averaged_teacher=True)
SECOND = {"retain, second form": AVERAGED}
LONGER = WHOLE | SECOND
LONGER |= {  # those that are run with ResNet-18 for 20 epochs, on CIFAR-100, too
    "retain, own samples refreshed": OWN,
    "retain, second form, thrice the logits": AVERAGED | dict(weights=(1.0, 1.0, 1.0, 0.3, 0.5)),
    "retain, not centred": AVERAGED | dict(refresh_older=True),
}
SHORTER = {  # those that small networks alone have tried
    "retain, averaged teacher": BEFORE | dict(averaged_teacher=True),
    "retain, begun as the average": OWN | dict(method=f"{ROOT}/docs/tried.py:Tried", restart=True),
    "retain, second form, twice the logits": AVERAGED | dict(weights=(1.0, 1.0, 1.0, 0.2, 0.5)),
    "retain, second form, twice the distillation": AVERAGED | dict(weights=(1.0, 1.0, 2.0, 0.1, 0.5)),
    "retain, second form, twice the labels": AVERAGED | dict(weights=(1.0, 1.0, 1.0, 0.1, 1.0)),
}
NEWER = (  # a memory that classes share equally, too
    ALL_REFRESHED
    | LONGER
    | {
        f"retain, {name}": BEFORE | options
        for name, options in {
            "balanced": dict(policy="balanced"),
            "refreshed, balanced": dict(refresh=True, policy="balanced"),
            "refreshed, average over half a task": dict(refresh=True, average="task"),
            "refreshed, balanced, average over half a task": dict(refresh=True, policy="balanced", average="task"),
        }.items()
    }
)
PARTS = {
    "new against old": dict(weights=(1.0, 0.0, 1.0, 0.1, 0.5)),
    "the rule": dict(balance="plain"),
    "distillation": dict(weights=(1.0, 1.0, 0.0, 0.1, 0.5)),
    "logits of the memory": dict(weights=(1.0, 1.0, 1.0, 0.0, 0.5)),
    "labels of the memory": dict(weights=(1.0, 1.0, 1.0, 0.1, 0.0)),
    "the average": dict(average=0.0),
    "the teacher's average": dict(averaged_teacher=False),
    "refreshing": dict(refresh=False),
    "refreshing older samples": dict(refresh_older=False),
    "centring": dict(refresh_older=True),
}
WITHOUT = {f"without {name}": dict(method="retain", **options) for name, options in PARTS.items()}
LESS = {f"first form, without {name}": BEFORE | options for name, options in [*PARTS.items()][:6]}
SMALL = {  # stream: settings and memories
    "digits": (dict(network="mlp", epochs=10), (20, 50, 100, 200)),
    "fashion-mnist": (dict(network="mlp", epochs=2), (50, 200)),
}
ALL = ".*"  # rows
GAIN, LOSS = 0.3, 1.0  # points of accuracy
RELATIVE = {"retain": 1.3, "retain+relation": 2.0}  # to DER++'s time on a GPU, of what has no record


def screen(given: argparse.Namespace) -> list[Experiment]:
    return held(CANDIDATES | OUTER | REACH | NEWER, given)


def ablation(given: argparse.Namespace) -> list[Experiment]:
    return held(WHOLE | WITHOUT, given)


def longer(given: argparse.Namespace) -> list[Experiment]:
    """At memory 500, on held-out images of CIFAR-10 and of CIFAR-100."""
    return [
        chosen_on(of)
        for seed in given.seeds or [100]
        for memory in given.memory or [500]
        for stream in ("cifar10", "cifar100")
        for of in each(some(LONGER, given.only), stream, memory=memory, epochs=given.epochs or 20, seed=seed)
    ]


def held(rows: dict[str, dict], given: argparse.Namespace) -> list[Experiment]:
    """Each row on held-out images, the first seed of all before the second of any."""
    return [
        chosen_on(of)
        for seed in given.seeds or range(100, 102)
        for memory in given.memory or [200]
        for of in each(some(rows, given.only), memory=memory, epochs=given.epochs or 10, seed=seed)
    ]


def final(given: argparse.Namespace) -> list[Experiment]:
    return [
        of
        for seed in given.seeds or range(5)
        for memory in given.memory or [200, 500]
        for of in each(tested(given), memory=memory, epochs=given.epochs or 50, seed=seed)
    ]


def cifar100(given: argparse.Namespace) -> list[Experiment]:
    return [
        of
        for seed in given.seeds or range(3)
        for of in each(tested(given), "cifar100", memory=500, epochs=given.epochs or 50, seed=seed)
    ]


def tested(given: argparse.Namespace) -> dict[str, dict]:
    """`retain`, unless others are asked for."""
    return WHOLE if given.only == ALL else some(WHOLE | FIRST | REACH | NEWER, given.only)


def some(rows: dict[str, dict], pattern: str) -> dict[str, dict]:
    """The rows whose whole label the pattern matches."""
    return {label: row for label, row in rows.items() if re.fullmatch(pattern, label)}


def each(rows: dict[str, dict], stream: str = "cifar10", **settings) -> Iterator[Experiment]:
    """With ResNet-18, as they are run on a GPU."""
    for row in rows.values():
        yield made(row, stream=stream, network="resnet18", precision=PRECISION, **settings)


def made(row: dict, *, memory: int, **settings) -> Experiment:
    """An experiment of a row, whose memory may have a policy."""
    own = {key: value for key, value in row.items() if key != "policy"}
    return Experiment.of(**own | settings, memory=f"{row['policy']}:{memory}" if "policy" in row else memory)


def minutes(experiment: Experiment, known: dict[str, float]) -> float:
    """About how many of the GPU it takes, from the records of 50 epochs."""
    usual = known.get("der++", UNKNOWN) * RELATIVE.get(experiment.label, 1.0)
    return known.get(experiment.label, usual) * experiment.training.epochs / 50


def on_gpu(given: argparse.Namespace) -> None:
    """As many as fit into the minutes, in order, a record of each kept as it ends."""
    known, planned = costs(recorded()), 0.0
    folders: dict[Experiment, Path] = {}
    for what in given.what:
        for experiment in GPU[what](given):
            folder = given.records / (experiment.stream.name if what in TESTS else f"flagship/{what}")
            cost = minutes(experiment, known)
            if not (folder / f"{experiment.name}.json").exists() and planned + cost <= given.minutes - START:
                folders[experiment] = folder
                planned += cost
    print(f"{len(folders)} to run now, about {planned:.0f} minutes", flush=True)
    store, chosen = Store(given.out), list(folders)

    def keep(experiment: Experiment, line: dict) -> None:
        if line is DONE and (result := store.result(experiment)) is not None:
            write(experiment, folders[experiment], result, 1)
            print(f"{experiment.name}: {result['class_il']['acc']:.2f}, {result['seconds']:.0f} s", flush=True)

    with ending(given.minutes):
        outcomes = perform(chosen, store, device=given.device, data=given.data, report=keep, pack=given.pack)
    if wrong := [f"{e.name}: {outcome}" for e, outcome in zip(chosen, outcomes) if isinstance(outcome, Exception)]:
        sys.exit("\n".join(wrong))


KINDS = {  # and their seeds
    **{kind: range(100, 105) for kind in ("held-out", "learned", "ablation", "average", "newer")},
    "test": range(5),
}
OTHERS = {
    "er": dict(method="er"),
    "er-ace": dict(method="er-ace"),
    "rer": dict(method="rer"),
    "rer-ace": dict(method="rer-ace"),
    "rder": dict(method="rder"),
    "der+++consolidate": dict(method="der++", weighting="consolidate"),
}


ROWS = {
    "learned": FIRST | OUTER,
    "ablation": WHOLE | WITHOUT,
    "average": FIRST | REACH,
    "newer": FIRST | NEWER | SHORTER,
    "test": WHOLE
    | SECOND
    | FIRST
    | ALL_REFRESHED
    | {label: CANDIDATES[label] for label in ("der++, averaged", "der++")}
    | OTHERS,
}


def small(given: argparse.Namespace) -> None:
    """Rows × memories with small networks: candidates, what a relation learns, the ablation or another average, on
    held-out images; or the test."""
    for stream in [given.stream] if given.stream else SMALL:
        for kind in [given.on] if given.on else KINDS:
            rows = small_rows(stream, kind, given.seeds or list(KINDS[kind]), given.memory)
            rows = some(rows, given.only)
            if kind != "test":
                rows = {label: list(map(chosen_on, row)) for label, row in rows.items()}
            study = Study(f"flagship-{stream}-{kind}", "which loss is the best?", rows)
            every, store = [experiment for row in rows.values() for experiment in row], Store(given.out)
            outcomes = perform(every, store, device="cpu", data=given.data, jobs=given.jobs)
            document = records.study(study, dict(zip(every, outcomes)), store)
            (given.records / "flagship").mkdir(parents=True, exist_ok=True)
            text = json.dumps(seals.sealed(document), indent=1) + "\n"
            (given.records / "flagship" / f"{stream}-{kind}.json").write_text(text)


def small_rows(stream: str, kind: str, seeds: list[int], memories: list[int] | None) -> dict[str, list[Experiment]]:
    settings, usual = SMALL[stream]
    return {
        f"{label}, M = {memory}": [made(row, stream=stream, memory=memory, seed=seed, **settings) for seed in seeds]
        for label, row in ROWS.get(kind, CANDIDATES | OTHERS).items()
        for memory in memories or usual
    }


def row(experiment: Experiment, kind: str = "") -> str:
    """The row it is a run of, in the words of the ablation if that is its kind."""
    same = dict(memory=policy(experiment.memory)[1], epochs=experiment.training.epochs, seed=experiment.seed)
    others = LESS | WITHOUT if kind == "ablation" else CANDIDATES | OUTER | REACH | NEWER | EARLIER
    rows = WHOLE | FIRST | others
    found = zip(rows, each(rows, **same))
    return next((label for label, one in found if replace(one, stream=experiment.stream) == experiment), "another")


def show(given: argparse.Namespace) -> None:
    """The mean of each row on record, best first."""
    for folder in [*sorted((given.records / "flagship").glob("*/")), *(given.records / of for of in STREAMS)]:
        found: dict[str, list[float]] = {}
        for path in sorted(folder.glob("*.json")):
            run = json.loads(path.read_text())
            experiment = Experiment.parse(run["experiment"])
            if (label := row(experiment, folder.name)) != "another":
                found.setdefault(f"{label}, M = {experiment.memory}", []).append(run["class_il"]["acc"])
        for label, values in sorted(found.items(), key=lambda pair: -fmean(pair[1])):
            print(f"{folder.name}: {label}: {fmean(values):.2f} ({', '.join(f'{value:.2f}' for value in values)})")


def standing(folder: Path = RESULTS / "flagship") -> dict[str, dict[str, float]]:
    """Held-out accuracies by row and stream, those of the default's candidates."""
    found: dict[str, dict[str, list[float]]] = {}
    for stream in SMALL:
        for label, run in json.loads((folder / f"{stream}-newer.json").read_text())["rows"].items():
            of = found.setdefault(label.rpartition(", M = ")[0], {})
            of.setdefault(stream, []).append(run["summary"]["class_il"]["acc"]["mean"])
    for path in sorted((folder / "longer").glob("*.json")):
        run = json.loads(path.read_text())
        experiment = Experiment.parse(run["experiment"])
        of = found.setdefault(row(experiment), {})
        of.setdefault(experiment.stream["of"], []).append(run["class_il"]["acc"])
    return {label: {stream: fmean(values) for stream, values in of.items()} for label, of in found.items()}


def choice(rows: dict[str, dict[str, float]], default: str) -> str:
    """The row that is to be the default, by what the first lines of this file lay down."""
    whole = {label: of for label, of in rows.items() if of.keys() == rows[default].keys()}
    best = max(whole, key=lambda label: fmean(whole[label].values()))
    gains = [rows[best][stream] - before for stream, before in rows[default].items()]
    return best if fmean(gains) >= GAIN and min(gains) >= -LOSS else default


def choose(given: argparse.Namespace) -> None:
    rows = standing(given.records / "flagship")
    for label, of in rows.items():
        mean = f"; mean {fmean(of.values()):.2f}" if of.keys() == rows["retain"].keys() else ""
        print(f"{label}: {', '.join(f'{s} {acc:.2f}' for s, acc in of.items())}{mean}")
    print(choice(rows, *SECOND))


def numbers(words: list[str] | None) -> list[int] | None:
    """`0-4` and `7` as seeds."""
    if words is None:
        return None
    spans = [word.split("-") for word in words]
    return [number for span in spans for number in range(int(span[0]), int(span[-1]) + 1)]


TESTS = {"final": final, "cifar100": cifar100}
GPU = TESTS | {"screen": screen, "ablation": ablation, "longer": longer}
OTHER = {"small": small, "show": show, "choose": choose}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=[*GPU, *OTHER])
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no more than fits into so many")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="the runs' own folders")
    parser.add_argument("--records", type=Path, default=RESULTS, help="where records are kept")
    parser.add_argument("--seeds", nargs="+", help="such as 0-4")
    parser.add_argument("--memory", type=int, nargs="+")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--only", default=ALL, metavar="PATTERN", help="rows whose whole label this matches")
    parser.add_argument("--stream", choices=list(SMALL), help="for `small`; all unless given")
    parser.add_argument("--on", choices=list(KINDS), help="for `small`; all unless given")
    parser.add_argument("--jobs", type=int, help="for `small`: processes")
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--pack", type=int, help="runs that share the GPU; as many as fit unless given")
    given = parser.parse_args()
    given.seeds = numbers(given.seeds)
    if len(given.what) > 1 and not GPU.keys() >= {*given.what}:
        parser.error("small, show and choose go alone")
    try:
        OTHER.get(given.what[0], on_gpu)(given)
    except EverlearnError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
