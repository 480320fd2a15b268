"""Data files made to do harm: nothing crashes, hangs, ends in a traceback, writes elsewhere or takes all memory.

Each file is read in a process of its own that starts warm, as a run reads it and as one that was told not to verify it.
A file is refused in one sentence, or read. `--official DIR` takes CIFAR's published pickles as the pattern; without
it, a small one of the same form is.
"""

# ruff: noqa: E501  # tables of bytes

import gzip
import io
import itertools
import json
import os
import pickle
import pickletools
import random
import resource
import shutil
import signal
import socket
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from record import Record, options

from everlearn.data import arrays, download, identity, photos, sources, verified
from everlearn.errors import EverlearnError

PATIENCE = 120  # seconds for one file
Build = Callable[[Path, random.Random], None]
Content = bytes | Callable[[], bytes]  # what is large is made when it is written
warnings.simplefilter("ignore")


# --- files as they should be ---


def noise(*shape: int, high: int = 256) -> np.ndarray:
    return np.random.default_rng(0).integers(0, high, shape, dtype=np.uint8)


def pickled_batch(rows: int) -> bytes:
    """As Python 2 wrote CIFAR's."""
    word = lambda text: b"U%c" % len(text) + text
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\1cnumpy\nndarray\nq\2K\0\x85" + word(b"b") + b"\x87Rq\3(K\1"
    array += b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", 3072) + b"\x86cnumpy\ndtype\nq\4" + word(b"u1")
    array += b"K\0K\1\x87Rq\5(K\3" + word(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T"
    array += struct.pack("<I", rows * 3072) + noise(rows, 3072).tobytes() + b"tb"
    labels = b"](" + b"".join(b"K%c" % (k % 10) for k in range(rows)) + b"e"
    names = b"](" + b"".join(word(b"%d.png" % k) for k in range(rows)) + b"e"
    parts = [b"\x80\2}q\0(", word(b"batch_label"), word(b"one"), word(b"labels"), labels, word(b"data"), array]
    return b"".join([*parts, word(b"filenames"), names, b"u."])


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


class Patterns:
    """What the hostile files are made from."""

    def __init__(self, official: Path | None) -> None:
        rows = 300
        self.pickle, self.binary = pickled_batch(rows), noise(rows, 3073, high=10).tobytes()
        if official:
            self.pickle = (official / "cifar-10-batches-py/data_batch_1").read_bytes()
        self.images, self.labels = idx(noise(rows, 28, 28)), idx((np.arange(rows) % 10).astype(np.uint8))
        x, y = noise(rows, 32, 32, 3), np.arange(rows) % 10
        self.arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, "names": np.array(list("abcdefghij"))}
        self.others = pickled_batch(300), noise(300, 3073, high=10).tobytes()  # the batches beside it
        ops = list(pickletools.genops(self.pickle))
        ends = [at for _, _, at in ops[1:]] + [len(self.pickle)]
        self.pieces = [self.pickle[at:end] for (_, _, at), end in zip(ops, ends, strict=True)]

    def photo(self) -> np.ndarray:
        """24 million pixels, as a camera makes them."""
        return np.repeat(noise(40, 6000, 3), 100, 0)


def packed(arrays: dict[str, Any], compress: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            file.writestr(f"{name}.npy", member.getvalue())
    return buffer.getvalue()


def put(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content() if callable(content) else content)


def picture(path: Path, pixels: np.ndarray, **how: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **how)


def mutated(content: bytes, rng: random.Random, times: int = 6, end: int | None = None) -> bytes:
    """Bytes changed, cut, doubled and moved, most of them near the beginning, where the form is."""
    out, end = bytearray(content), end or len(content)
    for _ in range(rng.randint(1, times)):
        at = rng.randrange(min(end, rng.choice((64, 512, end)), len(out) or 1))
        match rng.randrange(5):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                out[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)))
            case 2:
                del out[at : at + rng.choice((1, 4, 99))]
            case 3:
                out[at:at] = out[at : at + rng.choice((1, 8, 300))]
            case _:
                out[at : at + 8] = struct.pack(">Q", rng.choice((0, 2**63, 2**64 - 1, rng.randrange(2**64))))
    return bytes(out) if rng.random() < 0.8 else bytes(out[: rng.randrange(len(out) + 1)])


# --- hostile ones, by group: what is written, given a folder and random numbers ---

PIPE, SOCKET, DEVICE, FOLDER, LOOP, NOWHERE, OUTSIDE = (
    "a pipe",
    "a socket",
    "a device",
    "a folder",
    "a link round",
    "a link nowhere",
    "a link outside",
)
ODD = (PIPE, SOCKET, DEVICE, FOLDER, LOOP, NOWHERE, OUTSIDE)


def odd(path: Path, kind: str) -> None:
    """In the place of a file, something that is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == PIPE:
        os.mkfifo(path)
    elif kind == SOCKET:
        here = os.getcwd()
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
        os.chdir(here)
    elif kind == FOLDER:
        path.mkdir()
    else:
        path.symlink_to(
            {DEVICE: "/dev/zero", LOOP: path.name, NOWHERE: "nowhere/at/all", OUTSIDE: "../../outside/kept"}[kind]
        )


def strange_opcodes(p: Patterns) -> dict[str, Content]:
    """Pickles that call, bomb, nest and lie, most of them around the pattern's own content."""
    body, text = p.pickle[2:-1], lambda n: b"X" + struct.pack("<I", n) + b"a" * n
    array = lambda kind, shape, raw, extra=b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0": (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1" + shape + b"cnumpy\ndtype\nU"
        + bytes([len(kind)]) + kind + b"K\0K\1\x87R(K\3U\1|" + extra + b"tb\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"
    )  # fmt: skip
    batch = lambda labels, data: b"\x80\2}(U\6labels" + labels + b"U\4data" + data + b"u."
    good, shape = array(b"u1", b"K\2M\0\x0c\x86", bytes(6144)), b"K\2M\0\x0c\x86"
    touch = b"touch ../outside/touched"
    found = {
        "a call of os.system": b"\x80\2cos\nsystem\nU" + bytes([len(touch)]) + touch + b"\x85R.",
        "a call within the batch": b"\x80\2cposix\nsystem\nU" + bytes([len(touch)]) + touch + b"\x85R0" + body + b".",
        "eval by builtins": b"\x80\2c__builtin__\neval\nU\x031+1\x85R.",
        "getattr": b"\x80\2cbuiltins\ngetattr\n(cnumpy\nndarray\nU\6__new__tR.",
        "numpy's scalar": b"\x80\2cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\nU\1O\x85RU\x08" + b"\x41" * 8 + b"tR.",
        "numpy's load": b"\x80\2cnumpy\nload\nU\x0f../outside/kept\x85R.",
        "an instance": b"\x80\2(U\4trueios\nsystem\n.",
        "an object": b"\x80\2(cos\nsystem\nU\4trueo.",
        "a new object": b"\x80\2cnumpy\nndarray\n)\x81.",
        "a persistent name": b"\x80\2U\1aQ.",
        "an extension": b"\x80\2\x82\1.",
        "a stack of marks": lambda: b"\x80\2" + b"(" * 1_500_000 + b".",
        "nothing on the stack": b"\x80\2.",
        "a pop of nothing": b"\x80\2000.",
        "a dict of numbers that collide": lambda: b"\x80\2}(" + b"".join(
            b"\x8a\x0c" + (k * (2**61 - 1)).to_bytes(12, "little") + b"K\0" for k in range(1, 60_000)
        ) + b"u.",
        "a deep tuple as a key": lambda: b"\x80\2}(" + b")" + b"\x85" * 1_000_000 + b"K\0u.",
        "deep lists": lambda: b"\x80\2" + b"]" * 900_000 + b"a" * 899_999 + b".",
        "a list in itself": batch(b"]q\0h\0a", good),
        "deep lists as labels": lambda: batch(b"]" * 300_000 + b"a" * 299_999, good),
        "long bytes among the labels": lambda: batch(b"](T" + struct.pack("<I", 5_000_000) + bytes(5_000_000) + b"q\0" + b"h\0" * 800 + b"e", good),
        "arrays as labels": batch(b"](" + good + b"q\0" + b"h\0" * 3000 + b"e", good),
        "objects as labels": batch(array(b"O8", b"K\2\x85", b"\x41" * 16, b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?"), good),
        "words as labels": batch(b"](" + text(9) * 2 + b"e", good),
        "huge labels": batch(b"](" + (b"\x8a\xff" + b"\x7f" * 255) * 2 + b"e", good),
        "objects as pixels": batch(b"](K\0K\1e", array(b"O8", b"K\1K\2\x86", b"\x41" * 16)),
        "objects without their flag": batch(b"](K\0K\1e", array(b"O8", b"K\1K\2\x86", b"\x41" * 16, b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0")),
        "a structure as type": batch(b"](K\0K\1e", array(b"V8", b"K\2\x85", bytes(16), b"(U\1at}U\1ah\0sK\x08K\1K\x10")),
        "a shape of more than there is": batch(b"](K\0K\1e", array(b"u1", b"J\xff\xff\xff\x7fM\0\x0c\x86", bytes(6144))),
        "a negative shape": batch(b"](K\0K\1e", array(b"u1", b"J\xff\xff\xff\xffJ\x00\xf4\xff\xff\x86", bytes(6144))),
        "a shape of a hundred sizes": batch(b"](K\0K\1e", array(b"u1", b"(" + b"K\1" * 100 + b"t", b"\0")),
        "a shape of huge numbers": lambda: batch(b"](K\0K\1e", array(b"u1", b"(" + (b"\x8a\xff" + b"\x7f" * 255) * 3000 + b"t", b"\0")),
        "an order that is an array": b"\x80\2cnumpy.core.numeric\n_frombuffer\n(T\2\0\0\0aacnumpy\ndtype\nU\2u1\x85R" + b"K\2\x85" + good + b"tR.",
        "bytes made a thousand times": lambda: b"\x80\2(" + text(2_000_000) + b"U\6latin1\x86q\0" + b"c_codecs\nencode\nh\0R" * 1000 + b"t.",
        "arrays made a thousand times": lambda: b"\x80\2(" + array(b"u1", shape, bytes(6144)) * 1000 + b"t.",
        "arrays of one string": lambda: b"\x80\2(T" + struct.pack("<I", 6_144_000) + bytes(6_144_000) + b"q\0cnumpy\ndtype\nU\2u1\x85Rq\1"
        + b"cnumpy.core.numeric\n_frombuffer\n(h\0h\1M\xd0\x07M\0\x0c\x86U\1CtR" * 400 + b"t.",
        "two million numbers": lambda: b"\x80\2](" + b"K\0" * 3_000_000 + b"e.",
        "a length of four billion": b"\x80\2T\xff\xff\xff\x7fabc.",
        "a length of 2**63": b"\x80\4\x8d" + b"\xff" * 8 + b"abc.",
        "text that is none": b"\x80\2X\2\0\0\0\xff\xff.",
        "a number of a million digits": lambda: b"L" + b"9" * 1_000_000 + b"L\n.",
        "a number of 2 MB": lambda: b"\x80\2\x8b" + struct.pack("<I", 2_000_000) + b"\x7f" * 2_000_000 + b".",
        "a long name": lambda: b"\x80\2c" + b"n" * 3_000_000 + b"\nx\n.",
        "escapes in a name": b"\x80\2c\x1b[2J\x1b]0;x\x07\nx\n.",
        "a memo that is not there": b"\x80\2h\x63.",
        "frames without end": b"\x80\4" + (b"\x95" + b"\xff" * 8) * 99 + b".",
        "protocol 255": b"\x80\xff" + body + b".",
        "no stop": p.pickle[:-1],
        "twice": lambda: p.pickle + p.pickle,
        "as the newest protocol": pickle.dumps({"labels": [0, 1], "data": np.zeros((2, 3072), np.uint8)}, 5),
        "an array on its own": b"\x80\2" + good + b".",
        "pixels in Fortran's order": b"\x80\2" + good.replace(b"\x89T", b"\x88T") + b".",
        "a packed bomb": lambda: gzip.compress(b"\x80\2(" + b"N" * 60_000_000, 1),
        "packed and cut": lambda: gzip.compress(p.pickle)[:-9],
        "packed twice": lambda: gzip.compress(gzip.compress(p.pickle, 1), 1),
    }  # fmt: skip
    return found


def pickles(p: Patterns) -> Iterator[tuple[str, Build]]:
    root = "cifar10/cifar-10-batches-py"

    def beside(path: Path) -> None:
        for name in ("data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
            os.link(valid_file(p.others[0]), path / root / name)

    def put_batch(content: Content) -> Build:
        return lambda path, rng: (put(path / root / "data_batch_1", content), beside(path))[0]

    yield "", put_batch(p.pickle)
    for name, content in strange_opcodes(p).items():
        yield name, put_batch(content)
    for kind in ODD:
        yield kind, lambda path, rng, kind=kind: (odd(path / root / "data_batch_1", kind), beside(path))[0]

    def shuffled(path: Path, rng: random.Random) -> None:
        """The published instructions: some doubled, left out, exchanged or with other arguments."""
        pieces = list(p.pieces)
        for _ in range(rng.randint(1, 9)):
            at = rng.choice((rng.randrange(min(40, len(pieces))), rng.randrange(len(pieces)), -rng.randint(1, 40)))
            match rng.randrange(4):
                case 0:
                    pieces[at] = pieces[at] * 2
                case 1:
                    pieces[at] = b""
                case 2:
                    other = rng.randrange(-40, min(60, len(pieces)))
                    pieces[at], pieces[other] = pieces[other], pieces[at]
                case _:
                    pieces[at] = mutated(pieces[at], rng, 2, 16) if pieces[at] else b"N"
        put(path / root / "data_batch_1", b"".join(pieces))
        beside(path)

    while True:
        yield "its own instructions", shuffled


def binaries(p: Patterns) -> Iterator[tuple[str, Build]]:
    root = "cifar10/cifar-10-batches-bin"

    def batch(make: Callable[[Path, random.Random], None]) -> Build:
        def build(path: Path, rng: random.Random) -> None:
            for name in ("data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
                put(path / root / "x", b"")
                os.link(valid_file(p.others[1]), path / root / f"{name}.bin")
            make(path / root / "data_batch_1.bin", rng)

        return build

    yield "", batch(lambda path, rng: put(path, p.binary))
    contents = {
        "empty": b"",
        "a bomb": lambda: gzip.compress(bytes(3073 * 65_000), 6),
        "cut": p.binary[:-1],
        "labels of 255": lambda: b"\xff" * len(p.binary),
        "packed and cut": lambda: gzip.compress(p.binary)[:-9],
        "gzip's header alone": b"\x1f\x8b",
        "a thousand members": lambda: gzip.compress(p.binary[:3073]) * 1000,
        "rubbish after gzip": lambda: gzip.compress(p.binary) + b"rubbish" * 99,
    }
    for name, content in contents.items():
        yield name, batch(lambda path, rng, content=content: put(path, content))
    for kind in ODD:
        yield kind, batch(lambda path, rng, kind=kind: odd(path, kind))

    def sparse(path: Path, rng: random.Random) -> None:
        put(path, b"")
        os.truncate(path, 50 * 2**30)

    yield "50 GiB of nothing", batch(sparse)
    while True:
        yield "random bytes", batch(lambda path, rng: put(path, mutated(p.binary, rng)))


def idx_files(p: Patterns) -> Iterator[tuple[str, Build]]:
    def four(make: Callable[[Path, random.Random], None], which: str = "train-images-idx3-ubyte") -> Build:
        def build(path: Path, rng: random.Random) -> None:
            for half in ("train", "t10k"):
                put(path / f"mnist/{half}-images-idx3-ubyte", p.images)
                put(path / f"mnist/{half}-labels-idx1-ubyte", p.labels)
            make(path / "mnist" / which, rng)

        return build

    yield "", four(lambda path, rng: None)
    head = lambda rank, *sizes: b"\0\0\x08" + bytes([rank]) + struct.pack(f">{len(sizes)}I", *sizes)
    contents = {
        "sizes of four billion": head(3, *[2**32 - 1] * 3) + bytes(99),
        "a size of nothing": head(3, 0, 28, 28),
        "255 dimensions": head(255, *[1] * 255) + b"\0",
        "no dimensions": head(0) + b"\0",
        "floats": b"\0\0\x0d" + p.images[3:],
        "a bomb": lambda: gzip.compress(head(3, 65_000, 64, 64) + bytes(65_000 * 64 * 64), 6),
        "a bomb in a bomb": lambda: gzip.compress(gzip.compress(bytes(120_000_000), 9), 9),
        "less than the header": p.images[:5],
        "one byte more": p.images + b"\0",
        "empty": b"",
        "another size": head(3, 784, 100, len(p.images) // 78_400) + p.images[16:],
    }
    for name, content in contents.items():
        yield name, four(lambda path, rng, content=content: put(path, content))
    for kind in ODD:
        yield kind, four(lambda path, rng, kind=kind: odd(path, kind))
    while True:
        yield "random bytes", four(lambda path, rng: put(path, mutated(p.images, rng)))
        yield "random labels", four(lambda path, rng: put(path, mutated(p.labels, rng)), "train-labels-idx1-ubyte")


def npy(header: str, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + content


def npz_files(p: Patterns) -> Iterator[tuple[str, Build]]:
    whole = packed(p.arrays)
    said = lambda kind, shape: f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n"

    def members(changes: dict[str, Content], how: int = zipfile.ZIP_STORED) -> Content:
        def make() -> bytes:
            buffer = io.BytesIO()
            with zipfile.ZipFile(io.BytesIO(whole)) as file, zipfile.ZipFile(buffer, "w", how) as out:
                for name in [*file.namelist(), *(changes.keys() - set(file.namelist()))]:
                    content = changes.get(name) or file.read(name)
                    out.writestr(name, content() if callable(content) else content)
            return buffer.getvalue()

        return make

    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as file:
        for k in range(2000):
            file.writestr(f"{k}.npy", b"")
    contents = {
        "a shape of 10**18": members({"x_train.npy": npy(said("|u1", (10**9, 10**9)), bytes(99))}),
        "objects": members({"x_train.npy": npy(said("|O", (1,)), pickle.dumps([1]))}),
        "a structure": members({"names.npy": npy("{'descr': [('a', '<u4')], 'fortran_order': False, 'shape': (10,)}\n", bytes(40))}),
        "names of a gigabyte": members({"names.npy": npy(said("<U250000000", (10,)), bytes(99))}),
        "long names": members({"names.npy": npy(said("|S500000", (10,)), bytes(5_000_000))}),
        "names in no alphabet": members({"names.npy": npy(said("<U1", (10,)), b"\xff" * 40)}),
        "names that are bytes": members({"names.npy": npy(said("|S1", (10,)), b"\xff" * 10)}),
        "code in the header": members({"x_train.npy": npy("__import__('os').system('touch ../outside/touched')\n", bytes(9))}),
        "a header of parentheses": members({"x_train.npy": npy("(" * 9000 + "\n", bytes(9))}),
        "a header of 60 kB": members({"x_train.npy": npy(" " * 60_000 + "\n", bytes(9))}),
        "a shape of numbers of 5,000 digits": members({"x_train.npy": npy(said("|u1", f"({'9' * 5000},)"), bytes(9))}),
        "a hundred dimensions": members({"x_train.npy": npy(said("|u1", (1,) * 100), b"\0")}),
        "negative sizes": members({"x_train.npy": npy(said("|u1", (-1, -9)), bytes(9))}),
        "version 9": members({"x_train.npy": npy(said("|u1", (9,)), bytes(9), b"\x09\0")}),
        "no array": members({"x_train.npy": b"nothing"}),
        "an empty member": members({"x_train.npy": b" "}),
        "labels in floats": members({"y_train.npy": npy(said("<f8", (300,)), bytes(2400))}),
        "labels of 2**63": members({"y_train.npy": npy(said("<u8", (2,)), b"\xff" * 16)}),
        "times as labels": members({"y_train.npy": npy(said("<M8[s]", (2,)), b"\xff" * 16)}),
        "blank pictures": lambda: packed(p.arrays | {"x_train": np.zeros((150, 700, 700, 3), np.uint8)}, zipfile.ZIP_DEFLATED),
        "a bomb by bzip2": members({"x_train.npy": lambda: npy(said("|u1", (120_000_000,)), bytes(120_000_000))}, zipfile.ZIP_BZIP2),
        "a bomb by lzma": members({"x_train.npy": lambda: npy(said("|u1", (120_000_000,)), bytes(120_000_000))}, zipfile.ZIP_LZMA),
        "paths that lead out": members({"../../outside/x_train.npy": bytes(9), "/etc/x.npy": bytes(9)}),
        "names twice": whole[:-22] + whole,
        "two thousand members": many.getvalue(),
        "no zip": b"PK\3\4" + bytes(99),
        "an end alone": b"PK\5\6" + bytes(18),
        "cut": whole[: len(whole) // 2],
    }  # fmt: skip
    yield "", lambda path, rng: put(path / "a.npz", whole)
    for name, content in contents.items():
        yield name, lambda path, rng, content=content: put(path / "a.npz", content)
    for kind in ODD:
        yield kind, lambda path, rng, kind=kind: odd(path / "a.npz", kind)
    last = len(whole) - 600

    def ends(path: Path, rng: random.Random) -> None:
        put(path / "a.npz", whole[:last] + mutated(whole[last:], rng))

    while True:
        yield "its directory", ends
        yield "random bytes", lambda path, rng: put(path / "a.npz", mutated(whole, rng))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes, *more: bytes, bits: int = 8, colour: int = 2) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def picture_bytes(kind: str, pixels: np.ndarray, **how: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **how)
    return buffer.getvalue()


def pictures(p: Patterns) -> Iterator[tuple[str, Build]]:
    small = noise(40, 30, 3)
    forms = {kind: picture_bytes(kind, small) for kind in ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")}
    large = picture_bytes("PNG", p.photo(), compress_level=1)

    def folder(make: Callable[[Path, random.Random], None]) -> Build:
        def build(path: Path, rng: random.Random) -> None:
            for name in "ab":
                for k in range(3):
                    put(path / f"own/{name}/{k}.png", forms["PNG"])
            put(path / "own/a/large.png", large)
            make(path / "own/a/bad.png", rng)

        return build

    yield "", folder(lambda path, rng: None)
    row = zlib.compress(bytes(1 + 3 * 9000) * 1000, 9)
    contents = {
        "a bomb of 89 million pixels": lambda: png(9400, 9500, zlib.compress(bytes((1 + 3 * 9400) * 9500), 9)),
        "a bomb of 10 billion pixels": png(100_000, 100_000, row),
        "four billion pixels a side": png(2**31 - 1, 2**31 - 1, row),
        "no pixels": png(0, 0, row),
        "pixels cut short": png(3000, 3000, row[:200]),
        "pixels that are none": png(3000, 3000, b"rubbish"),
        "text that unpacks": lambda: png(30, 30, row, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(90_000_000), 9))),
        "a hundred texts that unpack": lambda: png(30, 30, row, *[chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(900_000), 9))] * 100),
        "a profile that unpacks": lambda: png(30, 30, row, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(90_000_000), 9))),
        "EXIF that is none": png(30, 30, row, chunk(b"eXIf", b"MM\0\x2a" + b"\xff" * 999)),
        "EXIF that leads round": png(30, 30, row, chunk(b"eXIf", b"II\x2a\0\x08\0\0\0\1\0\x69\x87\4\0\1\0\0\0\x08\0\0\0\x08\0\0\0")),
        "a chunk of 2 GB": b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 2**31 - 1) + b"IHDR",
        "sixteen bits": lambda: png(3000, 3000, zlib.compress(bytes((1 + 6 * 3000) * 3000), 9), bits=16),
        "a palette of nothing": png(300, 300, row, colour=3),
        "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(../outside/touched) (w) file\n",
        "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
        "an icon": b"\0\0\1\0\1\0\0\0\0\0\1\0\x20\0\xff\xff\xff\x7f\x16\0\0\0",
        "empty": b"",
        "animated": picture_bytes("GIF", small, save_all=True, append_images=[Image.fromarray(small[::-1])] * 50),
        "a TIFF of many tags": b"II\x2a\0\x08\0\0\0\xff\xff" + bytes(70_000),
        "a BMP without end": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, 2**31 - 1, 2**31 - 1, 1, 24, 0, 0, 0, 0, 0, 0),
        "a JPEG of 65,535 a side": forms["JPEG"].replace(b"\xff\xc0\0\x11\x08\0\x28\0\x1e", b"\xff\xc0\0\x11\x08\xff\xff\xff\xff"),
    }  # fmt: skip
    for name, content in contents.items():
        yield name, folder(lambda path, rng, content=content: put(path, content))
    for kind in ODD:
        yield kind, folder(lambda path, rng, kind=kind: odd(path, kind))
    for name in ("\x1b[2J.png", "a\nb.png", "-rf.png", " .png", "x" * 200 + ".png"):
        yield f"the name {name[:9]!r}", folder(lambda path, rng, name=name: put(path.with_name(name), b"rubbish"))
    yield "a link to the folder above", folder(lambda path, rng: path.with_name("up").symlink_to(".."))
    yield "a thousand folders deep", folder(lambda path, rng: deep(path.with_name("d"), 400))
    while True:
        for kind, content in forms.items():
            yield (
                f"random bytes of a {kind}",
                folder(lambda path, rng, content=content: put(path, mutated(content, rng))),
            )


def deep(path: Path, levels: int) -> None:
    here = os.getcwd()
    path.mkdir()
    os.chdir(path)
    for _ in range(levels):
        os.mkdir("d")
        os.chdir("d")
    Path("x.png").write_bytes(b"")
    os.chdir(here)


def tiny_folders(p: Patterns) -> Iterator[tuple[str, Build]]:
    jpeg = picture_bytes("JPEG", noise(64, 64, 3))
    root = "tinyimagenet/tiny-imagenet-200"

    def folder(make: Callable[[Path, random.Random], None]) -> Build:
        def build(path: Path, rng: random.Random) -> None:
            for wnid in ("n01", "n02", "n03"):
                for k in range(20):
                    put(path / root / f"train/{wnid}/images/{wnid}_{k}.JPEG", jpeg)
                put(path / root / f"val/images/{wnid}.JPEG", jpeg)
            put(path / root / "wnids.txt", b"n01\nn02\nn03\n")
            put(path / root / "words.txt", b"n01\tcat, a pet\nn02\tdog\n")
            put(path / root / "val/val_annotations.txt", b"".join(b"n0%d.JPEG\tn0%d\t0\n" % (k, k) for k in (1, 2, 3)))
            make(path / root, rng)

        return build

    yield "", folder(lambda path, rng: None)
    texts = {"classes": "wnids.txt", "names": "words.txt", "labels": "val/val_annotations.txt"}
    contents = {
        "paths as classes": ("classes", b"../../outside\nn01\nn02\nn03\n/etc\n"),
        "paths as files": ("labels", b"../../../../outside/kept\tn01\n"),
        "an absolute path": ("labels", b"/etc/passwd\tn01\n"),
        "a zero in a name": ("labels", b"a\0b.JPEG\tn01\n"),
        "a million tabs": ("labels", b"\t" * 1_000_000),
        "a million lines": ("labels", b"\n" * 1_000_000),
        "two million classes": ("classes", lambda: b"a " * 2_000_000),
        "ten million bytes": ("names", lambda: b"x" * 10_000_000),
        "no text": ("classes", bytes(range(256)) * 99),
        "escapes in names": ("names", b"n01\t\x1b[2J\x1b]0;gone\x07\n"),
        "classes twice": ("classes", b"n01\nn01\nn02\nn03\n"),
        "no classes": ("classes", b""),
    }
    for name, (text, content) in contents.items():
        yield name, folder(lambda path, rng, text=text, content=content: put(path / texts[text], content))
    for kind in ODD:
        for what, text in texts.items():
            yield f"{kind} for its {what}", folder(lambda path, rng, text=text, kind=kind: odd(path / text, kind))
        yield f"{kind} for a picture", folder(lambda path, rng, kind=kind: odd(path / "val/images/n01.JPEG", kind))
        yield (
            f"{kind} for the cache",
            folder(lambda path, rng, kind=kind: odd(path.with_name(f"{path.name}.npz"), kind)),
        )
    caches = {
        "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", pickle.dumps([1])),
        "rubbish": bytes(999),
    }
    for name, content in caches.items():
        yield (
            f"a cache of {name}",
            folder(lambda path, rng, content=content: put(path.with_name(f"{path.name}.npz"), content)),
        )
    yield "a huge picture", folder(lambda path, rng: put(path / "val/images/n01.JPEG", png(30_000, 30_000, b"")))
    yield (
        "a link of train to itself",
        folder(lambda path, rng: (path / "train/n01/images/n01_99.JPEG").symlink_to("../..")),
    )
    while True:
        yield "random pictures", folder(lambda path, rng: put(path / "train/n02/images/n02_0.JPEG", mutated(jpeg, rng)))
        yield "random classes", folder(lambda path, rng: put(path / "wnids.txt", mutated(b"n01\nn02\nn03\n" * 9, rng)))


def memories(p: Patterns) -> Iterator[tuple[str, Build]]:
    """What is remembered of verified files, in the user's cache folder."""

    def remembering(make: Callable[[Path], None]) -> Build:
        def build(path: Path, rng: random.Random) -> None:
            put(path / "mnist/train-images-idx3-ubyte", p.images)
            put(path / "mnist/t10k-images-idx3-ubyte", p.images)
            put(path / "mnist/train-labels-idx1-ubyte", p.labels)
            put(path / "mnist/t10k-labels-idx1-ubyte", p.labels)
            make(path / "memory/verified.json")

        return build

    yield "", remembering(lambda path: put(path, b"{}"))
    contents = {
        "nested": lambda: b"[" * 500_000,
        "a number of 5,000 digits": b'{"a": ' + b"9" * 5000 + b"}",
        "ten million rows": lambda: b'{"a": ["b", "c"],' * 600_000,
        "no text": bytes(range(256)),
        "a list": b"[1, 2]",
        "rows of another form": b'{"a": [[], {}], "b": 3, "c": null}',
        "endless": lambda: b'{"a": "' + b"x" * 5_000_000,
    }
    for name, content in contents.items():
        yield name, remembering(lambda path, content=content: put(path, content))
    for kind in ODD:
        yield kind, remembering(lambda path, kind=kind: odd(path, kind))
    valid = json.dumps({f"/data/{k}": ["0" * 32, "1" * 32] for k in range(50)}).encode()
    while True:
        yield "random bytes", lambda path, rng: remembering(lambda file: put(file, mutated(valid, rng)))(path, rng)


def archives(p: Patterns) -> Iterator[tuple[str, Build]]:
    """Archives that were taken for the published ones."""

    def tarred(*entries: tarfile.TarInfo) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for entry in entries:
                entry.size = 3 if entry.isreg() else 0
                archive.addfile(entry, io.BytesIO(b"abc"))
        return buffer.getvalue()

    def entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
        made = tarfile.TarInfo(name)
        made.type, made.linkname = kind, to
        return made

    def zipped(*names: str, link: str = "") -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in names:
                made = zipfile.ZipInfo(name)
                made.external_attr = (0o120777 << 16) if name == link else 0
                archive.writestr(made, "../../outside")
        return buffer.getvalue()

    link, hard = tarfile.SYMTYPE, tarfile.LNKTYPE
    contents = {
        "": tarred(entry("folder/file")),
        "a path out": tarred(entry("../outside/touched")),
        "a path from the root": tarred(entry("/tmp/everlearn-touched")),
        "a link out": tarred(entry("a", link, "../outside"), entry("a/touched")),
        "a link out, absolute": tarred(entry("a", link, "/tmp"), entry("a/everlearn-touched")),
        "a hard link out": tarred(entry("a", hard, "../outside/kept"), entry("a")),
        "two links": tarred(entry("a/b", link, ".."), entry("c", link, "a/b/../../outside"), entry("c/touched")),
        "a device": tarred(entry("a", tarfile.CHRTYPE)),
        "a pipe": tarred(entry("a", tarfile.FIFOTYPE)),
        "no archive": b"\x1f\x8b" + bytes(99),
    }
    for name, content in contents.items():
        yield name, lambda path, rng, content=content: put(path / "archive.tar.gz", content)
    for name, content in {
        "a zip that leads out": zipped("../outside/touched"),
        "a zip from the root": zipped("/tmp/everlearn-touched"),
        "a zip with backslashes": zipped("..\\outside\\touched"),
        "a zip with a link": zipped("a", "a/touched", link="a"),
        "no zip": b"PK\5\6" + bytes(18),
    }.items():
        yield name, lambda path, rng, content=content: put(path / "archive.zip", content)
    tar = gzip.decompress(contents["a path out"])
    while True:
        yield "random bytes of a tar", lambda path, rng: put(path / "archive.tar.gz", gzip.compress(mutated(tar, rng)))


# --- how they are read ---


def ask_named(name: str) -> Callable[[Path], None]:
    def ask(path: Path) -> None:
        for allowed in ("", "1"):
            os.environ["EVERLEARN_UNVERIFIED"] = allowed
            identity.fingerprint(name, path)
            refusable(lambda: sources.read(name, path))
        refusable(lambda: sources.check(name, path))
        sources.found(name, path)

    return ask


def ask_npz(path: Path) -> None:
    name = f"npz:{path}/a.npz"
    refusable(lambda: identity.fingerprint(name))
    for read in (
        lambda: sources.read(name),
        lambda: arrays.labelled(path / "a.npz"),
        lambda: arrays.alone(path / "a.npz"),
    ):
        refusable(read)


def ask_pictures(path: Path) -> None:
    name = f"folder:{path}/own"
    refusable(lambda: identity.fingerprint(name))
    refusable(lambda: sources.read(name))
    refusable(lambda: sources.read(name, size=32, strict=True))
    refusable(lambda: photos.photo(path / "own/a/bad.png", 32))


def ask_archive(path: Path) -> None:
    for name in ("archive.tar.gz", "archive.zip"):
        if (path / name).exists():
            refusable(lambda name=name: download._unpack(path / name, path))


def refusable(read: Callable[[], object]) -> None:
    """It may be refused, in one sentence."""
    try:
        read()
    except EverlearnError as error:
        if "\n" in str(error).replace("\\n", "") and "a\nb.png" not in str(error):
            raise AssertionError(f"more than a line: {str(error)[:200]!r}") from error
        if len(str(error)) > 3000:
            raise AssertionError(f"a sentence of {len(str(error))} letters") from error


GROUPS: dict[str, tuple[Callable[[Patterns], Iterator[tuple[str, Build]]], Callable[[Path], None]]] = {
    "CIFAR pickles": (pickles, ask_named("cifar10")),
    "CIFAR binary files": (binaries, ask_named("cifar10")),
    "IDX files": (idx_files, ask_named("mnist")),
    "npz files": (npz_files, ask_npz),
    "pictures": (pictures, ask_pictures),
    "Tiny ImageNet": (tiny_folders, ask_named("tinyimagenet")),
    "what is remembered": (memories, ask_named("mnist")),
    "archives": (archives, ask_archive),
}
_valid: dict[int, Path] = {}


def valid_file(content: bytes) -> Path:
    """A file with this content, to be linked to rather than written again."""
    if id(content) not in _valid:
        path = Path(tempfile.mkdtemp(prefix="valid-", dir=WORK)) / "file"
        path.write_bytes(content)
        _valid[id(content)] = path
    return _valid[id(content)]


def tried(ask: Callable[[Path], None], folder: Path) -> tuple[str | None, int]:
    """Read it in a process of its own: what went wrong, and the most memory it had, in bytes."""
    told, tell = os.pipe()
    if not (child := os.fork()):
        wrong = None
        try:
            os.close(told)
            os.chdir(folder)
            verified.MEMORY = str(folder / "memory/verified.json")
            verified.SETTLED = -1
            ask(folder)
        except BaseException:
            wrong = traceback.format_exc()[-1500:]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        os.write(tell, json.dumps([wrong, peak]).encode())
        os._exit(0)
    os.close(tell)
    begun = time.monotonic()
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() - begun > PATIENCE:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(told)
            return f"not done after {PATIENCE} s", 0
        time.sleep(0.002)
    with os.fdopen(told, "rb") as pipe:
        answer = pipe.read()
    if ended[1]:
        return f"ended by signal {os.waitstatus_to_exitcode(ended[1])}", 0
    wrong, peak = json.loads(answer)
    return wrong, peak


def choice(patterns: Patterns, count: int) -> dict[str, list[tuple[str, Build]]]:
    """Of each group the valid file, then hostile ones: all that have a name and random ones, or of few every so-manieth."""
    endless = {group: make(patterns) for group, (make, _) in GROUPS.items()}
    valid = {group: next(cases) for group, cases in endless.items()}
    random_ones = lambda case: case[0].startswith(("random", "its "))
    named = {
        group: list(itertools.takewhile(lambda case: not random_ones(case), cases)) for group, cases in endless.items()
    }
    left = count - sum(map(len, named.values()))
    step = 1 if left >= 0 else -(-sum(map(len, named.values())) // count)
    return {
        group: [valid[group], *named[group][::step], *itertools.islice(cases, max(0, left) // len(GROUPS))]
        for group, cases in endless.items()
    }


def seen(outside: Path) -> list[tuple]:
    entries = [outside, *sorted(outside.rglob("*")), *Path("/tmp").glob("everlearn-touched*")]
    return [(str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in entries]


def main() -> int:
    parser = options(__doc__ or "", 400)
    parser.add_argument("--official", type=Path, help="a folder with CIFAR-10's published pickles")
    arguments = parser.parse_args()
    record = Record("hostile", "No hostile data file crashes, hangs, ends in a traceback, writes elsewhere or takes "
                    "twice the memory of a valid one.")  # fmt: skip
    patterns, slowest, most = Patterns(arguments.official), 0.0, 0.0
    outside = WORK / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    photos.photo(valid_file(forms_png()))  # Pillow is loaded before the first process starts
    for content in patterns.others:
        valid_file(content)
    before = seen(outside)
    for group, chosen in choice(patterns, arguments.count).items():
        ask = GROUPS[group][1]
        usual = 0
        for number, (name, build) in enumerate(chosen):
            folder = WORK / "case"
            folder.mkdir()
            if not (child := os.fork()):  # so that this process stays small
                try:
                    build(folder, random.Random(f"{arguments.seed} {group} {number}"))
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                raise SystemExit(f"{group}: {name} could not be made")
            begun = time.monotonic()
            wrong, peak = tried(ask, folder)
            slowest = max(slowest, time.monotonic() - begun)
            shutil.rmtree(folder)
            if not number:
                usual = peak
                if wrong:
                    raise SystemExit(f"the valid file of {group}: {wrong}")
                continue
            most = max(most, peak / usual)
            if wrong is None and peak > 2 * usual:
                wrong = f"{peak / 2**20:.0f} MiB where the valid file takes {usual / 2**20:.0f}"
            if seen(outside) != before:
                wrong, before = f"something outside was touched; {wrong}", seen(outside)
            record.tried(group, f"{name} ({number})", wrong)
    record.figures |= {
        "most memory, in times of the valid file's": round(most, 2),
        "slowest, seconds": round(slowest, 1),
    }
    return record.end(arguments.out)


def forms_png() -> bytes:
    return picture_bytes("PNG", noise(4, 4, 3))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hostile-") as made:
        WORK = Path(made)
        sys.exit(main())
