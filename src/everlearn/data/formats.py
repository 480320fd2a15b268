"""Readers of the formats in which image data sets are published: files in, arrays out.

Images are uint8 [N, C, H, W], labels int64 [N]; every array is fresh, contiguous and writable. A file that is not what
its format says raises Damaged, whose sentence names the file.
"""

import gzip
import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.data import pickled
from everlearn.errors import BadInput

Split = tuple[np.ndarray, np.ndarray]  # images, labels
Parts = tuple[Split, Split, tuple[str, ...]]  # train, test, class names

NPZ = ("x_train", "y_train", "x_test", "y_test")


class Damaged(BadInput):
    """A file that is not what its format says it is."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What cannot be read within raises Damaged, which names the path."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Damaged(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from error


@contextmanager
def unpacked(path: Path) -> Iterator[BufferedIOBase]:
    """The content of a file as a stream, gunzipped where it begins as gzip does, whatever its name."""
    with reading(path), path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.open(raw) if packed else nullcontext(raw) as stream:
            yield stream


def md5(path: Path, unpack: bool = False) -> str:
    """The md5 of a file, or of what it holds once gunzipped."""
    with reading(path), unpacked(path) if unpack else path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def labelled(images: np.ndarray, labels: Any, classes: int, where: Path | str) -> Split:
    """The pair, once there is one label in 0..classes-1 for each image; `where` is the file to name if not."""
    try:
        labels = np.asarray(labels)
    except ValueError:
        labels = np.empty((0, 0))  # a ragged list: refused in the next line like any other shape
    if labels.ndim != 1 or (labels.dtype.kind not in "iu" and labels.size):
        raise Damaged(f"{where} has labels that are not a row of integers ({labels.dtype}, shape {labels.shape})")
    if len(labels) != len(images):
        raise Damaged(f"{where} has {len(labels):,} labels for {len(images):,} images")
    if not images.size:
        raise Damaged(f"{where} holds no images")
    for label in (labels.min(), labels.max()):
        if not 0 <= label < classes:
            raise Damaged(f"{where} has the label {label}, outside 0..{classes - 1}")
    return np.ascontiguousarray(images), labels.astype(np.int64)


# --- IDX: MNIST and its relatives ---


def idx(path: Path) -> np.ndarray:
    """IDX: 00 00, the type (08: bytes), the rank, each size as a big-endian uint32, then the values in C order."""
    with unpacked(path) as stream:
        content = stream.read()
    if content[:3] != b"\0\0\x08":
        raise Damaged(f"{path} is not an IDX file of bytes: it begins with '{content[:4].hex(' ')}', not '00 00 08'")
    start = 4 + 4 * int.from_bytes(content[3:4])
    if len(content) < start:
        raise Damaged(f"{path} is cut short: {len(content)} bytes, and not even its header is whole")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">u4"))
    if len(content) != start + math.prod(shape):
        raise Damaged(f"{path} has {len(content):,} bytes where its header asks for {start + math.prod(shape):,}")
    return np.frombuffer(content, np.uint8)[start:].reshape(shape).copy()


def idx_pair(images: Path, labels: Path, classes: int) -> Split:
    """One split of MNIST: an IDX file of grey images [N, H, W] and one of labels [N]."""
    x, y = idx(images), idx(labels)
    for path, array, rank in ((images, x, 3), (labels, y, 1)):
        if array.ndim != rank:
            raise Damaged(f"{path} has {array.ndim} dimensions where {rank} are expected")
    return labelled(x[:, None], y, classes, labels)


# --- CIFAR, both distributions ---


def cifar_binary(path: Path, classes: int, label_bytes: int = 1) -> Split:
    """Rows of the label bytes and 3,072 channel-first pixels; of CIFAR-100's two labels the second is the fine one."""
    with unpacked(path) as stream:
        content = np.frombuffer(stream.read(), np.uint8)
    row = label_bytes + 3072
    if len(content) % row:
        raise Damaged(f"{path} has {len(content):,} bytes, which is not a whole number of rows of {row:,}")
    rows = content.reshape(-1, row)
    return labelled(rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1], classes, path)


def cifar_python(path: Path, classes: int) -> Split:
    """A pickled dict: `data` uint8 [N, 3072], channel-first, and `labels` (CIFAR-10) or `fine_labels` (CIFAR-100)."""
    try:
        with unpacked(path) as stream:
            batch = pickled.read(stream.read())
    except BadInput:
        raise
    except pickled.Strange as strange:
        raise BadInput(
            f"{path} asks for {strange}, which no image batch needs, and was not loaded: "
            "get the file from its official source"
        ) from None
    except Exception as error:  # a broken pickle may raise anything at all
        raise Damaged(f"{path} is not a pickled CIFAR batch ({type(error).__name__}: {error})") from error
    if not isinstance(batch, dict):
        raise Damaged(f"{path} is not a pickled CIFAR batch: it holds a {type(batch).__name__}, not a dict")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    pixels = batch.get("data")
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[1:] == (3072,)):
        raise Damaged(f"{path} is not a CIFAR batch: its 'data' is not a uint8 array of rows of 3,072")
    labels = batch.get("fine_labels", batch.get("labels"))
    if labels is None:
        raise Damaged(f"{path} is not a CIFAR batch: it has neither 'labels' nor 'fine_labels'")
    return labelled(pixels.reshape(-1, 3, 32, 32), labels, classes, path)


# --- arrays ---


def npz(path: Path) -> Parts:
    """x_train, y_train, x_test, y_test and, if you like, names: the class names in the order of the labels.

    Images are uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with C 1 or 3; where both the second and the last size
    could be the channels, the last one is. Labels are the integers 0..K-1, each of them at least once in both.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise Damaged(f"{path} is not an .npz file: write it with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in (*NPZ, "names") if key in file}
    except Exception as error:  # zipfile, zlib and numpy each have their own
        raise Damaged(f"{path} is not a readable .npz file ({error}): write it again with numpy.savez") from error
    if missing := [key for key in NPZ if key not in arrays]:
        raise BadInput(f"{path} has no array '{missing[0]}': it needs {', '.join(NPZ)}")
    train, test = (_npz_images(path, key, arrays[key]) for key in ("x_train", "x_test"))
    if train.shape[1:] != test.shape[1:]:
        raise BadInput(f"the images of {path} differ: x_train is {train.shape[1:]} each, x_test {test.shape[1:]}")
    known = np.unique(arrays["y_train"])
    if known.dtype.kind not in "iu":
        raise BadInput(f"y_train of {path} is {known.dtype}: labels are the integers 0..K-1")
    if not np.array_equal(known, np.arange(len(known))):
        odd = known[0] if known[0] < 0 else np.setdiff1d(np.arange(len(known)), known)[0]
        trouble = f"has the label {odd}" if odd < 0 else f"never has the label {odd} but goes up to {known[-1]}"
        raise BadInput(f"y_train of {path} {trouble}: number the classes 0..K-1 without a gap")
    names = arrays.get("names", known).astype(str)
    if names.shape != known.shape:
        raise BadInput(f"'names' of {path} has the shape {names.shape} where y_train has {len(known)} classes")
    parts = [
        labelled(images, arrays[key], len(known), f"{key} of {path}")
        for images, key in ((train, "y_train"), (test, "y_test"))
    ]
    if len(lacking := np.setdiff1d(known, parts[1][1])):
        raise BadInput(f"y_test of {path} never has the label {lacking[0]}: both halves need every class")
    return parts[0], parts[1], tuple(names.tolist())


def _npz_images(path: Path, key: str, array: np.ndarray) -> np.ndarray:
    if array.dtype != np.uint8:
        raise BadInput(f"{key} of {path} is {array.dtype}: save the pixels as uint8, 0..255")
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[3] in (1, 3):
        return np.moveaxis(array, 3, 1)
    if array.ndim == 4 and array.shape[1] in (1, 3):
        return array
    raise BadInput(f"{key} of {path} has the shape {array.shape}: save it as [N, H, W], [N, H, W, C] or [N, C, H, W]")
