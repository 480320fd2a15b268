"""Studies: grids of experiments that answer a question. Built-in ones are functions; one's own is a small TOML file.

question = "does a larger memory help?"
seeds = 3                     # 5 unless given
[[grid]]                      # every combination of the lists; any setting of an experiment
method = ["er", "rer"]
memory = [50, 100]
stream = "digits"
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from everlearn.errors import BadInput, parsed, unknown
from everlearn.experiments import choosing
from everlearn.experiments.axes import axis
from everlearn.experiments.experiment import Experiment, settable
from everlearn.spec import KINDS, look_up

Grid = dict[str, Experiment]  # the experiment of each row of a table, by the row's label; its seed is 0
Rows = dict[str, list[Experiment]]  # the same, with an experiment for every seed
Overrides = Mapping[str, Any]

FAMILIES = {"er": "rer", "er-ace": "rer-ace", "der++": "rder"}  # a baseline and its relational version
SIX = tuple(itertools.chain(*FAMILIES.items()))
RULES = tuple(f"{base}+consolidate" for base in FAMILIES)  # beside the relational ones in every table
MOST = 20_000  # runs of a study, unless more are asked for
# The two bounds first and last; between them regularisation, gradient constraints, selection, rehearsal, relations.
LITERATURE = ("finetune", "oewc", "si", "lwf", "agem", "gem", "icarl", "gss", *SIX, "joint")
# Where the code behind the published tables leaves the method's own paper.
AS_PUBLISHED = ({"name": "lwf", "head": "all"}, {"name": "icarl", "reduction": "mean"})


class Study(NamedTuple):
    name: str
    question: str
    rows: Rows

    def here(self, only: Sequence[str], given: Overrides) -> Study:
        """A copy whose question also names the rows and the settings that were chosen on the command line."""
        changes = [*(f"only {words}" for words in only), *(f"{key} = {_shown(value)}" for key, value in given.items())]
        return self._replace(question=f"{self.question} (here: {', '.join(changes)})") if changes else self


def grid(given: Overrides = {}, label: str | None = None, **axes: Any) -> Grid:
    """Every combination of the axes given as lists, a row each, labelled by the method and what else varies."""
    axes = {key: list(v) if isinstance(v, (list, tuple)) else [v] for key, v in axes.items()}
    axes = {key: values for key, values in axes.items() if values != [None]}  # left to the table of defaults
    for key, values in axes.items():
        once: set[str] = set()
        for value in values:
            if str(value) in once:
                raise BadInput(f"{key} names {_shown(value)} twice; once is enough")
            once.add(str(value))
    varying = [key for key, values in axes.items() if len(values) > 1 and key not in ("method", "weighting")]
    said = {"method", "weighting", "seed", "stream", *(axes.keys() - {"epochs"} if label else varying)}
    for key in given:
        if key in said:
            raise BadInput(f"--set {key}: this study says itself what {key} is; --only chooses among its rows")
    rows: Grid = {}
    for combination in itertools.product(*axes.values()):
        chosen = dict(zip(axes, combination))
        specs = {key: chosen[key] for key in KINDS if key in chosen}
        able = settable(**specs)
        fitting = {key: value for key, value in given.items() if key in able}
        fitting |= {key: value for key, value in given.items() if key in ("data", "device")}
        row = Experiment.of(**chosen | fitting)
        keeps = look_up("method", row.method).thing.remembers
        parts = [
            f"{'M' if key == 'memory' else key} = {_shown(chosen[key])}" for key in varying if key != "memory" or keeps
        ]
        own = [_options(chosen[key]) for key in ("method", "weighting") if key in chosen]
        named = label or ", ".join([row.label + "".join(own), *parts])
        if rows.get(named, row) != row and not label:  # two classes of one name, in two files
            named = ", ".join([row.method.name + "".join(own), *parts])
        if rows.get(named, row) != row:  # what keeps no memory is the same at every size
            raise BadInput(f"two rows are called '{named}'; give their options different names, or leave one out")
        rows[named] = row
    return rows


def with_seeds(rows: Grid, seeds: int) -> Rows:
    """Each row with every seed from 0 on."""
    return {label: [replace(row, seed=seed) for seed in range(seeds)] for label, row in rows.items()}


def counted(runs: int, most: int) -> None:
    """Refuse more runs than somebody is likely to want, before they are written out."""
    if runs > most:
        raise BadInput(f"this is a study of {runs:,} runs, more than {most:,}; --max-runs {runs} allows it")


def _options(spec: Any) -> str:
    """The options a spec came with, for a row's label."""
    given = {key: value for key, value in spec.items() if key != "name"} if isinstance(spec, Mapping) else {}
    return f"({', '.join(f'{key} = {_shown(value)}' for key, value in given.items())})" if given else ""


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('name')}{_options(value)}"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, (list, tuple)) else str(value)


# The paper's tables. Its published figures (`published.py`) are under the same names and labels.
def table1(stream: str, given: Overrides) -> Grid:
    """All methods at three memory sizes. GEM and GSS were too slow for Tiny-ImageNet in the paper."""
    free = grid(given, stream=stream, method=("joint", "finetune", "oewc", "si", "lwf"))
    others = ("agem", "icarl") if stream == "tinyimagenet" else ("gem", "agem", "icarl", "gss")
    return free | grid(given, stream=stream, memory=(200, 500, 5120), method=(*others, *SIX, *RULES))


def paper(given: Overrides, **axes: Any) -> Grid:
    return grid(given, **{"stream": "cifar10"} | axes)


def all_methods(given: Overrides) -> Grid:
    """Every method of the literature beside the relational ones, each with its own defaults, and two as published."""
    return grid(given, stream="digits", method=(*LITERATURE, *AS_PUBLISHED))


def relation(given: Overrides, network: str = "mlp") -> Grid:
    """Does the relation help on Split-Digits? Baselines, both orders of update, the rule, the paper's other ways."""
    rows: Grid = {}
    for memory in (20, 50, 100):
        for base, relational in FAMILIES.items():
            common = dict(
                stream="digits",
                memory=memory,
                epochs=10,
                network=network,
                weights=[(1, 0.2, 0.5) if base == "der++" else (1, 1)],
            )
            for label, method, more in (
                (base, base, {}),
                (relational, relational, {}),
                (f"{relational} fresh", relational, dict(order="fresh")),
                *((f"{base}+{way}", f"{base}+{way}", {}) for way in ("consolidate", "split", "vanilla")),
            ):
                rows |= grid(given, f"{label}, M = {memory}", method=method, **common | more)
    return rows


def presets(given: Overrides) -> Grid:
    """The paper's preset weights or its released code's, Algorithm 1 as printed or the released code's order?"""
    rows: Grid = {}
    for method in ("rer", "rer-ace"):
        for new, memory in ((1, 0.5), (1, 1)):
            for order in ("printed", "fresh"):
                chosen = dict(method=method, stream="cifar10", memory=200, weights=[(new, memory)], order=order)
                rows |= grid(given, f"{method}, preset {new}, {memory}, {order}", **chosen)
    return rows


# What the released code does otherwise than the paper says: ER-ACE is halved, presets are 1, 1, the warm-up is an epoch
# longer, φ learns first, and RER-ACE's net not at all, for its weights are computed without a gradient.
RELEASED: Mapping[str, Overrides] = {
    "er-ace": {"weights": [(0.5, 0.5)]},
    "rer": {"weights": [(1, 1)], "order": "fresh", "warmup": 26},
    "rer-ace": {"weights": [(1, 1)], "rrn_lr": 1e-9, "warmup": 26},
    "rder": {"order": "fresh", "warmup": 26},
}


def released(stream: str, given: Overrides) -> Grid:
    """The methods of which the authors' released code departs from the paper, as it has them."""
    rows: Grid = {}
    for memory in (50, 100, 200, 500, 5120):
        for method, settings in RELEASED.items():
            label = f"{method}, as released, M = {memory}"
            rows |= grid(given, label, method=method, stream=stream, memory=memory, **settings)
    return rows


# Weights of the baselines, and on small networks preset ones of what is compared with them.
OWN = {"er": (1, 1), "der++": (1, 0.2, 0.5)}
WAYS = ("balanced", "averaged", "normalised", "consolidate", "annealed")


# Methods, and the baseline each is compared with. PHASE asks whether a gain comes from the weights that the relation
# learns or from having a phase after the warm-up at all. Beside the relation it has three variants of it, with another
# outer batch, with one weight for all rows, and without its effect on the size of the step; then two rules that learn
# nothing, to rehearse alone and to take smaller steps. OUTER asks which loss the weights should lower.
PHASE = {m: base for base in OWN for m in (base, FAMILIES[base], *(f"{base}+{way}" for way in WAYS))}
OUTER = dict.fromkeys(("der++", "rder", "der+++labelled", "der+++consolidate"), "der++")
# Here the net weighs the new samples' terms alone; those of the memory keep their fixed weights.
OPTIONS: Overrides = {
    "rder, new alone": {"method": "rder", "learned": "new"},
    "der+++labelled, new alone": {"method": "der+++labelled", "learned": "new"},
    "der+++labelled, new alone and in proportion": {"method": "der+++labelled", "learned": "new", "outer_new": True},
}
ALONE = dict.fromkeys((*OUTER, *OPTIONS), "der++")


def beside(
    methods: Mapping[str, str],
    stream: str,
    network: str | None,
    memories: Sequence[int],
    epochs: int,
    weights: Overrides,
    given: Overrides,
) -> Grid:
    """Methods, or what OPTIONS has under their names, on a stream, at the weights of their baselines."""
    rows: Grid = {}
    for memory in memories:
        for label, base in methods.items():
            chosen = dict(method=label, stream=stream, memory=memory, epochs=epochs, network=network)
            chosen |= OPTIONS.get(label, {})
            rows |= grid(given, f"{label}, M = {memory}", weights=[weights.get(base)], **chosen)
    return rows


# Two classes to learn first, then two that resemble them or two that do not. CIFAR-10's are the paper's.
SIMILARITY = {
    "cifar10": (("ship", "truck"), ("airplane", "automobile"), ("cat", "horse"), dict(memory=200, epochs=50)),
    "digits": (("3", "4"), ("8", "9"), ("0", "6"), dict(memory=20, epochs=10)),
    "fashion-mnist": (("Pullover", "Sneaker"), ("Coat", "Sandal"), ("Trouser", "Bag"), dict(memory=50, epochs=2)),
}


def similarity(stream: str, given: Overrides) -> Grid:
    """How does the likeness of tasks affect them? Setup 1: the second task is like the first. Setup 2: it is not."""
    first, like, unlike, settings = SIMILARITY[stream]
    rows: Grid = {}
    for method in ("er", "rer", "er+consolidate"):
        for number, second in ((1, like), (2, unlike)):
            label = f"{method}, setup {number} ({', '.join(second)} after {', '.join(first)})"
            chosen = dict(classes=[first + second], tasks=2, weights=[(1, 1)], **settings)
            rows |= grid(given, label, method=method, stream=stream, **chosen)
    return rows


def demo(seeds: int) -> Rows:
    """Forgetting and its cure, on Split-Digits."""
    each = (m for base, own in FAMILIES.items() for m in (base, own, f"{base}+consolidate"))
    return with_seeds(grid(stream="digits", memory=20, epochs=10, method=("finetune", *each, "joint")), seeds)


Make = Callable[[Overrides], Grid]
CIFAR = "on CIFAR-10"
QUICK = (  # a name, seeds, what `beside` is given, and words for it
    ("cifar10-cnn", 5, ("cifar10", "cnn", (200,), 2, OWN), f"A small CNN, 2 epochs, memory 200 {CIFAR}"),
    ("fashion-mnist", 5, ("fashion-mnist", "mlp", (50, 200, 1000), 5, OWN), "Fashion-MNIST, three memory sizes"),
)
STUDIES: dict[str, tuple[int, Make, str]] = {  # seeds by default, rows, question
    "table1-cifar10": (5, partial(table1, "cifar10"), f"Table 1: all methods {CIFAR}, memory 200, 500 and 5120"),
    "table1-tinyimagenet": (5, partial(table1, "tinyimagenet"), "Table 1: all methods on Tiny-ImageNet"),
    "table2-cifar100": (
        5,
        partial(paper, stream="cifar100", memory=(100, 200, 500, 5120), method=(*SIX, *RULES)),
        "Table 2: three baselines and their relational versions on CIFAR-100",
    ),
    "table3-vanilla": (
        5,
        partial(paper, memory=(200, 500, 5120), method=("der++", "rder", "der+++vanilla", "der+++consolidate")),
        f"Table 3: is the bi-level step needed? {CIFAR}",
    ),
    "table4-split": (
        5,
        partial(paper, memory=(200, 500, 5120), method=("der++", "rder", "der+++split", "der+++consolidate")),
        f"Table 4: should the outer loss have memory of its own? {CIFAR}",
    ),
    "table5-small-memory": (
        5,
        partial(paper, memory=(50, 100), method=(*SIX, *RULES)),
        f"Table 5: small memories {CIFAR}",
    ),
    "table6-warmup": (
        5,
        partial(paper, memory=(50, 200, 500), method="rder", warmup=(17, 25, 33)),
        f"Table 6: how long a warm-up? {CIFAR}",
    ),
    "table7-interval": (
        5,
        partial(paper, memory=(50, 200, 500), method="rder", interval=(1, 5, 10)),
        f"Table 7: how often should the relation learn? {CIFAR}",
    ),
    "similarity": (10, partial(similarity, "cifar10"), f"does it matter whether tasks are alike? Two tasks {CIFAR}"),
    "digits": (10, all_methods, "fifteen methods on Split-Digits, memory 100, 5 epochs"),
    "presets-cifar10": (3, presets, f"which preset weights, which order of the two updates? Memory 200 {CIFAR}"),
    **{
        f"released-{stream}": (
            3,
            partial(released, stream),
            f"what does the authors' released code give? Memory 50 to 5120 on {title}",
        )
        for stream, title in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100"))
    },
    **{
        f"phase-{name}": (seeds, partial(beside, PHASE, *settings), f"is it the relation or the phase? {words}")
        for name, seeds, settings, words in (
            ("cifar10", 5, ("cifar10", None, (200,), 50, {}), f"Memory 200 {CIFAR}"),
            ("digits", 10, ("digits", None, (20, 50), 10, OWN), "Split-Digits, memory 20 and 50"),
            ("digits-cnn", 10, ("digits", "cnn", (20, 50), 10, OWN), "Split-Digits with a CNN"),
            *QUICK,
        )
    },
    **{
        f"outer-{name}": (
            seeds,
            partial(beside, OUTER, *settings),
            f"should the outer loss be on labels alone? {words}",
        )
        for name, seeds, settings, words in (
            ("cifar10", 5, ("cifar10", None, (200, 500), 50, {}), f"Memory 200 and 500 {CIFAR}"),
            ("digits", 10, ("digits", None, (20, 50, 100, 200), 10, OWN), "Split-Digits, memory 20 to 200"),
            ("cifar100-cnn", 5, ("cifar100", "cnn", (200, 500), 2, OWN), "A small CNN, 2 epochs, on CIFAR-100"),
            *QUICK,
        )
    },
    **{
        f"alone-{name}": (seeds, partial(beside, ALONE, *settings), f"should the net weigh new samples alone? {words}")
        for name, seeds, settings, words in (
            ("cifar10", 5, ("cifar10", None, (200,), 50, {}), f"Memory 200 {CIFAR}"),
            ("digits", 10, ("digits", None, (20, 50, 100, 200), 10, OWN), "Split-Digits, memory 20 to 200"),
            *QUICK,
        )
    },
    "relation-digits": (10, relation, "relational methods on Split-Digits, MLP, memory 20, 50 and 100"),
    "relation-digits-cnn": (10, partial(relation, network="cnn"), "the same with a CNN"),
    **{
        f"similarity-{stream}": (
            10,
            partial(similarity, stream),
            f"does it matter whether tasks are alike? Two tasks of {stream}",
        )
        for stream in ("digits", "fashion-mnist")
    },
}


def study(
    name: str, seeds: int | None = None, only: Sequence[str] = (), given: Overrides = {}, most: int = MOST
) -> Study:
    """A built-in study or a TOML file's.

    `only` keeps rows whose label has one of these words; `given` are settings for every run that has them. Of more
    than `most` runs it is refused.
    """
    if name.endswith(".toml"):
        question, usual, rows = read(path := Path(name), seeds, given, most)
        name = str(path)
    elif name in STUDIES:
        usual, make, question = STUDIES[name]
        rows = make(given)
    elif Path(name).is_file():
        raise BadInput(f"{name} is a file that does not end in .toml, as a study of one's own does")
    else:
        raise unknown("study", name, STUDIES)
    rows = {label: rows[label] for label in choosing.chosen(rows, only, f" of {name}")}
    counted(len(rows) * (seeds := usual if seeds is None else seeds), most)
    known = set().union(*map(_settable, rows.values()))
    for key in given:
        if key not in known:
            raise unknown(f"setting of the methods in {name}", key, sorted(known))
    return Study(name, question, with_seeds(rows, seeds))


def _settable(experiment: Experiment) -> set[str]:
    specs = experiment.method, experiment.weighting, experiment.stream.at or experiment.stream.name, experiment.network
    return {"data", "device", *settable(*specs)}


def read(path: Path, seeds: int | None, given: Overrides, most: int) -> tuple[str, int, Grid]:
    """The question, the number of seeds and the rows of a user's own study."""
    try:
        document = parsed(path.read_text("utf-8"), tomllib.loads)
    except OSError as error:
        raise BadInput(f"cannot read the study {path}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path} is not TOML: {error}") from None
    for key in document:
        if key not in (known := ("question", "seeds", "grid")):
            raise unknown(f"key in {path}", key, known)
    grids = document.get("grid")
    if not isinstance(grids, list) or not all(isinstance(axes, dict) and axes.get("method") for axes in grids or [0]):
        raise BadInput(f"{path} has no [[grid]] with a method; see everlearn study --help")
    seeds = document.get("seeds", 5) if seeds is None else seeds
    if type(seeds) is not int or seeds < 1:
        raise BadInput(f"seeds {seeds} in {path} must be a whole number from 1 up")
    crossed = [{key: axis(path, key, value) for key, value in axes.items()} for axes in grids]
    counted(seeds * sum(math.prod(len(v) for v in axes.values() if isinstance(v, list)) for axes in crossed), most)
    rows: Grid = {}
    labels: dict[Experiment, str] = {}
    for label, row in itertools.chain.from_iterable(grid(given, **axes).items() for axes in crossed):
        if label in rows:
            raise BadInput(f"{path} has two rows '{label}'; put what tells them apart into one grid, as a list")
        if (other := labels.setdefault(row, label)) != label:
            raise BadInput(f"{path} has one experiment in two rows, '{other}' and '{label}'; leave one out")
        rows[label] = row
    return str(document.get("question", path.stem)), seeds, rows
