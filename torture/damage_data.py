"""Damaged data files: a run refuses them, or is another experiment; none is read under the old name without a word.

Every file that a run reads of a data set is damaged: bits, bytes and labels changed, cut, lengthened, blocks exchanged,
emptied, exchanged with another, some with their old time put back. The small files of named data sets stand in
the catalogue as the published ones; `--official DIR` adds CIFAR's published files themselves.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hostile import idx, noise, packed, pickled_batch, picture_bytes, put
from record import Record, options

from everlearn.data import catalogue, identity, sources, tiny, verified
from everlearn.errors import EverlearnError

TICK = 0.012  # seconds after which a file's time is another
warnings.simplefilter("ignore")


# --- damages: the content of a file to another ---


def _block(rng: random.Random, content: bytes) -> tuple[int, int]:
    size = rng.randint(1, max(1, min(200, len(content) // 3)))
    return rng.randrange(len(content) - size + 1), size


def flipped(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]


def overwritten(content: bytes, rng: random.Random) -> bytes:
    at, size = _block(rng, content)
    return content[:at] + rng.randbytes(size) + content[at + size :]


def zeroed(content: bytes, rng: random.Random) -> bytes:
    at, size = _block(rng, content)
    return content[:at] + bytes(size) + content[at + size :]


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.choice((rng.randrange(len(content)), len(content) - 1))]


def lengthened(content: bytes, rng: random.Random) -> bytes:
    return content + rng.choice((rng.randbytes(rng.randint(1, 99)), content, b"\0"))


def exchanged(content: bytes, rng: random.Random) -> bytes:
    (one, size), (other, _) = _block(rng, content), _block(rng, content)
    one, other = sorted((one, min(other, len(content) - size)))
    if other < one + size:
        return content[::-1]
    middle = content[one + size : other]
    return content[:one] + content[other : other + size] + middle + content[one : one + size] + content[other + size :]


def left_out(content: bytes, rng: random.Random) -> bytes:
    at, size = _block(rng, content)
    return content[:at] + content[at + size :]


def emptied(content: bytes, rng: random.Random) -> bytes:
    return b""


def relabelled(content: bytes, rng: random.Random) -> bytes:
    """The first byte that could be a label, one up: in IDX after the header, in CIFAR's rows the first."""
    at = 8 if content[:3] == b"\0\0\x08" else 0
    return content[:at] + bytes([(content[at] + 1) % 10]) + content[at + 1 :]


DAMAGES = (flipped, overwritten, zeroed, cut, lengthened, exchanged, left_out, emptied, relabelled)


# --- data sets, small and as published ---


def _batches(path: Path, names: list[str], content: Callable[[int], bytes]) -> None:
    for k, name in enumerate(names):
        put(path / name, content(k))


def _rows(k: int, label_bytes: int = 1, rows: int = 12) -> bytes:
    pixels = np.roll(noise(rows, 3072), k, 0)
    labels = np.tile(((np.arange(rows) + k) % 10).astype(np.uint8)[:, None], (1, label_bytes))
    return np.concatenate([labels, pixels], 1).tobytes()


def write(root: Path) -> dict[str, tuple[str, Path]]:
    """By group, the name of a stream and its root."""
    ten = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]
    images = {half: idx(noise(n, 9, 8)) for half, n in (("train", 40), ("t10k", 20))}
    labels = {half: idx((np.arange(n) % 10).astype(np.uint8)) for half, n in (("train", 40), ("t10k", 20))}
    for half in ("train", "t10k"):
        put(root / f"idx/mnist/{half}-images-idx3-ubyte", images[half])
        put(root / f"idx/mnist/{half}-labels-idx1-ubyte", labels[half])
        put(root / f"gz/fashion-mnist/{half}-images-idx3-ubyte.gz", gzip.compress(images[half]))
        put(root / f"gz/fashion-mnist/{half}-labels-idx1-ubyte.gz", gzip.compress(labels[half]))
    _batches(root / "bin/cifar10/cifar-10-batches-bin", [f"{name}.bin" for name in ten], _rows)
    _batches(root / "py/cifar10/cifar-10-batches-py", ten, lambda k: pickled_batch(10 + k))
    _batches(root / "bin100/cifar100/cifar-100-binary", ["train.bin", "test.bin"], lambda k: _rows(k, 2))
    _batches(
        root / "py100/cifar100/cifar-100-python",
        ["train", "test"],
        lambda k: pickled_batch(10 + k).replace(b"U\6labels", b"U\x0bfine_labels"),
    )
    folder = root / "tiny/tinyimagenet/tiny-imagenet-200"
    for k, wnid in enumerate(("n01", "n02", "n03")):
        for n in range(3):
            put(
                folder / f"train/{wnid}/images/{wnid}_{n}.JPEG",
                picture_bytes("JPEG", np.roll(noise(16, 16, 3), 3 * k + n, 0)),
            )
        put(folder / f"val/images/val_{k}.JPEG", picture_bytes("JPEG", np.roll(noise(16, 16, 3), k, 1)))
    put(folder / "wnids.txt", b"n01\nn02\nn03\n")
    put(folder / "words.txt", b"n01\tcat, a pet\nn02\tdog\nn03\tcow\n")
    put(folder / "val/val_annotations.txt", b"".join(b"val_%d.JPEG\tn0%d\n" % (k, k + 1) for k in range(3)))
    x, y = noise(40, 9, 8), np.arange(40) % 4
    put(
        root / "own.npz",
        packed({"x_train": x, "y_train": y, "x_test": x, "y_test": y, "names": np.array(list("abcd"))}),
    )
    for name in "ab":
        for k in range(5):
            kind = ("PNG", "JPEG", "BMP", "WEBP")[k % 4]
            put(root / f"own/{name}/{k}.{kind.lower()}", picture_bytes(kind, np.roll(noise(9, 8, 3), k, 0)))
    groups = {"MNIST": ("mnist", "idx"), "Fashion-MNIST, packed": ("fashion-mnist", "gz")}
    groups |= {"CIFAR-10, binary": ("cifar10", "bin"), "CIFAR-10, pickled": ("cifar10", "py")}
    groups |= {"CIFAR-100, binary": ("cifar100", "bin100"), "CIFAR-100, pickled": ("cifar100", "py100")}
    groups |= {"Tiny ImageNet": ("tinyimagenet", "tiny")}
    found = {group: (name, root / at) for group, (name, at) in groups.items()}
    return found | {
        "npz:FILE": (f"npz:{root}/own.npz", root / "own.npz"),
        "folder:DIR": (f"folder:{root}/own", root / "own"),
    }


def publish(name: str, root: Path) -> Callable[[], Any]:
    """Make what lies there the published data set, in the catalogue alone; return what undoes it."""
    source = catalogue.SOURCES[name]
    place = sources.locate(source, root)
    if whole := place.layout.whole:
        layout = dataclasses.replace(
            place.layout, whole=dataclasses.replace(whole, published=tiny.content(place.folder))
        )
    else:
        digests = [one.digest for one in sources.contents(place, anew=True)]
        parts = [dataclasses.replace(part, md5=md5) for part, md5 in zip(place.layout.parts, digests, strict=True)]
        layout = dataclasses.replace(place.layout, parts=tuple(parts))
    layouts = tuple(layout if one is place.layout else one for one in source.layouts)
    catalogue.SOURCES[name] = dataclasses.replace(source, layouts=layouts)
    return lambda: catalogue.SOURCES.__setitem__(name, source)


# --- one damage ---


def read(name: str, root: Path) -> str:
    """A digest of all that is read."""
    images = sources.read(name, root)
    digest = hashlib.sha256(repr(images.names).encode())
    for array in (*images.train, *images.test):
        digest.update(repr(array.shape).encode() + array.tobytes())
    return digest.hexdigest()


def told(name: str, root: Path, before: tuple[str | None, str]) -> tuple[str | None, bool]:
    """What is wrong, if the damage goes unnoticed, and whether it changed nothing that is read."""
    try:
        key = identity.fingerprint(name, root)
        now = read(name, root)
    except EverlearnError as error:
        return (f"more than a line: {error!r}" if "\n" in str(error) else None), False
    except Exception:
        return traceback.format_exc()[-1200:], False
    if sources.own(name) is None and now != before[1]:
        return "read without a word", False
    return (None if key != before[0] or now == before[1] else "another content under the same key"), now == before[1]


def main() -> int:
    parser = options(__doc__ or "", 900)
    parser.add_argument("--official", type=Path, help="a folder with CIFAR's published files")
    arguments = parser.parse_args()
    record = Record(
        "damage_data", "No damage of a data file goes unnoticed: it is refused, or makes another experiment."
    )
    with tempfile.TemporaryDirectory(prefix="damage-") as made:
        work = Path(made)
        verified.MEMORY, verified.SETTLED = str(work / "verified.json"), -1  # what was verified is relied on at once
        groups = write(work)
        with contextlib.ExitStack() as stack:
            for name, root in groups.values():
                if sources.own(name) is None and name not in ("cifar10", "cifar100"):
                    stack.callback(publish(name, root))
            if arguments.official:
                for folder in ("cifar-10-batches-bin", "cifar-100-binary", "cifar-100-python"):
                    shutil.copytree(arguments.official / folder, work / "official" / folder / folder)
                    name = "cifar100" if "100" in folder else "cifar10"
                    groups[f"the published {folder}"] = name, work / "official" / folder
            harmless = damaged(record, groups, arguments)
    record.figures["changed nothing that is read"] = harmless
    return record.end(arguments.out)


def damaged(record: Record, groups: dict[str, tuple[str, Path]], arguments: Any) -> int:
    """Damage files one by one, each made whole again; how often nothing changed that is read."""
    rng, harmless = random.Random(arguments.seed), 0
    for group, (name, root) in groups.items():
        real = group.startswith("the published")
        restore = publish(name, root) if name in ("cifar10", "cifar100") and not real else lambda: None
        time.sleep(TICK)
        before = identity.fingerprint(name, root), read(name, root)
        assert before[0] is None or sources.own(name)
        files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
        files = [path for path in files if not path.name.endswith(("meta", "meta.txt", "names.txt"))]  # are not read
        count = min(arguments.count // len(groups), 6) if real else arguments.count // len(groups)
        for number in range(count):
            file, damage = files[number % len(files)], DAMAGES[rng.randrange(len(DAMAGES))]
            content, old = file.read_bytes(), file.stat()
            while (changed := damage(content, rng)) == content:
                damage = flipped
            hidden = rng.random() < 0.3
            time.sleep(TICK)
            file.write_bytes(changed)
            if hidden:
                os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
            wrong, same = told(name, root, before)
            harmless += same
            known = f"{file.relative_to(root.parent)}: {damage.__name__}{', its time put back' * hidden} ({number})"
            record.tried(group, known, wrong)
            time.sleep(TICK)
            file.write_bytes(content)
            with contextlib.suppress(EverlearnError):  # Tiny ImageNet says that a picture was written over
                read(name, root)
            if told(name, root, before) != (None, True):
                raise SystemExit(f"{known}: sound again, and not read")
        restore()
    return harmless


if __name__ == "__main__":
    sys.exit(main())
