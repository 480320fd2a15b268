"""An experiment: every setting of one run, resolved, checked and hashable; and the defaults it starts from."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from everlearn import checks
from everlearn.data import streams
from everlearn.errors import BadInput, unknown
from everlearn.core.theta import PRECISIONS, check_forward
from everlearn.methods import ER, ERACE, METHODS, DERpp, Method
from everlearn.networks import NETWORKS
from everlearn.weightings import (
    Annealed,
    Averaged,
    Balanced,
    Consolidate,
    EndToEnd,
    Labelled,
    Normalised,
    Relation,
    Split,
)
from everlearn.core.terms import Fixed, Weighting

FORMAT = 1  # part of the hash: raised when the same settings come to mean another run


@dataclass(frozen=True)
class Recipe:
    """A name on the command line: a method and the weighting of its terms."""

    method: type[Method]
    weighting: type[Weighting] = Fixed

    def options(self) -> dict[str, inspect.Parameter]:
        """What can be set beyond an experiment's own fields: the constructors' parameters."""
        return {
            name: parameter
            for part in (self.method, self.weighting)
            for name, parameter in inspect.signature(part).parameters.items()
            if name != "weighting"
        }

    def summary(self) -> str:
        """One line on the method, and one on the weighting if it is not plain."""
        if self.weighting is Fixed:
            return self.description().splitlines()[0]
        weighting = inspect.getdoc(self.weighting).splitlines()[0]
        return f"{self.method.__name__} weighed by {self.weighting.__name__}: {weighting}"

    def description(self) -> str:
        """The equation and the departures, in the words of the method's file and the weighting's class."""
        method = inspect.getdoc(inspect.getmodule(self.method))
        if self.weighting is Fixed:
            return method
        return f"{method}\n\nWeighed by {self.weighting.__name__}. {inspect.getdoc(self.weighting)}"

    def build(self, options: Mapping[str, Any]) -> Method:
        chosen = lambda part: {name: options[name] for name in inspect.signature(part).parameters if name in options}
        return self.method(weighting=self.weighting(**chosen(self.weighting)), **chosen(self.method))


WAYS: dict[str, type[Weighting]] = {
    **{"consolidate": Consolidate, "vanilla": EndToEnd, "split": Split},
    **{"balanced": Balanced, "averaged": Averaged, "normalised": Normalised, "annealed": Annealed},
}
RECIPES: dict[str, Recipe] = (
    {name: Recipe(method) for name, method in METHODS.items()}
    | {"rer": Recipe(ER, Relation), "rer-ace": Recipe(ERACE, Relation), "rder": Recipe(DERpp, Relation)}
    | {
        f"{name}+{suffix}": Recipe(METHODS[name], weighting)
        for name in ("er", "er-ace", "der++")
        for suffix, weighting in WAYS.items()
    }
    | {"der+++labelled": Recipe(DERpp, Labelled)}  # of the others the outer loss is on labels anyway
)

# Method, stream and smallest memory a row speaks for; a later row outweighs an earlier one. The rows of CIFAR and
# Tiny-ImageNet and the weights are the published settings; those of the smaller streams are ours.
DEFAULTS: list[tuple[str, str, int, dict[str, Any]]] = [
    (
        "*",
        "*",
        0,
        dict(
            memory=200,
            epochs=5,
            batch=32,
            lr=0.03,
            momentum=0.0,
            weight_decay=0.0,
            forward="separate",
            precision="float32",
        ),
    ),
    ("*", "digits", 0, dict(memory=100, batch=10, lr=0.1)),
    ("*", "mnist", 0, dict(epochs=2)),
    ("*", "fashion-mnist", 0, dict(epochs=2)),
    ("*", "cifar*", 0, dict(epochs=50)),
    ("*", "tinyimagenet", 0, dict(epochs=50)),
    *((bound, stream, 0, dict(lr=0.1)) for bound in ("finetune", "joint") for stream in ("cifar*", "tinyimagenet")),
    ("er", "*", 0, dict(weights=(1.0, 1.0))),
    ("er-ace", "*", 0, dict(weights=(1.0, 1.0))),
    ("gss", "*", 0, dict(weights=(1.0, 1.0))),
    ("der", "*", 0, dict(weights=(1.0, 0.3))),
    ("der++", "*", 0, dict(weights=(1.0, 0.2, 0.5))),
    ("der++", "cifar10", 0, dict(weights=(1.0, 0.1, 0.5))),
    ("der++", "cifar10", 500, dict(weights=(1.0, 0.2, 0.5))),
    ("der++", "cifar10", 5120, dict(weights=(1.0, 0.1, 1.0))),
    ("oewc", "tinyimagenet", 0, dict(strength=25.0)),
    ("lwf", "*", 0, dict(weights=(1.0, 1.0))),
    ("lwf", "cifar10", 0, dict(weights=(1.0, 3.0))),
    *(("icarl", stream, 0, dict(lr=0.1, weight_decay=1e-5)) for stream in ("cifar*", "tinyimagenet")),
    *(("lwf", stream, 0, dict(lr=0.01, weight_decay=5e-4)) for stream in ("cifar*", "tinyimagenet")),
    # Preset weights of the relational ones, and of what they are compared with: the paper's appendix.
    ("rer", "*", 0, dict(weights=(1.0, 0.5))),
    ("rer-ace", "*", 0, dict(weights=(1.0, 0.5))),
    ("er+*", "*", 0, dict(weights=(1.0, 0.5))),
    ("er-ace+*", "*", 0, dict(weights=(1.0, 0.5))),
    ("rder", "*", 0, dict(weights=(1.0, 0.2, 0.5))),
    ("der+++*", "*", 0, dict(weights=(1.0, 0.2, 0.5))),
]


_advice: ContextVar[Mapping[str, str]] = ContextVar("advice", default={})


@contextlib.contextmanager
def advising(**precisions: str) -> Iterator[None]:
    """Inside, a network's precision is the one given by its name, unless an experiment is told another."""
    token = _advice.set(precisions)
    try:
        yield
    finally:
        _advice.reset(token)


def defaults(method: str, stream: str, memory: int | None = None) -> dict[str, Any]:
    """The table's settings for a method on a stream, at a memory size (the stream's own unless given)."""
    merged: dict[str, Any] = {}
    for of_method, of_stream, from_memory, settings in DEFAULTS:
        if fnmatchcase(method, of_method) and fnmatchcase(stream, of_stream):
            if from_memory <= (memory or merged.get("memory", 0)):
                merged |= settings
    return merged


@dataclass(frozen=True)
class Experiment:
    """Build one with `Experiment.of`, which fills in what is not given and checks the rest."""

    method: str
    stream: str
    memory: int  # 0 where the method keeps none
    epochs: int
    seed: int
    tasks: int | None  # None: as the data suggest
    classes: tuple[str, ...] | None  # kept, in this order
    shuffle: int | None  # seed of a random class order
    network: str | None  # None: as the data suggest
    batch: int
    lr: float
    momentum: float
    weight_decay: float
    forward: str
    precision: str
    content: str | None = None  # fingerprint of one's own data: other images, another experiment
    options: tuple[tuple[str, Any], ...] = ()  # of the method and its weighting

    @classmethod
    def of(cls, /, method: str, stream: str = "digits", **given: Any) -> Experiment:
        """An experiment from what is given (strings are read as the setting's type) and the table of defaults."""
        kinds, known = settable(method), streams.setting(stream)
        options = RECIPES[method].options()
        settings = {"seed": 0, "tasks": None, "classes": None, "shuffle": None}
        given = {key: value for key, value in given.items() if value is not None}
        for key in given:
            if key not in kinds:
                raise unknown(f"setting of {method}", key, kinds)
        given = {key: _read(key, value, kinds[key]) for key, value in given.items()}
        content = streams.fingerprint(stream)
        settings |= {"network": given.get("network") or streams.usual_network(stream, content)}
        settings |= defaults(method, stream, given.get("memory")) | given
        if "precision" not in given and (advice := _advice.get().get(settings["network"])):
            settings["precision"] = advice
        if settings["network"] is not None and settings["network"] not in NETWORKS:
            raise unknown("network", settings["network"], NETWORKS)
        recipe = RECIPES[method]
        if not recipe.method.remembers:
            settings["memory"] = 0
        elif settings["memory"] < 1:
            raise BadInput(
                f"memory {settings['memory']} holds nothing; {method} needs at least 1 (the usual sizes are 200 to 5120)"
            )
        checks.numbers(**{key: settings[key] for key in ("epochs", "batch", "lr", "momentum", "weight_decay", "seed")})
        check_forward(settings["forward"])
        if settings["precision"] not in PRECISIONS:
            raise unknown("precision", settings["precision"], PRECISIONS)
        if known and settings["tasks"] is None and settings["classes"] is None:
            settings["tasks"] = known.tasks
        # Written out, so that a record says it.
        schedule = {"warmup": settings["epochs"] // 2, "interval": max(1, settings["epochs"] // 10)}
        settings = {name: value for name, value in schedule.items() if name in options} | settings
        chosen = tuple((name, settings.get(name, parameter.default)) for name, parameter in sorted(options.items()))
        experiment = cls(method, stream, **{name: settings[name] for name in OWN}, content=content, options=chosen)
        built = experiment.build()  # what the method and its weighting refuse, they refuse now
        built.weighting.check(built)
        return experiment

    @classmethod
    def read(cls, document: dict) -> Experiment:
        """The experiment a document describes; what it does not say, or left open, is as in the table of defaults."""
        settings = {key: value for key, value in document.items() if key not in ("content", "options")}
        if "object" in document["options"] or " " in (document["network"] or ""):
            raise BadInput("the record is of a method or network object; only the script that made it can run it again")
        experiment = cls.of(**settings, **document["options"])
        if experiment.content != document["content"]:
            what = "is not there" if experiment.content is None else "has changed since"
            raise BadInput(f"{experiment.stream}, which this record was made from, {what}")
        return experiment

    def build(self) -> Method:
        """The method, with its weighting, as this experiment wants it."""
        return RECIPES[self.method].build(dict(self.options))

    def document(self) -> dict[str, Any]:
        """All settings as plain data, as they are written down and read back."""
        return json.loads(json.dumps({**asdict(self), "options": dict(self.options)}))

    @property
    def hash(self) -> str:
        text = json.dumps([FORMAT, self.document()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """The run's folder: what a person looks for, then the hash that makes it unique."""
        stream = "".join(c if c.isalnum() or c in ".-" else "_" for c in self.stream)[-40:]
        size = f"-m{self.memory}" if self.memory else ""
        return f"{stream}-{self.method}{size}-e{self.epochs}-s{self.seed}-{self.hash[:8]}"


OWN = {f.name: f.type for f in fields(Experiment) if f.name not in ("method", "stream", "content", "options")}


def settable(method: str) -> dict[str, str]:
    """What can be set of an experiment with this method, and its type."""
    if method not in RECIPES:
        raise unknown("method", method, RECIPES)
    return OWN | {name: str(parameter.annotation) for name, parameter in RECIPES[method].options().items()}


def _read(key: str, value: Any, kind: str) -> Any:
    """A setting as its type; a string is what came from the command line."""
    kind = kind.removesuffix(" | None")
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    try:
        if isinstance(value, bool):
            raise ValueError
        if kind == "int":
            if isinstance(value, float) and not value.is_integer():
                raise ValueError
            return int(value)
        if kind == "float":
            return float(value)
        if kind == "Sequence[float]":
            return tuple(float(word) for word in words)
        if kind == "tuple[str, ...]":
            return tuple(str(word) for word in words)
        return str(value)
    except (ValueError, TypeError):
        wanted = {"int": "a whole number", "float": "a number", "Sequence[float]": "numbers with commas between"}
        raise BadInput(f"{key} '{value}' is not {wanted.get(kind, 'a list with commas between')}") from None
