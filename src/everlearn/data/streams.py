"""A stream of tasks: one data set, its classes divided among the tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.arguments import checked
from everlearn.data.identity import fingerprint
from everlearn.data.pixels import Device, Pixels
from everlearn.data.sources import Images, own, read
from everlearn.errors import BadInput, unknown

__all__ = ["STREAMS", "Pixels", "Stream", "Task", "fingerprint", "load"]


@checked
@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """Some classes of a stream: images as stored (uint8 [N, C, H, W]) and labels, to train on and maybe to test on."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor] | None = None
    classes: tuple[int, ...] = ()  # required, though it comes after what is not
    names: tuple[str, ...] = ()  # of all classes of its stream, by label; it tells each of its tasks

    def __post_init__(self) -> None:
        if isinstance(self.classes, tuple) and not self.classes:
            raise BadInput("a task with the classes () has nothing to learn; name them, such as classes=(0, 1)")

    def __repr__(self) -> str:
        tested = f"{len(self.test[0])} to test" if self.test else "none to test"
        return f"<Task: classes {', '.join(map(str, self.classes))}; {len(self.train[0])} images, {tested}>"


@checked
@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """Tasks in order. Labels are renumbered in the order classes appear, so task t has the t-th run of labels."""

    name: str
    tasks: tuple[Task, ...]
    names: tuple[str, ...]  # of the classes, by label
    pixels: Pixels

    def __post_init__(self) -> None:
        told = (task if task.names else replace(task, names=self.names) for task in self.tasks)
        object.__setattr__(self, "tasks", tuple(told))

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape))
        return f"<Stream {self.name}: {len(self.tasks)} tasks, {self.classes} classes, images of {shape}>"

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image: channels, height, width."""
        return tuple(self.tasks[0].train[0].shape[1:])  # pyright: ignore[reportReturnType]  # images are [N, C, H, W]

    def merged(self) -> Task:
        """All tasks as one, to be tested on what there is to test on."""

        def joined(pairs: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
            x, y = (torch.cat(column) for column in zip(*pairs))
            return x, y

        tests = [task.test for task in self.tasks if task.test]
        train = joined(task.train for task in self.tasks)
        return Task(train, joined(tests) if tests else None, tuple(range(self.classes)), self.names)

    def to(self, device: Device) -> Stream:
        """The same stream with its data on a device."""
        move = lambda pair: pair and tuple(tensor.to(device) for tensor in pair)
        return replace(self, tasks=tuple(replace(t, train=move(t.train), test=move(t.test)) for t in self.tasks))


@dataclass(frozen=True)
class Setting:
    """What a data set becomes by default: number of tasks, pixels, network."""

    tasks: int
    pixels: Pixels
    network: str


CIFAR: dict[str, Any] = dict(pad=4, flip=True)
STREAMS: dict[str, Setting] = {
    "digits": Setting(5, Pixels(top=16), "mlp"),
    "mnist": Setting(5, Pixels((0.1307,), (0.3081,)), "cnn"),
    "fashion-mnist": Setting(5, Pixels((0.2860,), (0.3530,)), "cnn"),
    "cifar10": Setting(5, Pixels((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615), **CIFAR), "resnet18"),
    "cifar100": Setting(10, Pixels((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), **CIFAR), "resnet18"),
    "tinyimagenet": Setting(10, Pixels((0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821), **CIFAR), "resnet18"),
}


def setting(name: str) -> Setting | None:
    """The stream's setting; None for one's own images, whose tasks and pixels come from the data."""
    if own(str(name)):
        return None
    if name not in STREAMS:
        raise unknown("stream", name, [*STREAMS, "npz:FILE", "folder:DIR"])
    return STREAMS[name]


PICTURES = {"size": None, "strict": False}  # options of folder:DIR alone, and their defaults


def of_pictures(name: str) -> bool:
    """Is it a folder of pictures?"""
    mine = own(str(name))
    return mine is not None and mine[0] == "folder"


def usual_network(name: str, content: str | None, shape: Callable[[], tuple[int, ...]]) -> str | None:
    """The network for a stream's images by default; None where one's own, of this content, are not there."""
    if name in STREAMS:
        return STREAMS[name].network
    return content and ("resnet18" if min(shape()[1:]) >= 32 else "cnn")


@functools.lru_cache(maxsize=2)
def _own(name: str, content: str | None, **options: Any) -> Images:
    """A user's own images; `content`, their fingerprint, makes sure that they are read again once they change."""
    return read(name, **options)


@checked
def load(
    name: str = "digits",
    *,
    tasks: int | None = None,
    classes: Sequence[str | int] | None = None,
    shuffle: int | None = None,
    size: int | None = None,
    strict: bool = False,
    data: Path | str | None = None,
) -> Stream:
    """A stream by name, from the folder `data` (default: $EVERLEARN_DATA, else ~/.cache/everlearn).

    `classes` keeps those classes, by name or number, in that order; `shuffle` orders the classes by that seed;
    `tasks` is how many tasks the classes are divided among, as evenly as can be. Of `folder:DIR`, `size` is the side
    all pictures are brought to (default: the size they have, or 64 where they differ), and `strict` refuses files that
    cannot be read; otherwise they are skipped with a warning.
    """
    known, pictures = setting(name), {"size": size} if size is not None else {}
    pictures |= {"strict": True} if strict else {}
    if pictures and not of_pictures(name):
        raise BadInput(f"{' and '.join(pictures)} can be said of folder:DIR, and not of {name}")
    if tasks is not None and tasks < 1:
        raise BadInput(f"tasks {tasks} must be at least 1")
    images = read(name, None if data is None else Path(data)) if known else _own(name, fingerprint(name), **pictures)
    kept = list(range(len(images.names))) if classes is None else [_class(images.names, c) for c in classes]
    if len(set(kept)) < len(kept):
        raise BadInput(f"classes {', '.join(map(str, classes or ()))}: a class is named twice")
    if shuffle is not None and shuffle < 0:
        raise BadInput(f"shuffle {shuffle} must be a number from 0 up")
    if shuffle is not None:
        kept = [kept[i] for i in np.random.default_rng(shuffle).permutation(len(kept))]
    tasks = tasks or _tasks(known, len(kept))
    if tasks > len(kept):
        raise BadInput(f"{tasks} tasks need as many classes, and there are {len(kept)}")
    bounds = [len(kept) * t // tasks for t in range(tasks + 1)]
    runs = [range(first, last) for first, last in pairwise(bounds)]
    renumber = np.full(len(images.names), -1)
    renumber[kept] = np.arange(len(kept))
    train, test = (_sorted(x, renumber[y]) for x, y in (images.train, images.test))
    names = tuple(images.names[c] for c in kept)
    return Stream(
        name=name,
        tasks=tuple(
            Task(_part("training", *train, run, names), _part("test", *test, run, names), tuple(run)) for run in runs
        ),
        names=names,
        pixels=known.pixels if known else _own_pixels(images.train[0]),
    )


def _tasks(known: Setting | None, classes: int) -> int:
    """The stream's own number of tasks if it divides the classes kept, else two classes per task, or three in one."""
    if known and classes % known.tasks == 0:
        return known.tasks
    return max(1, classes // 2)


def _class(names: Sequence[str], given: str | int) -> int:
    if str(given) in names:
        return names.index(str(given))
    if str(given).isdecimal() and int(given) < len(names):
        return int(given)
    raise unknown("class", str(given), names)


def _sorted(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """The kept samples, by label: a task is then a slice, not a copy."""
    order = np.argsort(y, kind="stable")[np.count_nonzero(y < 0) :]
    return torch.from_numpy(x[order]), torch.from_numpy(y[order].astype(np.int64))


def _part(half: str, x: Tensor, y: Tensor, run: range, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    first, last = torch.searchsorted(y, torch.tensor([run.start, run.stop])).tolist()
    if first == last:
        raise BadInput(f"there is no {half} image of {' or '.join(names[c] for c in run)}; keep other classes")
    return x[first:last], y[first:last]


def _own_pixels(x: np.ndarray) -> Pixels:
    """One's own images: their own mean and standard deviation per channel, and the usual augmentation if in colour."""
    scaled = [x[:, channel] / 255 for channel in range(x.shape[1])]
    mean, std = tuple(float(c.mean()) for c in scaled), tuple(max(float(c.std()), 1e-3) for c in scaled)
    return Pixels(mean, std, **(CIFAR if x.shape[1] == 3 else {}))
