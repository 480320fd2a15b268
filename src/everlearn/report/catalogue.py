"""What there is: methods, weightings, streams and studies, and what can be set of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from everlearn import registry
from everlearn.data import STREAMS, sources
from everlearn.errors import unknown
from everlearn.experiments.defaults import defaults
from everlearn.experiments.experiment import Experiment, settable
from everlearn.experiments.studies import STUDIES
from everlearn.report.sheet import Sheet
from everlearn.report.tables import plain
from everlearn.spec import look_up, options_of


def described(thing: Callable) -> str:
    """What a method's file or a weighting's class says of it: the equation, and where it departs from its paper."""
    file = inspect.getdoc(inspect.getmodule(thing)) if registry.built_in(thing) else None
    return file or words(thing)


def words(thing: Callable) -> str:
    """Its own, or its file's; inspect.getdoc would give its parent's."""
    return inspect.cleandoc(thing.__doc__ or inspect.getdoc(inspect.getmodule(thing)) or thing.__name__)


def summary(text: str) -> str:
    """The first paragraph, on one line."""
    return " ".join(text.split("\n\n")[0].split())


def shown(value: object, key: str = "") -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value)) or ("all 1" if key == "weights" else "–")
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def flowing(text: str) -> list[str]:
    """Its paragraphs, and what is set apart in them, each in a line as long as the terminal's."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text).splitlines()


def methods() -> Iterator[Sheet]:
    table = plain("method", "what it is")
    for name in registry.known("method"):
        table.add_row(name, summary(described(registry.find("method", name))))
    for name, (base, weighting) in registry.ALIASES.items():
        table.add_row(name, f"{base} --weighting {weighting}")
    yield table


def weightings() -> Iterator[Sheet]:
    table = plain("weighting", "what it is")
    for name in registry.known("weighting"):
        table.add_row(name, summary(inspect.getdoc(registry.find("weighting", name)) or ""))
    yield table


def method(name: str, weighting: str | None = None) -> Iterator[str | Sheet]:
    """The equation and every setting, with its default on each stream."""
    resolved = {stream: Experiment.of(name, stream, weighting=weighting, device="cpu") for stream in STREAMS}
    first = resolved["digits"]
    yield from flowing(described(look_up("method", first.method).thing))
    if first.weighting.name != "fixed":
        yield from flowing(f"\nWeighed by {first.weighting.name}. {words(look_up('weighting', first.weighting).thing)}")
    table = plain("setting", *STREAMS, title="Settings (--set KEY=VALUE) and their defaults on each stream")
    settings = {stream: experiment.settings() for stream, experiment in resolved.items()}
    unset = {key for key in settable(name, weighting) if "." not in key} - settings["digits"].keys()  # but can be
    kinds = {"method": first.method, "weighting": first.weighting}
    known = {key: p for kind, spec in kinds.items() for key, p in options_of(kind, look_up(kind, spec).thing).items()}
    unsaid = {key: known[key].default for key in unset & known.keys()}
    for key in [*settings["digits"], *sorted(unset)]:
        if key not in ("method", "weighting", "stream", "seed"):
            table.add_row(key, *(shown(values.get(key, unsaid.get(key)), key) for values in settings.values()))
    yield table
    there = {stream: Experiment.of(name, stream, weighting=weighting, device="cuda") for stream in STREAMS}
    other = [stream for stream in STREAMS if there[stream].training != resolved[stream].training]
    if other:
        yield f"On a GPU precision is {there[other[0]].training.precision} on {', '.join(other)}."
    sizes = {
        size: defaults(first.method.name, first.weighting.name, "cifar10", size).get("weights")
        for size in (200, 500, 5120)
    }
    if len(set(sizes.values())) > 1:
        yield "cifar10 weights by memory: " + "; ".join(f"{size}: {shown(weights)}" for size, weights in sizes.items())


def weighting(name: str) -> Iterator[str | Sheet]:
    if not registry.refers("weighting", name) and name not in registry.known("weighting"):
        raise unknown("weighting", name, registry.known("weighting"))
    thing = look_up("weighting", name).thing
    yield from flowing(words(thing))
    table = plain("option", "default", title="Options (--set KEY=VALUE)")
    usual = {"weights": "the method's", "warmup": "half of the epochs", "interval": "a tenth of the epochs, at least 1"}
    for key, parameter in options_of("weighting", thing).items():
        empty = parameter.default in (None, (), inspect.Parameter.empty)
        table.add_row(key, usual.get(key, "–") if empty else shown(parameter.default))
    yield table


def streams(data: Path | None) -> Sheet:
    table = plain("stream", "tasks", "network", "data", "what it is")
    for name, setting in STREAMS.items():
        here = name == "digits" or sources.found(name, data)
        state = "here" if here else sources.getting(name, data)
        table.add_row(name, str(setting.tasks), setting.network, state, sources.SOURCES[name].summary)
    for name in registry.known("stream")[len(STREAMS) :]:
        table.add_row(name, "", "", "", summary(inspect.getdoc(registry.find("stream", name)) or ""))
    table.add_row("npz:FILE", "", "", "", "your images: arrays x_train, y_train, x_test, y_test")
    table.add_row(
        "folder:DIR",
        "",
        "",
        "",
        "your images, of any size: a folder per class, under DIR/train and DIR/test or under DIR",
    )
    return table


def studies() -> Sheet:
    table = plain("study", "rows", "seeds", "question")
    for key, (usual, make, question) in STUDIES.items():
        table.add_row(key, str(len(make({}))), str(usual), question)
    return table


def files(name: str, statuses: Sequence[sources.FileStatus]) -> Iterator[Sheet]:
    """What of a data set is there, folder by folder; classes are told from files."""
    place = lambda status: (status.path.parent, status.kind)
    for folder, kind in dict.fromkeys(map(place, statuses)):
        table = plain(kind, "state", "", title=f"{name} in {folder}")
        for status in statuses:
            if place(status) == (folder, kind):
                table.add_row(status.path.name, status.state, status.detail)
        yield table
