"""What could be changed about `retain`? Candidates at memory 500, on held-out images, with several averages at once.

python docs/candidates.py --data DIR [--stream cifar10 cifar100] [--epochs 20] [--seeds 100 101] [--only PATTERN]

Without refreshing, an average of the network is only tested, never trained on: so one training tells how far back the
average should reach. Refreshed logits are those of the average over half a task. A record of each is kept in
results/flagship/candidates, with the accuracies of every average. They are read in two ways: by the network's head,
and by the nearest mean of each class's samples in the memory.
"""

import argparse
import json
import re
from functools import partial
from pathlib import Path

import torch
from reproduce import DEVICE, PRECISION, RESULTS, ROOT, write
from torch import Tensor

from everlearn import Average
from everlearn.data import Stream
from everlearn.experiments.experiment import Experiment, load
from everlearn.experiments.run import Run, Steps
from everlearn.experiments.store import Store
from everlearn.experiments.tune import chosen_on
from everlearn.launchers import Job
from everlearn.launchers.local import pack_up
from everlearn.learner import Learner

FOLDER = RESULTS / "flagship" / "candidates"
METHOD = f"{ROOT / 'docs' / 'tried.py'}:Tried"
USUAL = "half"  # of a task: the average that is tested


BALANCED, REFRESHED = dict(memory="balanced:500"), dict(refresh=True)
CANDIDATES = {
    "retain": {},
    "retain, refreshed": REFRESHED,
    "retain, own samples refreshed": REFRESHED | dict(refresh_older=False),
    "retain, twice the rule": dict(by_heart=600.0),
    "retain, begun as the average": dict(restart=True),
    "retain, balanced": BALANCED,
    "retain, refreshed, twice the rule": REFRESHED | dict(by_heart=600.0),
    "retain, refreshed, balanced": REFRESHED | BALANCED,
}


def experiments(given: argparse.Namespace) -> list[Experiment]:
    """The first seed of all before the second of any."""
    settings = dict(average="task", network=given.network, precision=given.precision, epochs=given.epochs)
    return [
        chosen_on(
            Experiment.of(f"{ROOT / 'docs' / 'tried.py'}:Tried", stream, seed=seed, **{"memory": 500} | row | settings)
        )
        for seed in given.seeds
        for stream in given.stream
        for label, row in CANDIDATES.items()
        if re.fullmatch(given.only, f"{stream}: {label}")
    ]


def label(experiment: Experiment) -> str:
    """The candidate it is a run of."""
    usual = dict(by_heart=300.0, restart=False, refresh=False, refresh_older=True, memory=500)  # a Tried's
    own = usual | dict(experiment.method.options) | {"memory": experiment.memory}
    return next(name for name, row in CANDIDATES.items() if usual | row == {key: own[key] for key in usual})


def by_head(learner: Learner, x: Tensor) -> Tensor:
    return learner.logits(x).argmax(dim=1)


def by_means(learner: Learner, x: Tensor) -> Tensor:
    """The class whose samples in the memory have the nearest mean, by the angle between features (iCaRL's reading)."""
    directions = partial(torch.nn.functional.normalize, dim=1)
    held, y = learner.memory.held()
    classes, features = y.unique(), directions(learner.features(held))
    means = directions(torch.stack([features[y == c].mean(dim=0) for c in classes]))
    return classes[(directions(learner.features(x)) @ means.T).argmax(dim=1)]


@torch.no_grad()
def read(learner: Learner, stream: Stream) -> dict[str, dict[str, list[float]]]:
    """The accuracy on each task, in %, of every average, in both ways."""
    own, found = learner.sgd.average, {}
    others = vars(learner.method)["others"]  # a Tried's
    right = lambda guess, y: 100 * float((guess == y.to(guess.device)).double().mean())
    for name, average in {USUAL: own, "none": Average(0.0), **others}.items():
        learner.sgd.average = average
        found[name] = {
            way: [right(guess(learner, task.test[0]), task.test[1]) for task in stream if task.test]
            for way, guess in {"head": by_head, "means": by_means}.items()
        }
    learner.sgd.average = own
    return found


class Reading(Job):
    """Each run is read in every way, and written down when it ends."""

    def steps(self, experiment: Experiment, report=None) -> Steps:
        run = Run(experiment, load(experiment.stream, self.data), self.device)
        result = yield from run.steps()
        read_as = read(run.learner, run.stream)
        write(experiment, FOLDER, result | {"averages": read_as}, 1)
        shown = {name: {way: round(sum(of) / len(of), 2) for way, of in ways.items()} for name, ways in read_as.items()}
        print(f"{experiment.name} {label(experiment)}: {json.dumps(shown)}, {result['seconds']:.0f} s", flush=True)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--stream", nargs="+", default=["cifar10"])
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--only", default=".*", metavar="PATTERN", help="such as 'cifar10: retain'")
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--precision", default=PRECISION)
    parser.add_argument("--pack", type=int, default=5, help="runs that share the GPU")
    given = parser.parse_args()
    todo = [e for e in experiments(given) if not (FOLDER / f"{e.name}.json").exists()]
    print(f"{len(todo)} to run", flush=True)
    for experiment, error in pack_up(todo, Reading(Store(), given.device, given.data), lambda *_: None, given.pack):
        if error is not None:
            print(f"{experiment.name}: {error}", flush=True)


if __name__ == "__main__":
    main()
