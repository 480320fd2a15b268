"""An experiment: every setting of one run, resolved, checked and hashable."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from everlearn import checks, networks, registry
from everlearn.arguments import checked
from everlearn.core.ledger import policy
from everlearn.core.seeding import seeded
from everlearn.data import Stream, sources, streams
from everlearn.errors import MALFORMED, BadInput, number, unknown
from everlearn.experiments import legacy
from everlearn.experiments.defaults import defaults
from everlearn.methods.base import Method
from everlearn.spec import KINDS, Found, Spec, frozen, look_up, options_of, read_as, unsaid
from everlearn.training import Training
from everlearn.weightings.base import weights_of

FORMAT = 2  # part of the hash: raised when the same settings come to mean another run
TRAINING: dict[str, Any] = typing.get_type_hints(Training)
OWN = {"memory": int, "seed": int}


class NoDocument(BadInput):
    """What should describe an experiment does not."""


@checked
@dataclass(frozen=True)
class Experiment:
    """Build one with `Experiment.of`, which fills in what is not given and checks the rest."""

    method: Spec
    weighting: Spec
    stream: Spec
    network: Spec | None  # None: it depends on the data, which are not here
    training: Training
    memory: int | str  # rows, 0 where the method keeps none; `balanced:500` where classes share them equally
    seed: int

    @classmethod
    def of(
        cls,
        /,
        method: Any = "er",
        stream: Any = "digits",
        *,
        weighting: Any = None,
        network: Any = None,
        data: Path | str | None = None,
        device: str = "auto",
        **given: Any,
    ) -> Experiment:
        """An experiment from what is given and the table of defaults.

        `method`, `weighting`, `stream` and `network` are names, `module:attr`, `file.py:attr`, classes, objects, or
        tables of a name and options. All else is a setting of the training or an option of one of these, by its name.
        An option that two of them have is named such as `weighting.hidden`. Strings are read as the setting's type.
        """
        method, weighting = _weighed(method, weighting)
        if given.get("memory") is not None:
            rule, given["memory"] = policy(given["memory"])
        else:
            rule = "reservoir"
        found = {"method": look_up("method", method), "weighting": look_up("weighting", weighting)}
        found["stream"] = _data(stream, data)
        source = found["stream"]
        if network is None:
            shape = lambda: _shape(source, given, data)
            network = streams.usual_network(source.at or source.name, source.source, shape)
        found |= {"network": look_up("network", network)} if network is not None else {}
        kinds = {kind: {key: p.annotation for key, p in _options(kind, one).items()} for kind, one in found.items()}
        owners = _owners(kinds)
        settings: dict[tuple[str, str], Any] = {}
        usual = defaults(found["method"].name, found["weighting"].name, source.name, _memory(given))
        for key, value in usual.items():
            settings |= dict.fromkeys(owners.get(key, [])[:1], value)
        for kind, one in found.items():
            for key, value in one.given.items():
                if key not in kinds[kind]:
                    raise unknown(f"option of {one.name}", key, kinds[kind])
                settings[kind, key] = read_as(key, value, kinds[kind][key])
        named = " × ".join(found[kind].name for kind in ("method", "weighting") if found[kind].name != "fixed")
        for key, value in given.items():
            if value is not None:
                kind, key = _owner(key, owners, named)
                if found.get(kind) and key in found[kind].given:
                    raise BadInput(f"{key} is given twice, with {found[kind].name} and on its own; once is enough")
                settings[kind, key] = read_as(key, value, {**kinds, "training": TRAINING, "": OWN}[kind][key])
        return _resolved(cls, found, kinds, settings, device, rule)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Experiment:
        """The experiment a document describes, as it was written down: what it names need not be here."""
        try:
            if legacy.is_old(document):
                return cls.of(**legacy.settings(document))
            if more := document.keys() - cls.__dataclass_fields__.keys():  # of a later version, say: another experiment
                raise unknown("setting of an experiment", min(more), cls.__dataclass_fields__)
            method, weighting, stream = (Spec.parse(document[kind]) for kind in ("method", "weighting", "stream"))
            network, training = document["network"], Training(**document["training"])
            rows = document["memory"]
            numbers = rows if isinstance(rows, str) and policy(rows) else int(rows), int(document["seed"])
            number("seed", numbers[1], whole=True)
            return cls(method, weighting, stream, network and Spec.parse(network), training, *numbers)
        except MALFORMED as error:
            if isinstance(error, BadInput) and not str(error).startswith(("name must", "source must", "at must")):
                raise
            raise NoDocument("this is not the document of an experiment; a result has it under 'experiment'") from None

    @classmethod
    def read(cls, document: Mapping[str, Any], data: Path | str | None = None) -> Experiment:
        """The experiment a document describes, if all it names is here and unchanged: then it can be run again."""
        experiment = cls.parse(document)
        unplaced = any(spec.get("object") and not spec.at for spec in (experiment.method, experiment.weighting))
        if unplaced or (experiment.network and " " in experiment.network.name):
            what = "an object made in a function or at a prompt" if unplaced else "a network object"
            raise BadInput(f"the record is of {what}; only the script that made it can run it again")
        experiment.build()
        place = experiment.stream.at or experiment.stream.name
        now = _data(place if built_in(place) else experiment.stream, data).source
        if now != (document.get("content") if legacy.is_old(document) else experiment.stream.source):
            what = "is not there, or is not what it was" if now is None else "has changed since"
            raise BadInput(f"{experiment.stream.name}, which this record was made from, {what}")
        return experiment

    def build(self) -> Method:
        """The method, with its weighting, as this experiment wants it. What it draws when it is made is the seed's."""
        with seeded(self.seed):
            return _built("method", self.method, weighting=_built("weighting", self.weighting))

    def with_options(self, kind: str, **options: Any) -> Experiment:
        """A copy with other options of its method, weighting, stream or network."""
        if kind not in registry.BUILT_IN or getattr(self, kind, None) is None:
            raise unknown("part of this experiment", kind, KINDS)
        spec = getattr(self, kind)
        merged = tuple(sorted((dict(spec.options) | {key: frozen(value) for key, value in options.items()}).items()))
        return replace(self, **{kind: replace(spec, options=merged)})

    def document(self) -> dict[str, Any]:
        """All settings as plain data, as they are written down and read back."""
        named = {kind: spec and spec.document() for kind, spec in self.specs().items()}
        return {**named, "training": self._training(), "memory": self.memory, "seed": self.seed}

    def specs(self) -> dict[str, Spec | None]:
        """Its method, weighting, stream and network."""
        return {kind: getattr(self, kind) for kind in KINDS}

    def settings(self) -> dict[str, Any]:
        """All settings side by side, by the names they are set by."""
        flat: dict[str, Any] = {
            "method": self.method.name,
            "weighting": self.weighting.name,
            "stream": self.stream.name,
        }
        flat |= {"network": self.network and self.network.name, "memory": self.memory, "seed": self.seed}
        flat |= self._training()
        for kind in ("stream", "method", "weighting", "network"):
            spec = getattr(self, kind)
            for key, value in (_changed(kind, spec.name) | dict(spec.options)).items() if spec else ():
                flat[f"{kind}.{key}" if key in flat else key] = value
        return flat

    def _training(self) -> dict[str, Any]:
        """Its settings. An average came later: where there is none, older runs keep their hashes."""
        return {key: value for key, value in asdict(self.training).items() if (key, value) != ("average", None)}

    @property
    def label(self) -> str:
        """The method and its weighting in a word: `er`, `rer`, `er+consolidate`."""
        if (self.method.name, self.weighting.name) in registry.ALIASES.values():
            return next(name for name, of in registry.ALIASES.items() if of == (self.method.name, self.weighting.name))
        plain = self.weighting.name == "fixed"
        return self.method.label if plain else f"{self.method.label}+{self.weighting.label}"

    @functools.cached_property
    def hash(self) -> str:
        """The hash of all settings. Where a user's file lies is not one of them."""
        known = {kind: spec.words if spec else "null" for kind, spec in self.specs().items()}
        known["training"] = json.dumps(self._training(), sort_keys=True)
        known |= {"memory": json.dumps(self.memory), "seed": json.dumps(self.seed)}
        text = ", ".join(f'"{key}": {known[key]}' for key in sorted(known))
        return hashlib.sha256(f"[{FORMAT}, {{{text}}}]".encode()).hexdigest()

    @functools.cached_property
    def name(self) -> str:
        """The run's folder: what a person looks for, then the hash that makes it unique."""
        plain = lambda text: "".join(c if c.isalnum() or c in ".-+" else "_" for c in text)[-40:]
        size = f"-m{plain(str(self.memory))}" if self.memory else ""
        words = f"{plain(self.stream.name)}-{plain(self.label)}{size}-e{self.training.epochs}-s{self.seed}"
        return f"{words}-{self.hash[:8]}"


def _built(kind: str, spec: Spec, **given: Any) -> Any:
    """The object that a spec describes. Its options are checked, for a record may have been written by hand."""
    found = look_up(kind, spec)
    thing = found.thing
    for key, _ in spec.options:
        if key not in (known := options_of(kind, thing)):
            raise unknown(f"option of {spec.name}", key, known)
    return thing(**given, **found.given)


@functools.cache
def _changed(kind: str, name: str) -> dict[str, Any]:
    """Options of what is built in whose default is another now than what records that lack them were made with."""
    if kind not in ("method", "weighting") or name not in registry.BUILT_IN[kind]:
        return {}
    thing = registry.find(kind, name)
    known = options_of(kind, thing)
    return {key: value for key, value in unsaid(kind, thing).items() if value != known[key].default}


def _weighed(method: Any, weighting: Any) -> tuple[Any, Any]:
    """A method and its weighting, a label such as `rer` taken apart."""
    if isinstance(method, str):
        method, weighting = registry.weighed(method, weighting)
    elif isinstance(method, Mapping) and isinstance(method.get("name"), str):
        name, weighting = registry.weighed(method["name"], weighting)
        method = {**method, "name": name}
    elif weighting is None and isinstance(method, Method):
        weighting = method.weighting
    return method, "fixed" if weighting is None else weighting


def settable(method: Any, weighting: Any = None, stream: Any = "digits", network: Any = None) -> set[str]:
    """What can be set of an experiment with these."""
    method, weighting = _weighed(method, weighting)
    found = {"method": look_up("method", method), "weighting": look_up("weighting", weighting)}
    found["stream"] = _data(stream, None)
    found |= {"network": look_up("network", network)} if network else {}
    return {"network", "weighting", *_owners({kind: _options(kind, one) for kind, one in found.items()})}


def _options(kind: str, found: Found) -> dict[str, inspect.Parameter]:
    """What can be set of it; of the streams built in, folders of pictures have options that the others lack."""
    ours = found.thing is streams.load and not streams.of_pictures(found.at or found.name)
    lacking = streams.PICTURES if ours else ()
    return {key: parameter for key, parameter in options_of(kind, found.thing).items() if key not in lacking}


def _written(kind: str, found: Found, options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Options as they are kept. Some came later: those that are what they were before keep older runs' hashes."""
    later = streams.PICTURES if found.thing is streams.load else unsaid(kind, found.thing)
    return tuple(
        sorted((key, frozen(value)) for key, value in options.items() if key not in later or value != later[key])
    )


def _data(given: Any, data: Path | str | None) -> Found:
    """The stream: one of those built in, one's own images, or what somebody else's function makes."""
    name = given.get("name") if isinstance(given, Mapping) else given
    if not isinstance(name, str) or not built_in(name):
        return look_up("stream", given)
    options = {key: value for key, value in given.items() if key != "name"} if isinstance(given, Mapping) else {}
    source = streams.fingerprint(name, Path(data) if data else None)
    if (mine := streams.own(name)) is None:
        return Found(name, streams.load, source, None, options)
    kind, path = mine
    return Found(f"{kind}:{path.name}", streams.load, source, f"{kind}:{os.path.realpath(path)}", options)


def built_in(stream: str) -> bool:
    """Is it a stream whose files we read ourselves?"""
    return stream in registry.STREAMS or streams.own(stream) is not None


def verify(experiments: Iterable[Experiment], data: Path | str | None = None) -> None:
    """Refuse to run, or to answer from what was run, on data that are there and are not the published ones."""
    for name in dict.fromkeys(e.stream.name for e in experiments if e.stream.at is None and built_in(e.stream.name)):
        sources.verify(name, Path(data) if data else None)


def load(stream: Spec, data: Path | str | None = None) -> Stream:
    """The stream an experiment names, read once per process as long as its files are the same."""
    name, root = stream.at or stream.name, sources.data_root(Path(data) if data else None)
    if built_in(name) and (now := streams.fingerprint(name, root)) != stream.source:
        raise BadInput(
            f"{name} has changed since the experiment was made{'' if now else ', or is not there'}; make it anew"
        )
    return _load(name, stream, root)


@functools.lru_cache(maxsize=2)
def _load(name: str, stream: Spec, root: Path) -> Stream:
    if built_in(name):
        return streams.load(name, data=root, **dict(stream.options))
    make = look_up("stream", stream).thing  # refused if its source has changed since
    wanted = {"data": root} if "data" in inspect.signature(make).parameters else {}
    with seeded(0):  # what it draws belongs to the stream, the same for all seeds of a run
        loaded = make(**dict(stream.options), **wanted)
    if not isinstance(loaded, Stream):
        raise BadInput(f"{stream.name} makes a {type(loaded).__name__}; a stream is an everlearn.Stream of tasks")
    return loaded


def _shape(found: Found, given: Mapping[str, Any], data: Path | str | None) -> tuple[int, ...]:
    """The shape of the images of a stream, with the options it is given."""
    known, options = _options("stream", found), {}
    for key, parameter in known.items():
        value = found.given.get(key, given.get(f"stream.{key}", given.get(key)))
        options[key] = parameter.default if value is None else read_as(key, value, parameter.annotation)
    _complete(found, options)
    return load(Spec(found.name, _written("stream", found, options), found.source, found.at), data).shape


def _complete(found: Found, options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        if value is inspect.Parameter.empty:
            raise BadInput(f"{found.name} needs its option '{key}'; give it with --set {key}=…")


def _owners(kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """Which part each setting belongs to: the experiment, its training, or its specs, of which two may share a name."""
    owners: dict[str, list[tuple[str, str]]] = {key: [("", key)] for key in OWN}
    for kind, keys in {"training": TRAINING, **kinds}.items():
        for key in keys:
            owners.setdefault(key, []).append((kind, key))
            owners[f"{kind}.{key}"] = [(kind, key)]
    return owners


def _owner(key: str, owners: Mapping[str, list[tuple[str, str]]], named: str) -> tuple[str, str]:
    if key not in owners:
        raise unknown(f"setting of {named}", key, [name for name in owners if "." not in name])
    if len(owners[key]) > 1 and owners[key][0] != ("", key):  # a run's own come first
        ways = " or ".join(f"{kind}.{key}" for kind, _ in owners[key])
        raise BadInput(f"{key} is a setting of two of its parts; say {ways}")
    return owners[key][0]


def _memory(given: Mapping[str, Any]) -> int | None:
    return None if given.get("memory") is None else read_as("memory", given["memory"], int)


def _resolved(
    cls: type[Experiment], found: dict[str, Found], kinds: Mapping[str, Any], settings: Mapping, device: str, rule: str
) -> Experiment:
    """Everything that was left open, written out; what cannot be is refused."""
    of = lambda kind: {key: value for (place, key), value in settings.items() if place == kind}
    chosen = {kind: {key: p.default for key, p in _options(kind, found[kind]).items()} | of(kind) for kind in kinds}
    for kind, options in chosen.items():
        _complete(found[kind], options)
    training = of("training")
    if "precision" not in training and "network" in found:
        kind = "cuda" if str(device).startswith("cuda") else checks.device(device).type  # it may be a cluster's GPU
        training["precision"] = networks.precision(found["network"].thing, kind)
    training = Training(**training)
    weighting = found["weighting"].thing(**chosen["weighting"])
    method = checks.made(found["method"].thing, weighting, chosen["method"])
    average = training.decay(method.averages)
    training = replace(training, average=average if average or method.averages else None)
    weighting.check(method)  # what the method and its weighting refuse, they refuse now
    for kind, made in (("method", method), ("weighting", weighting)):
        if lost := next((key for key in chosen[kind] if not hasattr(made, key)), None):
            raise BadInput(
                f"{found[kind].name} does not keep its option '{lost}' under that name; write self.{lost} = {lost}"
            )
    open_ones = {key for key, value in chosen["weighting"].items() if value is None}
    chosen["weighting"] |= {key: value for key, value in weighting.schedule(training).items() if key in open_ones}
    if "weights" in chosen["weighting"]:
        chosen["weighting"]["weights"] = weights_of(weighting, method)
    stream, setting = chosen["stream"], streams.STREAMS.get(found["stream"].name)
    if setting and stream["tasks"] is None and stream["classes"] is None:
        stream["tasks"] = setting.tasks
    own = {"seed": 0, "memory": 0} | of("")
    number("seed", own["seed"], whole=True)
    if not method.remembers:
        number("memory", own["memory"], whole=True)
    elif own["memory"] < 1:
        raise BadInput(
            f"memory {own['memory']} holds nothing; "
            f"{found['method'].name} needs at least 1 (the usual sizes are 200 to 5120)"
        )
    spec = lambda kind: Spec(
        found[kind].name, _written(kind, found[kind], chosen[kind]), found[kind].source, found[kind].at
    )
    specs: dict[str, Any] = {kind: spec(kind) if kind in found else None for kind in KINDS}
    rows = checks.memory(method, own["memory"] if rule == "reservoir" else f"{rule}:{own['memory']}")[0]
    memory = f"{rule}:{rows}" if rows and rule != "reservoir" else rows
    return cls(**specs, training=training, memory=memory, seed=own["seed"])
