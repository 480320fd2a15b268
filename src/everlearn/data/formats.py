"""Readers of the formats in which image data sets are published: files in, arrays out.

Images are uint8 [N, C, H, W], labels int64 [N]; every array is fresh, contiguous and writable. A file that is not what
its format says raises Damaged, whose sentence names the file. Only regular files are opened. What is packed may unpack
to so many times its size, and no array is made of fewer bytes than it asks for.
"""

import gzip
import hashlib
import io
import math
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from everlearn.data import pickled
from everlearn.errors import BadInput
from everlearn.files import opened

Split = tuple[np.ndarray, np.ndarray]  # images, labels
Parts = tuple[Split, Split, tuple[str, ...]]  # train, test, class names

NPZ = ("x_train", "y_train", "x_test", "y_test")
TIMES = 20  # a packed file may unpack to so many times its size, unless $EVERLEARN_UNPACKED says otherwise
ALWAYS = 2**26  # bytes that any packed file may unpack to
LARGEST = 2**28  # bytes of a file of a named data set, unpacked; the largest published one has 155 million
PIECE = 2**20  # bytes that are read at a time
NAME = 2**12  # bytes of the longest name of a class


class Damaged(BadInput):
    """A file that is not what its format says it is."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What cannot be read within raises Damaged, which names the path."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Damaged(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from error


def limit(variable: str, usual: int) -> int:
    """A limit that an environment variable may set."""
    given = os.environ.get(variable) or str(usual)
    if not (given.isdecimal() and len(given) < 20 and int(given)):
        raise BadInput(f"{variable} '{given}' must be a whole number greater than 0")
    return int(given)


def room(size: int) -> int:
    """How many bytes a compressed file of this size may unpack to."""
    return max(ALWAYS, size * limit("EVERLEARN_UNPACKED", TIMES))


def too_much(size: int) -> OSError:
    more = 10 * room(size) // size
    return OSError(f"{size:,} bytes that unpack to more than {room(size):,}, unless EVERLEARN_UNPACKED={more}, say")


class _Gunzipped(io.RawIOBase):
    """The content of a gzip file, as far as it may unpack."""

    def __init__(self, raw: IO[bytes]):
        self.stream, self.size = gzip.GzipFile(fileobj=raw), os.fstat(raw.fileno()).st_size
        self.left = min(room(self.size), LARGEST)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.stream.readinto(memoryview(buffer)[:PIECE])
        self.left -= count
        if self.left < 0:
            raise too_much(self.size)
        return count


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The content of a published file as a stream, gunzipped where it begins as gzip does, whatever its name."""
    with reading(path), opened(path) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if (size := os.fstat(raw.fileno()).st_size) > LARGEST:
            raise OSError(f"{size:,} bytes, more than any file of a published data set")
        yield io.BufferedReader(_Gunzipped(raw)) if packed else raw


def md5(path: Path, unpack: bool = False) -> str:
    """The md5 of a file, or of what it holds once gunzipped."""
    with reading(path), unpacked(path) if unpack else opened(path) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()  # pyright: ignore


def labelled(images: np.ndarray, labels: Any, classes: int, where: Path | str) -> Split:
    """The pair, once there is one label in 0..classes-1 for each image; `where` is the file to name if not."""
    if not isinstance(labels, np.ndarray):  # numpy would make room for whatever else is in the list
        labels = np.array(labels) if all(type(label) is int for label in labels) else np.empty((0, 0))
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


def idx(path: Path, rank: int) -> np.ndarray:
    """IDX: 00 00, the type (08: bytes), the rank, each size as a big-endian uint32, then the values in C order."""
    with unpacked(path) as stream:
        head = stream.read(4 + 4 * rank)
        if head[:3] != b"\0\0\x08":
            raise Damaged(f"{path} is not an IDX file of bytes: it begins with '{head[:4].hex(' ')}', not '00 00 08'")
        if head[3:4] not in (b"", bytes([rank])):
            raise Damaged(f"{path} has {head[3]} dimensions where {rank} are expected")
        if len(head) < 4 + 4 * rank:
            raise Damaged(f"{path} is cut short: {len(head)} bytes, and not even its header is whole")
        shape = tuple(int(size) for size in np.frombuffer(head[4:], ">u4"))
        asked = math.prod(shape)
        content = stream.read(min(asked, LARGEST) + 1)
    if len(content) != asked:
        more = " at least" if len(content) > asked else ""
        raise Damaged(f"{path} has {len(content):,} bytes{more} after its header, which asks for {asked:,}")
    return np.frombuffer(content, np.uint8).reshape(shape).copy()


def idx_pair(images: Path, labels: Path, classes: int) -> Split:
    """One split of MNIST: an IDX file of grey images [N, H, W] and one of labels [N]."""
    return labelled(idx(images, 3)[:, None], idx(labels, 1), classes, labels)


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
            f"{path} asks for {brief(strange)}, which no image batch needs, and was not loaded: "
            "get the file from its official source"
        ) from None
    except Exception as error:  # a broken pickle may raise anything at all
        raise Damaged(f"{path} is not a pickled CIFAR batch ({type(error).__name__}: {brief(error)})") from error
    if not isinstance(batch, dict):
        raise Damaged(f"{path} is not a pickled CIFAR batch: it holds a {type(batch).__name__}, not a dict")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    pixels = batch.get("data")
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[1:] == (3072,)):
        raise Damaged(f"{path} is not a CIFAR batch: its 'data' is not a uint8 array of rows of 3,072")
    labels = batch.get("fine_labels", batch.get("labels"))
    if not isinstance(labels, (list, np.ndarray)):
        raise Damaged(f"{path} is not a CIFAR batch: it has neither 'labels' nor 'fine_labels'")
    return labelled(pixels.reshape(-1, 3, 32, 32), labels, classes, path)


# --- arrays ---


def arrays(path: Path, wanted: Collection[str] = ()) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, all or those wanted, or that of an .npy file under the name ''.

    Numbers, truth values and words alone; whatever is wrong raises an error of some kind.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return {"": _array(file, size)}
        with zipfile.ZipFile(file) as archive:
            named = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            entries = {key: entry for key, entry in named.items() if not wanted or key in wanted}
            if sum(entry.file_size for entry in entries.values()) > room(size):
                raise too_much(size)
            found = {}
            for key, entry in entries.items():
                with archive.open(entry) as member:
                    found[key] = _array(member, entry.file_size)
            return found


def _array(file: IO[bytes], size: int) -> np.ndarray:
    """One array in numpy's format, which has as many bytes as its header asks for."""
    version: Any = np.lib.format.read_magic(file)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in header:
        raise ValueError(f"an array of format {version}")
    shape, fortran, dtype = header[version](file)
    if dtype.kind not in "biufUS" or not dtype.itemsize:
        raise ValueError(f"an array of type {brief(dtype)}")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != (there := size - file.tell()):
        raise ValueError(f"an array of type {dtype}, shape {brief(shape)} and {there:,} bytes")
    array = np.empty(math.prod(shape), dtype)
    read, into = 0, array.view(np.uint8)
    while read < there:
        if not (piece := file.read(min(PIECE, there - read))):
            raise EOFError(f"cut short after {read:,} bytes")
        into[read : read + len(piece)] = np.frombuffer(piece, np.uint8)
        read += len(piece)
    file.read(1)  # to the end, where a zip compares its CRC
    return array.reshape(shape, order="F" if fortran else "C")


def brief(words: object) -> str:
    """Words of somebody else's, on one line and shortened to fit into a sentence."""
    text = " ".join(str(words)[:1000].split())
    return text if len(text) <= 120 else f"{text[:119]}…"


def words(array: np.ndarray, where: str) -> np.ndarray:
    """Names of classes as words."""
    try:
        if array.itemsize <= NAME:
            named = array.astype(str)
            named.tolist()
            return named
    except (ValueError, SystemError):  # their bytes are no text
        pass
    raise BadInput(f"{where} is {array.dtype}: save the names of the classes as short words")


def npz(path: Path) -> Parts:
    """x_train, y_train, x_test, y_test and, if you like, names: the class names in the order of the labels.

    Images are uint8 [N, H, W], [N, H, W, C] or [N, C, H, W] with C 1 or 3; where both the second and the last size
    could be the channels, the last one is. Labels are the integers 0..K-1, each of them at least once in both.
    """
    if path.is_dir():
        raise BadInput(f"{path} is a folder; folder:{path} names one of pictures")
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise Damaged(f"{path} is not an .npz file: write it with numpy.savez")
    try:
        found = arrays(path, (*NPZ, "names"))
    except Exception as error:  # zipfile, zlib and numpy each have their own
        raise Damaged(
            f"{path} is not a readable .npz file ({brief(error)}): write it again with numpy.savez"
        ) from error
    return _data_set(path, found)


def _data_set(path: Path, arrays: dict[str, np.ndarray]) -> Parts:
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
    names = arrays.get("names", known)
    if names.shape != known.shape:
        raise BadInput(f"'names' of {path} has the shape {names.shape} where y_train has {len(known)} classes")
    parts = [
        labelled(images, arrays[key], len(known), f"{key} of {path}")
        for images, key in ((train, "y_train"), (test, "y_test"))
    ]
    if len(lacking := np.setdiff1d(known, parts[1][1])):
        raise BadInput(f"y_test of {path} never has the label {lacking[0]}: both halves need every class")
    called = tuple(words(names, f"'names' of {path}").tolist())
    if twice := next((name for name in called if called.count(name) > 1), None):
        raise BadInput(f"'names' of {path} has '{twice}' twice; each class needs a name of its own")
    return parts[0], parts[1], called


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
