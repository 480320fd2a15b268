"""Samples in files of numpy's: x.npz with samples and their labels, x.npy with samples alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.data import formats
from everlearn.errors import BadInput

PAIRS = (("x", "y"), ("samples", "labels"), ("x_train", "y_train"))
ALONE = ("x", "samples", "x_test", "x_train")
SUFFIXES = (".npz", ".npy")


def labelled(path: Path, shape: tuple[int, ...] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels: `x` and `y`, `samples` and `labels`, or `x_train` and `y_train`, as a stream's file has them.

    With `names`, label n is the class of that name. `shape` is that of the samples a learner holds.
    """
    if path.suffix.lower() != ".npz":
        raise BadInput(f"{path} has no labels; give an .npz file with the arrays x and y")
    arrays = _read(path)
    pair = next((pair for pair in PAIRS if arrays.keys() >= set(pair)), None)
    if pair is None:
        known = " or ".join(f"{x} and {y}" for x, y in PAIRS)
        raise BadInput(f"{path} has the arrays {', '.join(arrays) or '(none)'}; it needs {known}")
    x, y = (arrays[key] for key in pair)
    if y.ndim != 1 or len(y) != len(np.atleast_1d(x)):
        raise BadInput(
            f"{pair[1]} of {path} has the shape {list(y.shape)}; it needs a label for each of {len(x)} samples"
        )
    return _fitted(x, shape, f"{pair[0]} of {path}"), _named(y, arrays.get("names"), path)


def alone(path: Path, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Samples without labels: the only array, else `x`, `samples`, `x_test` or `x_train`."""
    arrays = _read(path)
    key = next(iter(arrays)) if len(arrays) == 1 else next((key for key in ALONE if key in arrays), None)
    if key is None:
        raise BadInput(f"{path} has the arrays {', '.join(arrays) or '(none)'}; which are samples? Call them x")
    x = arrays[key]
    single = shape is not None and (x.shape == shape or (*x.shape[-1:], *x.shape[:-1]) == shape)
    return _fitted(x[None] if single else x, shape, f"{key} of {path}" if key else str(path))


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    try:
        return formats.arrays(path)
    except Exception as error:  # zipfile, zlib and numpy each have their own
        why = formats.brief(error)
        raise BadInput(f"{path} is not a file of arrays that can be read ({why}); numpy.savez writes one") from None


def _fitted(x: np.ndarray, shape: tuple[int, ...] | None, where: str) -> np.ndarray:
    """Images with their channels first, as they are stored; anything else as it is."""
    if x.ndim < 1 or not len(x):
        raise BadInput(f"{where} holds no sample")
    first = np.moveaxis(x, -1, 1) if x.ndim == 4 else x[:, None]
    if shape is not None:
        if x.shape[1:] != shape and first.shape[1:] != shape:
            raise BadInput(f"{where} has samples of shape {list(x.shape[1:])}, and the learner's are {list(shape)}")
        return x if x.shape[1:] == shape else first
    images = x.dtype == np.uint8 and (x.ndim == 3 or (x.ndim == 4 and x.shape[3] in (1, 3)))
    return first if images else x


def _named(y: np.ndarray, names: np.ndarray | None, path: Path) -> np.ndarray:
    if names is None:
        return y
    if names.ndim != 1 or y.dtype.kind not in "iu" or y.min(initial=0) < 0 or y.max(initial=-1) >= len(names):
        raise BadInput(
            f"'names' of {path} are {names.size}, and its labels are not numbers of them, 0 to {names.size - 1}"
        )
    return formats.words(names, f"'names' of {path}")[y]


def called(labels: Any, known: list[Any]) -> list[Any]:
    """Labels of a file as a learner calls its classes: 3 and "3" are one class, whichever the learner has."""
    table: Mapping[str, Any] = {str(name): name for name in known}
    numbers, words = (known and all(type(name) is kind for name in known) for kind in (int, str))

    def one(label: Any) -> Any:
        label = label.item() if isinstance(label, np.generic) else label
        if str(label) in table:
            return table[str(label)]
        if numbers and isinstance(label, str) and label.isdecimal():
            return int(label)
        return str(label) if words else label

    return [one(label) for label in labels]
