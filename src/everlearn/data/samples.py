"""Data in whatever form they come: samples as one tensor, and a label for each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from everlearn.arguments import is_dense
from everlearn.data import arrays, photos, tables
from everlearn.data.inputs import Inputs
from everlearn.data.pixels import Pixels
from everlearn.data.streams import Task
from everlearn.errors import BadInput, Notice, shown

WELCOME = (
    "a Dataset, a DataLoader, a pair (samples, labels) of arrays or tensors, a folder of class folders, an .npz file "
    "or a Task"
)


class Like(NamedTuple):
    """What the samples are that a learner holds: the shape and type of one, and of pixels the value of white."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    top: float | None = None

    @classmethod
    def of(cls, held: Tensor | None, inputs: Pixels | Inputs | None) -> Like | None:
        """What a learner's samples are like; None as long as it holds none."""
        top = inputs.top if isinstance(inputs, Pixels) else None
        return None if held is None else cls(tuple(held.shape[1:]), held.dtype, top)

    def pictured(self) -> tuple[int, tuple[int, int]]:
        """The channels and the size that a picture needs to be such a sample; other samples are refused."""
        known = self.dtype == torch.uint8 or (self.dtype.is_floating_point and self.top is not None)
        if not known or len(self.shape) != 3 or self.shape[0] not in (1, 3):
            kind = f"{str(self.dtype).removeprefix('torch.')} samples of shape {list(self.shape)}"
            raise BadInput(f"this learner takes {kind}, which pictures are not; give an .npz file of such samples")
        return self.shape[0], self.shape[1:]


def gathered(data: Any, labels: Any = None, like: Like | None = None) -> tuple[Tensor, Any]:
    """Samples as one tensor [N, …] and their labels, read once. `like` says what the learner holds already."""
    if labels is not None:
        x = _batch(data)
        return x, _labels(labels, len(x))
    if isinstance(data, Task):
        return data.train
    if isinstance(data, (str, os.PathLike)):
        return _file(os.fspath(data), like)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return tensor(data.tensors[0]), _labels(data.tensors[1], len(data.tensors[0]))
    if isinstance(data, DataLoader):
        return _joined(list(map(_pair, data)))
    lists = isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], list)
    if lists or (isinstance(data, (tuple, list)) and len(data) == 2 and _array(data[0])):
        return (x := _batch(data[0])), _labels(data[1], len(x))
    if isinstance(data, (Dataset, Sequence)) or (isinstance(data, Iterable) and not _array(data)):
        return _stacked([_pair(sample) for sample in _each(data)])
    if _array(data):
        raise BadInput("there are no labels; give them beside the samples, one for each: update(x, y), score(x, y)")
    raise BadInput(f"a {type(data).__name__} cannot be learned from; give {WELCOME}")


def samples(data: Any, like: Like | None = None) -> Tensor:
    """Samples alone, to be predicted: a tensor, an array, a list of images, or what has labels, without them."""
    if _array(data):
        return tensor(data)
    if isinstance(data, (str, os.PathLike)) and os.fspath(data).lower().endswith(arrays.SUFFIXES):
        return tensor(arrays.alone(Path(data).expanduser(), like and like.shape))
    if isinstance(data, TensorDataset):
        return tensor(data.tensors[0])
    if isinstance(data, DataLoader):
        return _in_one([_batch(item[0] if isinstance(item, (tuple, list)) and item else item) for item in data])
    if isinstance(data, (str, os.PathLike, Task)):
        return gathered(data, like=like)[0]
    items = list(_each(data))
    if not items:
        raise BadInput("there is no sample among the data")
    return _stack([item[0] if _labelled(item) else item for item in items])


def _labelled(item: Any) -> bool:
    """Is it a sample with its label? A tuple of numbers is a sample itself."""
    return isinstance(item, tuple) and bool(item) and not isinstance(item[0], (Real, np.bool_))


def tensor(of: Any, number: int | None = None) -> Tensor:
    """Samples as a tensor, or the one of this number: bytes stay bytes, other whole numbers become long, floats stay
    floats."""
    if not isinstance(of, Tensor):
        if hasattr(of, "toarray"):
            raise BadInput("sparse samples are not supported; .toarray() makes them dense")
        try:
            array = np.asarray(of)
        except (ValueError, TypeError, RuntimeError):  # its parts have several shapes
            raise BadInput(f"{shown(of)} is not a sample of numbers; bring its parts to one shape") from None
        if np.ma.is_masked(of):
            raise BadInput("samples with masked values cannot be learned from; fill them, such as with .filled(0)")
        if array.dtype.kind == "O":  # numbers, perhaps
            array = tables.numeric(array)
        if array.dtype.kind == "c":
            raise BadInput("Complex data not supported; samples must be real numbers")
        if not array.ndim and array.dtype.kind not in "iufb":
            raise BadInput(f"{shown(of)} is not an array of samples; give an array, a tensor or a list of them")
        if array.dtype.kind not in "iufb" or array.dtype.itemsize > 8:
            first = tables.first_word(array, () if number is None else (number,), tables.columns(of))
            raise BadInput(f"samples of type {array.dtype}; they must be numbers{first}")
        if array.dtype.kind == "u" and array.dtype != np.uint8:  # torch has few operations on these types
            array = array.astype(np.int64)
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        of = torch.from_numpy(array if array.flags.writeable else np.asarray(_Shared(array)))
    if not is_dense(of) or of.is_complex():
        raise BadInput(f"samples must be a dense tensor of real numbers, not {shown(of)} of {of.dtype}")
    if of.dtype == torch.uint8 or of.is_floating_point():
        return of.detach()
    return of.detach().long()


class _Shared:
    """A read-only array, such as a table's, as one torch takes without a copy or a warning: nobody writes to it."""

    def __init__(self, array: np.ndarray):
        self.array = array  # keeps the memory alive that the interface points to
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


def _array(data: Any) -> bool:
    """A tensor, an array, or a table that is one."""
    return isinstance(data, (Tensor, np.ndarray)) or hasattr(data, "__array__")


def _batch(data: Any) -> Tensor:
    """Samples in one array, or one by one in a list."""
    if isinstance(data, (list, tuple)) and not data:
        raise BadInput("there is no sample among the data")
    found = _stack(data) if isinstance(data, (list, tuple)) else tensor(data)
    if not found.ndim:
        raise BadInput("a single number is not a sample; give a list of samples")
    return found


def _each(data: Any) -> Iterator[Any]:
    """The samples one by one; of a Dataset with a length they are taken by their numbers."""
    if (
        hasattr(data, "__len__")
        and hasattr(data, "__getitem__")
        and not isinstance(data, (IterableDataset, Mapping, type))
    ):
        return (data[n] for n in range(len(data)))
    if not isinstance(data, Iterable):
        raise BadInput(f"{shown(data)} cannot be learned from; give {WELCOME}")
    return iter(data)


def _pair(item: Any) -> tuple[Any, Any]:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise BadInput(f"a sample must be a pair (input, label), not a {type(item).__name__}{_length(item)}")
    return item[0], item[1]


def _length(item: Any) -> str:
    return f" of {len(item)}" if isinstance(item, (tuple, list)) else ""


def _stacked(pairs: list[tuple[Any, Any]]) -> tuple[Tensor, Any]:
    if not pairs:
        raise BadInput("there is no sample among the data")
    inputs, labels = zip(*pairs)
    return _stack(inputs), list(labels)


def _stack(inputs: Sequence[Any]) -> Tensor:
    picture = lambda one: hasattr(one, "convert") and hasattr(one, "mode")
    rows = [_image(one) if picture(one) else tensor(one, n) for n, one in enumerate(inputs)]
    for n, row in enumerate(rows):
        if (row.shape, row.dtype) != (rows[0].shape, rows[0].dtype):
            kind = lambda of: f"{str(of.dtype).removeprefix('torch.')} of shape {list(of.shape)}"
            raise BadInput(
                f"sample {n} is {kind(row)}, and the first one {kind(rows[0])}; bring them to one shape "
                "(folders of photos of several sizes are: give the folder)"
            )
    return torch.stack(rows)


def _image(picture: Any) -> Tensor:
    """A Pillow image as uint8 [C, H, W]: grey ones have one channel, all others three."""
    array = np.asarray(picture if picture.mode == "L" else picture.convert("RGB"))
    return torch.from_numpy(np.array(array[None] if array.ndim == 2 else array.transpose(2, 0, 1)))


def _joined(batches: list[tuple[Any, Any]]) -> tuple[Tensor, Any]:
    parts = [(_batch(x), _labels(y, len(x))) for x, y in batches]
    x = _in_one([x for x, _ in parts])
    if all(isinstance(y, Tensor) for _, y in parts):
        return x, torch.cat([y for _, y in parts])
    return x, [label for _, y in parts for label in y]


def _in_one(batches: list[Tensor]) -> Tensor:
    if not batches:
        raise BadInput("there is no sample among the data")
    if len({(x.shape[1:], x.dtype) for x in batches}) > 1:
        raise BadInput("the batches of this DataLoader are of several shapes or types; bring them to one")
    return torch.cat(batches)


def _labels(labels: Any, samples: int) -> Any:
    if np.ma.is_masked(labels):
        raise BadInput("some labels are masked; leave these samples out")
    if hasattr(labels, "__array__") and not isinstance(labels, Tensor):
        labels = np.asarray(labels)
    if isinstance(labels, (Tensor, np.ndarray)) and labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if isinstance(labels, (str, bytes, Set, Mapping)) or not hasattr(labels, "__len__"):
        raise BadInput(f"labels must be a list, not {shown(labels)}; give one for each sample")
    if isinstance(labels, (Tensor, np.ndarray)) and labels.ndim != 1:
        raise BadInput(f"labels of shape {list(labels.shape)}; give one for each sample, [N] (one-hot: .argmax(1))")
    if len(labels) != samples:
        raise BadInput(f"{len(labels)} labels for {samples} samples; there must be one for each, and at least one")
    return labels


def _file(name: str, like: Like | None) -> tuple[Tensor, Any]:
    path = Path(name.removeprefix("folder:").removeprefix("npz:")).expanduser()
    if len(path.name) > 255:
        raise BadInput(f"there is no file {shown(path.name)}")
    if path.suffix.lower() in arrays.SUFFIXES and not path.is_dir():
        x, y = arrays.labelled(path, like and like.shape)
        return tensor(x), y
    if path.exists() and not path.is_dir():
        raise BadInput(f"{path} cannot be learned from; give {WELCOME}")
    return _photos(path, like)


def _photos(folder: Path, like: Like | None) -> tuple[Tensor, Any]:
    """The pictures of class folders, each with its folder's name; those that cannot be read are named in a warning."""
    channels, size = like.pictured() if like is not None and folder.is_dir() else (None, None)
    found = photos.photos(folder, size, channels)
    if found.skipped:
        total = len(found.images[0]) + len(found.skipped)
        warnings.warn(photos.unread(folder, total, found.skipped, " and are left out"), Notice, stacklevel=2)
    for told in photos.passed_over(folder):
        warnings.warn(told, Notice, stacklevel=2)
    pixels, labels = found.images
    return stored(pixels, like), np.array(found.names)[labels]


def stored(pixels: np.ndarray, like: Like | None) -> Tensor:
    """Pictures, uint8 [N, C, H, W], in the scale and type of those a learner holds."""
    x = torch.from_numpy(pixels)
    if like is None or (like.dtype == torch.uint8 and like.top in (None, 255)):
        return x
    scaled = x.double() * ((like.top or 255) / 255)
    return scaled.round().to(like.dtype) if like.dtype == torch.uint8 else scaled.to(like.dtype)
