"""Reading, checking and downloading data sets, on small files in the official layouts."""

import ast
import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import re
import shutil
import struct
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from everlearn.data import catalogue, download, formats, identity, sources, streams, tiny, verified
from everlearn.errors import BadInput, EverlearnError


@pytest.fixture(autouse=True)
def by_itself(monkeypatch, tmp_path_factory):
    """Small files are not the published ones; nothing is remembered of them beyond a test."""
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    monkeypatch.setattr(verified, "MEMORY", str(tmp_path_factory.mktemp("memory") / "verified.json"))
    monkeypatch.setattr(verified, "_known", {})


@pytest.fixture
def settled(monkeypatch):
    """A file may be relied on as soon as it is written."""
    monkeypatch.setattr(verified, "SETTLED", -1)


# --- writers: the official layouts, small ---


def some(*shape, seed=0, high=256):
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


def idx_bytes(array):
    return struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, spelling="{}", pack=lambda content: content, classes=10):
    """The four files of MNIST, with 20 and 10 images of 5x4 pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for half, n in (("train", 20), ("t10k", 10)):
        arrays[f"{half}-images-idx3-ubyte"] = some(n, 5, 4, seed=n)
        arrays[f"{half}-labels-idx1-ubyte"] = (np.arange(n) % classes).astype(np.uint8)
    for name, array in arrays.items():
        (folder / spelling.format(name)).write_bytes(pack(idx_bytes(array)))
    return list(arrays.values())


CIFAR = {  # name: batches, classes, label bytes, (binary folder, python folder)
    "cifar10": (
        [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"],
        10,
        1,
        ("cifar-10-batches-bin", "cifar-10-batches-py"),
    ),
    "cifar100": (["train", "test"], 100, 2, ("cifar-100-binary", "cifar-100-python")),
}


def cifar_batches(name):
    batches, classes, *_ = CIFAR[name]
    return {b: (some(6, 3072, seed=k), some(6, seed=k + 50, high=classes)) for k, b in enumerate(batches)}


def write_cifar_binary(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    label_bytes = CIFAR[name][2]
    for batch, (pixels, labels) in cifar_batches(name).items():
        coarse = [np.full((6, 1), 7, np.uint8)] * (label_bytes - 1)
        rows = np.concatenate([*coarse, labels[:, None], pixels], axis=1)
        (folder / f"{batch}.bin").write_bytes(rows.tobytes())


def python2(value):
    """What Python 2's cPickle writes at protocol 2, less the leading mark and the final stop: str is a byte string."""
    if isinstance(value, np.ndarray):
        head = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2(b"b") + b"\x87R"
        dtype = (
            b"cnumpy\ndtype\n"
            + python2(b"u1")
            + b"K\x00K\x01\x87R(K\x03"
            + python2(b"|")
            + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        )
        return (
            head
            + b"(K\x01("
            + b"".join(map(python2, value.shape))
            + b"t"
            + dtype
            + b"\x89"
            + python2(value.tobytes())
            + b"tb"
        )
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    return b"}(" + b"".join(python2(key) + python2(item) for key, item in value.items()) + b"u"


def official_pickle(pixels, labels, key):
    batch = {b"batch_label": b"a batch", key: labels.tolist(), b"data": pixels, b"filenames": [b"x.png"] * len(labels)}
    return b"\x80\x02" + python2(batch) + b"."


def write_cifar_python(folder, name, dump=official_pickle):
    folder.mkdir(parents=True, exist_ok=True)
    key = b"labels" if name == "cifar10" else b"fine_labels"
    for batch, (pixels, labels) in cifar_batches(name).items():
        (folder / batch).write_bytes(dump(pixels, labels, key))


def write_picture(path, size=(8, 8), mode="RGB", seed=0, **options):
    Image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = some(size[1], size[0], *([3] if mode == "RGB" else []), seed=seed)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def write_tiny(folder, wnids=("n03", "n01", "n02")):
    for k, wnid in enumerate(wnids):
        for n in range(2):
            write_picture(folder / f"train/{wnid}/images/{wnid}_{n}.JPEG", mode="L" if n else "RGB", seed=k)
        write_picture(folder / f"val/images/val_{k}.JPEG", seed=k)
    (folder / "wnids.txt").write_text("\n".join(wnids))
    (folder / "words.txt").write_text("n01\tcat, house cat\nn02\tdog\nn99\tunused\n")
    rows = [f"val_{k}.JPEG\t{wnid}\t0\t0\t7\t7\n" for k, wnid in enumerate(wnids)]
    (folder / "val/val_annotations.txt").write_text("".join(rows[::-1]))


def npz_arrays(**changes):
    arrays = {"x_train": some(6, 5, 4, 3), "y_train": np.arange(6) % 3}
    arrays |= {"x_test": some(3, 5, 4, 3), "y_test": np.arange(3)}
    return {key: value for key, value in (arrays | changes).items() if value is not None}


def write_npz(path, **changes):
    np.savez(path, **npz_arrays(**changes))
    return f"npz:{path}"


def refused(*words, by=BadInput):
    """One sentence, with these words in it."""
    return pytest.raises(by, match="(?s)" + "".join(f"(?=.*{re.escape(str(word))})" for word in words) + r"\A[^\n]+\Z")


# --- every data set ---


@pytest.fixture
def everything(tmp_path):
    write_idx(tmp_path / "mnist")
    write_idx(tmp_path / "fashion-mnist", "{}.gz", gzip.compress)
    write_cifar_binary(tmp_path / "cifar10/cifar-10-batches-bin", "cifar10")
    write_cifar_python(tmp_path / "cifar100/cifar-100-python", "cifar100")
    np.savez(tmp_path / "own.npz", **npz_arrays())
    return tmp_path


@pytest.mark.parametrize("name", ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "npz"])
def test_every_data_set_is_contiguous_writable_uint8_and_int64(everything, name):
    images = sources.read(f"npz:{everything}/own.npz" if name == "npz" else name, everything)
    for x, y in (images.train, images.test):
        assert (x.dtype, y.dtype, x.ndim, y.shape) == (np.uint8, np.int64, 4, (len(x),))
        assert x.flags.c_contiguous and x.flags.writeable and y.flags.writeable
        assert y.min() >= 0 and y.max() < len(images.names)


def test_every_published_checksum_is_an_md5_and_every_address_ends_in_its_file():
    for source in catalogue.SOURCES.values():
        for archive in source.archives:
            assert re.fullmatch("[0-9a-f]{32}", archive.md5)
            assert all(url.endswith(f"/{archive.file}") for url in archive.urls)
        for part in (part for layout in source.layouts for part in layout.parts):
            assert re.fullmatch("([0-9a-f]{32})?", part.md5)
    assert len(set(catalogue.SOURCES["cifar100"].names)) == 100


def test_the_modules_import_nothing_slow():
    quick = (formats, tiny, catalogue, sources, identity)
    for module, banned in (*((module, {"urllib"}) for module in quick), (download, set())):
        imports = [
            node
            for node in ast.parse(Path(module.__file__).read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        roots = {
            name.split(".")[0] for node in imports for name in [getattr(node, "module", None) or node.names[0].name]
        }
        assert not roots & (banned | {"sklearn", "PIL", "rich", "torch"})


def test_an_unknown_data_set_is_answered_with_the_nearest():
    with refused("unknown data set 'cifar-10'", "did you mean 'cifar10'?"):
        sources.read("cifar-10")


def test_the_data_root_is_the_argument_then_the_variable_then_the_cache(monkeypatch):
    monkeypatch.setenv("EVERLEARN_DATA", "/somewhere")
    assert sources.data_root(Path("/here")) == Path("/here")
    assert sources.data_root() == Path("/somewhere")
    monkeypatch.delenv("EVERLEARN_DATA")
    assert sources.data_root() == Path.home() / ".cache/everlearn"


def test_digits_hold_out_a_stratified_quarter_of_raw_values():
    images = sources.read("digits")
    assert images.train[0].shape == (1347, 1, 8, 8) and images.test[0].shape == (450, 1, 8, 8)
    assert images.train[0].max() == 16
    assert np.bincount(images.test[1]).min() >= 43
    assert (sources.read("digits").test[0] == images.test[0]).all()


# --- IDX ---


@pytest.mark.parametrize("where", ["mnist", "mnist/raw", "mnist/MNIST/raw", "MNIST/raw"])
@pytest.mark.parametrize("spelling", ["{}", "{}.gz", "dotted"])
def test_mnist_is_read_wherever_and_however_it_lies(tmp_path, where, spelling):
    pack = gzip.compress if spelling.endswith(".gz") else bytes
    x_train, y_train, x_test, y_test = write_idx(tmp_path / where, "{}" if spelling == "dotted" else spelling, pack)
    if spelling == "dotted":
        for file in (tmp_path / where).iterdir():
            file.rename(file.with_name(file.name.replace("-idx", ".idx")))
    images = sources.read("mnist", tmp_path)
    assert (images.train[0] == x_train[:, None]).all() and (images.train[1] == y_train).all()
    assert (images.test[0] == x_test[:, None]).all() and (images.test[1] == y_test).all()


def test_fashion_mnist_is_found_in_its_own_folder(tmp_path):
    write_idx(tmp_path / "FashionMNIST/raw", "{}.gz", gzip.compress)
    assert sources.read("fashion-mnist", tmp_path).names[9] == "Ankle boot"


def test_the_folder_of_the_data_may_be_a_string(tmp_path):
    write_idx(tmp_path / "mnist", "{}", bytes)
    assert streams.load("mnist", data=str(tmp_path)).classes == streams.load("mnist", data=tmp_path).classes == 10


TRAIN = "train-images-idx3-ubyte"
LABELS = "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        (TRAIN, lambda content: content[:-3], ["397 bytes", "400"]),
        (TRAIN, lambda content: content[:9], ["cut short"]),
        (TRAIN, lambda content: b"", ["not an IDX file"]),
        (TRAIN, lambda content: b"PNG!" + content[4:], ["not an IDX file", "50 4e 47 21"]),
        (TRAIN, lambda content: gzip.compress(content)[:-20], ["cannot be read"]),
        (TRAIN, lambda content: gzip.compress(content)[:10] + b"rubbish" * 9, ["cannot be read"]),
        (TRAIN, lambda content: idx_bytes(some(20, 5)), ["2 dimensions where 3"]),
        (LABELS, lambda content: idx_bytes(some(19, high=9)), ["19 labels for 20 images"]),
        (LABELS, lambda content: idx_bytes(np.full(20, 10, np.uint8)), ["the label 10", "0..9"]),
        ("t10k-images-idx3-ubyte", lambda content: idx_bytes(some(10, 4, 4)), ["another size"]),
    ],
)
def test_a_broken_idx_file_is_named_with_the_way_out(tmp_path, file, change, words):
    write_idx(tmp_path / "mnist")
    path = tmp_path / "mnist" / file
    path.write_bytes(change(path.read_bytes()))
    with refused(path, f"`everlearn data get mnist --data {tmp_path}`", *words):
        sources.read("mnist", tmp_path)


def test_empty_idx_files_hold_no_images(tmp_path):
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / TRAIN).write_bytes(idx_bytes(some(0, 5, 4)))
    (tmp_path / "mnist" / LABELS).write_bytes(idx_bytes(some(0)))
    with refused("holds no images"):
        sources.read("mnist", tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mnist", "mnist/train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar10/cifar-10-batches-bin/data_batch_1.bin"),
        ("cifar100", "cifar100/cifar-100-binary/train.bin"),
        ("tinyimagenet", "tinyimagenet/tiny-imagenet-200/wnids.txt"),
    ],
)
def test_a_missing_data_set_says_which_file_is_expected_where(tmp_path, name, file):
    with refused(tmp_path / file, f"`everlearn data get {name} --data {tmp_path}`"):
        sources.read(name, tmp_path)


def test_a_missing_file_is_looked_for_beside_the_others(tmp_path):
    write_idx(tmp_path / "MNIST/raw")
    (tmp_path / "MNIST/raw" / LABELS).unlink()
    with refused(tmp_path / "MNIST/raw" / LABELS):
        sources.read("mnist", tmp_path)


# --- CIFAR ---


def write_with_numpy(protocol):
    return lambda pixels, labels, key: pickle.dumps({"data": pixels, key.decode(): labels.tolist()}, protocol)


@pytest.mark.parametrize("name", CIFAR)
@pytest.mark.parametrize("where", ["{name}/{folder}", "{name}", "{folder}"])
@pytest.mark.parametrize("form", ["binary", "python 2", "protocol 2", "protocol 4", "protocol 5"])
def test_cifar_is_read_from_both_distributions(tmp_path, name, where, form):
    _, _, _, folders = CIFAR[name]
    folder = tmp_path / where.format(name=name, folder=folders[form != "binary"])
    if form == "binary":
        write_cifar_binary(folder, name)
    else:
        write_cifar_python(folder, name, official_pickle if form == "python 2" else write_with_numpy(int(form[-1])))
    images = sources.read(name, tmp_path)
    *train, test = cifar_batches(name).values()
    for (x, y), batches in ((images.train, train), (images.test, [test])):
        assert (x.reshape(len(x), -1) == np.concatenate([pixels for pixels, _ in batches])).all()
        assert (y == np.concatenate([labels for _, labels in batches])).all()
        assert x.shape[1:] == (3, 32, 32)


def test_the_binary_distribution_counts_where_both_are_whole(tmp_path):
    write_cifar_python(tmp_path / "cifar100/cifar-100-python", "cifar100", lambda *_: b"never read")
    write_cifar_binary(tmp_path / "cifar100/cifar-100-binary", "cifar100")
    assert len(sources.read("cifar100", tmp_path).test[1]) == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[:-1], ["18,437 bytes", "rows of 3,073"]),
        (lambda content: b"", ["holds no images"]),
        (lambda content: b"\x0a" + content[1:], ["the label 10", "0..9"]),
    ],
)
def test_a_broken_binary_batch_is_named(tmp_path, change, words):
    folder = tmp_path / "cifar10/cifar-10-batches-bin"
    write_cifar_binary(folder, "cifar10")
    path = folder / "data_batch_3.bin"
    path.write_bytes(change(path.read_bytes()))
    with refused(path, f"`everlearn data get cifar10 --data {tmp_path}`", *words):
        sources.read("cifar10", tmp_path)


GOOD = {b"data": some(4, 3072), b"labels": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (official_pickle(some(4, 3072), np.arange(4), b"labels")[:-40], ["not a pickled CIFAR batch"]),
        (b"\x80\x02garbage", ["not a pickled CIFAR batch"]),
        (b"", ["not a pickled CIFAR batch", "exhausted"]),
        (pickle.dumps([1, 2]), ["a list, not a dict"]),
        (pickle.dumps(GOOD | {b"data": some(4, 3071)}), ["'data'", "rows of 3,072"]),
        (pickle.dumps(GOOD | {b"data": some(4, 3072).astype(float)}), ["an array of type f8"]),
        (pickle.dumps({b"data": some(4, 3072)}), ["neither 'labels' nor 'fine_labels'"]),
        (pickle.dumps(GOOD | {b"labels": [0, 1, 2]}), ["3 labels for 4 images"]),
        (pickle.dumps(GOOD | {b"labels": [0, 1, 2, -1]}), ["the label -1"]),
        (pickle.dumps(GOOD | {b"labels": [0, 1, 2, 3.5]}), ["not a row of integers"]),
        (pickle.dumps(GOOD | {b"labels": [[0], [1, 2], [], 3]}), ["not a row of integers"]),
    ],
)
def test_a_broken_pickled_batch_is_named(tmp_path, content, words):
    write_cifar_python(tmp_path / "cifar10", "cifar10")
    (tmp_path / "cifar10/data_batch_2").write_bytes(content)
    with refused(tmp_path / "cifar10/data_batch_2", f"`everlearn data get cifar10 --data {tmp_path}`", *words):
        sources.read("cifar10", tmp_path)


class Hostile:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda mark: (os.system, f"touch {mark}"), f"{os.system.__module__}.system"),
        (lambda mark: (eval, f"open({str(mark)!r}, 'w')"), "eval"),
        (lambda mark: (np.save, str(mark), 1), "save"),
        (lambda mark: (getattr, "text", "upper"), "getattr"),
    ],
)
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, call, named, protocol):
    mark = tmp_path / "mark.npy"
    write_cifar_python(tmp_path / "cifar10", "cifar10")
    (tmp_path / "cifar10/data_batch_1").write_bytes(pickle.dumps(GOOD | {b"x": Hostile(*call(mark))}, protocol))
    named = named if protocol else "DICT"  # no published file is that old
    with refused(tmp_path / "cifar10/data_batch_1", named, "was not loaded"):
        sources.read("cifar10", tmp_path)
    assert not mark.exists()


def lying(kind: bytes, shape: tuple[int, ...], content: bytes) -> bytes:
    """A batch whose `data` is an array of another type or shape than its bytes are."""
    whole = official_pickle(some(4, 3072), np.arange(4), b"labels")
    honest = python2(some(4, 3072))
    head, tail = whole.split(honest)
    sizes = b"".join(map(python2, (4, 3072))) + b"t"
    assert sizes in honest
    other = honest.replace(python2(b"u1"), python2(kind)).replace(sizes, b"".join(map(python2, shape)) + b"t")
    return head + other.replace(python2(some(4, 3072).tobytes()), python2(content)) + tail


@pytest.mark.parametrize(
    ("kind", "shape", "content"),
    [
        (b"O8", (4, 384), b"A" * 4 * 3072),  # bytes as pointers
        (b"V1", (4, 3072), b"A" * 4 * 3072),
        (b"u1", (4000, 3072), b"A" * 4 * 3072),  # more rows than bytes
        (b"u1", (4, 3072), b""),
    ],
)
def test_an_array_that_lies_about_its_bytes_is_refused(tmp_path, kind, shape, content):
    write_cifar_python(tmp_path / "cifar10", "cifar10")
    (tmp_path / "cifar10/data_batch_1").write_bytes(lying(kind, shape, content))
    with refused(tmp_path / "cifar10/data_batch_1", "not a pickled CIFAR batch", "an array of"):
        sources.read("cifar10", tmp_path)


def test_a_batch_with_any_bytes_changed_is_read_or_refused(tmp_path):
    """Nothing else happens: no other error, no crash of the process."""
    random, file = np.random.default_rng(0), tmp_path / "data_batch_1"
    whole = official_pickle(some(2, 3072), np.arange(2), b"labels")
    outside = [n for n in range(len(whole)) if not 300 < n < len(whole) - 100]  # the structure, not the pixels
    outcomes = set()
    for _ in range(1500):
        content = bytearray(whole)
        for place in random.choice(outside, random.integers(1, 4)):
            content[place] = random.integers(256)
        file.write_bytes(bytes(content[: random.integers(len(whole))] if random.random() < 0.1 else content))
        try:
            images, labels = formats.cifar_python(file, 10)
            outcomes.add("read")
            assert images.dtype == np.uint8 and images.shape[1:] == (3, 32, 32) and len(images) == len(labels)
        except BadInput:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


# --- Tiny ImageNet ---


def test_tiny_imagenet_has_its_classes_in_the_order_of_wnids(tmp_path):
    write_tiny(tmp_path / "tinyimagenet/tiny-imagenet-200")
    images = sources.read("tinyimagenet", tmp_path)
    assert images.names == ("n03", "cat", "dog")  # words.txt does not know n03
    assert images.train[0].shape == (6, 3, 8, 8) and images.train[1].tolist() == [0, 0, 1, 1, 2, 2]
    assert images.test[1].tolist() == [2, 1, 0]
    grey = images.train[0][1]
    assert (grey[0] == grey[1]).all() and (grey[1] == grey[2]).all()


def test_tiny_imagenet_is_decoded_once(tmp_path, monkeypatch, settled):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)
    first = sources.read("tinyimagenet", tmp_path)
    assert sorted(file.name for file in folder.parent.iterdir()) == ["tiny-imagenet-200", "tiny-imagenet-200.npz"]
    monkeypatch.setattr(tiny, "decode", lambda _: pytest.fail("decoded again"))
    again = sources.read("tinyimagenet", tmp_path)
    assert again.names == first.names
    assert all((a == b).all() for a, b in zip(first.train + first.test, again.train + again.test, strict=True))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write_picture(folder / "train/n01/images/n01_0.JPEG", seed=9),
        lambda folder: write_picture(folder / "train/n01/images/n01_7.JPEG", seed=9),
        lambda folder: (folder / "train/n01/images/n01_0.JPEG").unlink(),
        lambda folder: (folder / "wnids.txt").write_text("n01\nn02\nn03"),  # the same size
        lambda folder: (folder / "words.txt").write_text("n01\tcow\n"),
    ],
)
def test_tiny_imagenet_is_decoded_again_when_its_folder_has_changed(tmp_path, change, settled):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)
    sources.read("tinyimagenet", tmp_path)
    change(folder)
    with contextlib.suppress(BadInput):  # one that was written over is seen when it is read
        sources.read("tinyimagenet", tmp_path)
    now, fresh = sources.read("tinyimagenet", tmp_path), catalogue.Images(*tiny.decode(folder))
    assert now.names == fresh.names
    assert all(np.array_equal(a, b) for a, b in zip(now.train + now.test, fresh.train + fresh.test, strict=True))


def test_a_cache_of_somebody_elses_is_decoded_again(tmp_path):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)
    np.savez(folder.with_name("tiny-imagenet-200.npz"), **npz_arrays())
    assert sources.read("tinyimagenet", tmp_path).names == ("n03", "cat", "dog")


def test_a_cache_that_somebody_wrote_to_is_decoded_again(tmp_path, settled):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)
    first, cache = sources.read("tinyimagenet", tmp_path), folder.with_name("tiny-imagenet-200.npz")
    with np.load(cache) as file:
        arrays = dict(file)
    np.savez(cache, **arrays | {"y_train": arrays["y_train"][::-1]})
    again = sources.read("tinyimagenet", tmp_path)
    assert np.array_equal(first.train[1], again.train[1])


def test_a_damaged_cache_is_decoded_again(tmp_path):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)
    cache = folder.with_name("tiny-imagenet-200.npz")
    cache.write_bytes(b"half")
    assert len(sources.read("tinyimagenet", tmp_path).train[1]) == 6
    assert len(formats.npz(cache)[0][1]) == 6


def test_a_cache_that_cannot_be_written_does_not_stop_the_reading(tmp_path, monkeypatch):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)

    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert len(sources.read("tinyimagenet", tmp_path).train[1]) == 6
    assert [file.name for file in folder.parent.iterdir()] == ["tiny-imagenet-200"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda folder: (folder / "train/n01/images/n01_0.JPEG").write_bytes(b"\xff\xd8"),
            ["n01_0.JPEG", "cannot be decoded"],
        ),
        (lambda folder: (folder / "val/images/val_1.JPEG").unlink(), ["val_1.JPEG", "No such file"]),
        (lambda folder: (folder / "wnids.txt").write_text("n01\nn02"), ["train/n03", "not a class of wnids.txt"]),
        (lambda folder: (folder / "wnids.txt").write_text("n01 n02 n03 n04"), ["train/n04", "missing"]),
        (lambda folder: (folder / "wnids.txt").write_text("\n"), ["wnids.txt is empty"]),
        (lambda folder: (folder / "val/val_annotations.txt").write_text(""), ["val_annotations.txt is empty"]),
        (
            lambda folder: (folder / "val/val_annotations.txt").write_text("val_0.JPEG\tn77\n"),
            ["row 1", "val_annotations.txt"],
        ),
        (lambda folder: (folder / "val/val_annotations.txt").write_text("val_0.JPEG\tn01\n\n"), ["row 2"]),
        (
            lambda folder: [file.unlink() for file in (folder / "train/n02/images").iterdir()],
            ["n02/images", "no *.JPEG"],
        ),
        (lambda folder: write_picture(folder / "val/images/val_2.JPEG", (8, 9)), ["val_2.JPEG", "8x9", "8x8"]),
    ],
)
def test_a_broken_tiny_imagenet_is_named_with_the_way_out(tmp_path, change, words):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)
    change(folder)
    with refused(f"delete {folder}", f"`everlearn data get tinyimagenet --data {tmp_path}`", *words):
        sources.read("tinyimagenet", tmp_path)


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    write_tiny(tmp_path / "tinyimagenet/tiny-imagenet-200")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with refused("pip install 'everlearn[images]'"):
        sources.read("tinyimagenet", tmp_path)


# --- npz:FILE ---


@pytest.mark.parametrize(
    ("shape", "becomes"),
    [
        ((5, 4), (1, 5, 4)),
        ((5, 4, 3), (3, 5, 4)),
        ((5, 4, 1), (1, 5, 4)),
        ((3, 5, 4), (3, 5, 4)),
        ((1, 5, 4), (1, 5, 4)),
        ((3, 5, 1), (1, 3, 5)),  # ambiguous: the last size is the channels
        ((1, 5, 3), (3, 1, 5)),
    ],
)
def test_an_npz_may_have_its_channels_first_last_or_not_at_all(tmp_path, shape, becomes):
    x = some(6, *shape)
    images = sources.read(write_npz(tmp_path / "a.npz", x_train=x, x_test=x[:3]))
    assert images.train[0].shape == (6, *becomes) and images.test[0].shape == (3, *becomes)
    if becomes[1:] == shape[:2]:
        assert (images.train[0][2, -1] == x[2].reshape(*shape[:2], -1)[..., -1]).all()
    assert images.names == ("0", "1", "2")


def test_an_npz_may_name_its_classes(tmp_path):
    assert sources.read(write_npz(tmp_path / "a.npz", names=np.array(["a", "b", "ç"]))).names == ("a", "b", "ç")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_test": None}, ["no array 'x_test'"]),
        ({"x_train": np.zeros((6, 5, 4, 3))}, ["x_train", "float64", "uint8, 0..255"]),
        ({"x_train": some(6, 5, 4, 2)}, ["x_train", "(6, 5, 4, 2)", "[N, H, W]"]),
        ({"x_train": some(6, 60)}, ["x_train", "(6, 60)"]),
        ({"x_test": some(3, 5, 5, 3)}, ["differ", "x_train", "x_test"]),
        ({"y_train": np.arange(5) % 3}, ["y_train", "5 labels for 6 images"]),
        ({"y_train": np.arange(6.0) % 3}, ["y_train", "float64", "0..K-1"]),
        ({"y_train": np.arange(6).reshape(6, 1) % 3}, ["y_train", "not a row of integers"]),
        ({"y_train": np.array([0, 1, 3, 0, 1, 3])}, ["y_train", "never has the label 2", "up to 3"]),
        ({"y_train": np.array([1, 2, 3, 1, 2, 3])}, ["y_train", "never has the label 0"]),
        ({"y_train": np.array([-1, 0, 1, 0, 1, 0])}, ["y_train", "the label -1"]),
        ({"y_test": np.array([0, 1, 3])}, ["y_test", "the label 3", "0..2"]),
        ({"y_test": np.array([0, 1, -3])}, ["y_test", "the label -3"]),
        ({"y_test": np.array(["a", "b", "c"])}, ["y_test", "not a row of integers"]),
        ({"x_test": some(0, 5, 4, 3), "y_test": np.arange(0)}, ["y_test", "no images"]),
        ({"names": np.array(["a", "b"])}, ["'names'", "3 classes"]),
        ({"y_train": np.array([0, None, 1, 2, 0, 1])}, ["not a readable .npz file"]),
    ],
)
def test_an_npz_that_is_not_a_data_set_says_why(tmp_path, changes, words):
    with refused(tmp_path / "a.npz", *words):
        sources.read(write_npz(tmp_path / "a.npz", **changes))


def test_a_file_that_is_not_an_npz_is_named(tmp_path):
    path = tmp_path / "a.npz"
    with refused("there is no file", path):
        sources.read(f"npz:{path}")
    with refused("'npz:'"):
        sources.read("npz:")
    path.write_bytes(b"nothing of the kind")
    with refused(path, "not an .npz file"):
        sources.read(f"npz:{path}")
    write_npz(path)
    content = bytearray(path.read_bytes())
    content[300] ^= 255  # within the first array: its CRC tells
    path.write_bytes(content)
    with refused(path, "not a readable .npz file"):
        sources.read(f"npz:{path}")


# --- folder:DIR ---


def write_folders(root, halves=("train", "test"), classes=("b", "a"), each=2, **options):
    for half in halves:
        for name in classes:
            for n in range(each):
                write_picture(root / half / name / f"{n}.png", seed=n, **options)


def test_a_folder_has_its_classes_by_name_and_its_pictures_in_order(tmp_path):
    write_folders(tmp_path, mode="L")
    (tmp_path / "train/a/notes.txt").write_text("not a picture")
    (tmp_path / "train/.hidden").mkdir()
    images = sources.read(f"folder:{tmp_path}")
    assert images.names == ("a", "b")
    assert images.train[1].tolist() == [0, 0, 1, 1] == images.test[1].tolist()
    assert images.train[0].shape == (4, 1, 8, 8) and (images.train[0][1, 0] == some(8, 8, seed=1)).all()


@pytest.mark.parametrize("suffix", ["png", "bmp", "webp", "JPG", "jpeg"])
def test_one_picture_in_colour_makes_all_rgb(tmp_path, suffix):
    write_folders(tmp_path, mode="L")
    options = {"lossless": True} if suffix == "webp" else {}
    pixels = write_picture(tmp_path / f"test/b/9.{suffix}", seed=9, **options)
    images = sources.read(f"folder:{tmp_path}")
    assert images.train[0].shape == (4, 3, 8, 8)
    if suffix in ("png", "bmp", "webp"):
        assert (images.test[0][-1] == pixels.transpose(2, 0, 1)).all()


def test_without_a_test_folder_a_fixed_quarter_of_each_class_is_held_out(tmp_path):
    for name, each in (("a", 8), ("b", 12), ("c", 2)):
        write_folders(tmp_path, [""], [name], each)
    state = np.random.get_state()[1].copy()
    first, again = (sources.read(f"folder:{tmp_path}") for _ in range(2))
    assert (np.random.get_state()[1] == state).all()
    assert np.bincount(first.train[1]).tolist() == [6, 9, 1] and np.bincount(first.test[1]).tolist() == [2, 3, 1]
    assert (first.test[0] == again.test[0]).all()
    train, test = ({x.tobytes() for x in images[images_of == 0]} for images, images_of in (first.train, first.test))
    assert not train & test
    write_folders(tmp_path, [""], ["d"], 4)
    assert (sources.read(f"folder:{tmp_path}").test[0][:6] == first.test[0]).all()  # a new class moves no other


def test_a_class_may_be_called_train(tmp_path):
    write_folders(tmp_path, [""], ["train", "tram"])
    assert sources.read(f"folder:{tmp_path}").names == ("train", "tram")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "train/empty").mkdir(), ["train/empty", "no pictures"]),
        (lambda root: write_picture(root / "test/c/0.png"), ["the class 'c' in test but not in train"]),
        (lambda root: write_picture(root / "train/c/0.png"), ["the class 'c' in train but not in test"]),
        (lambda root: (root / "test").rename(root / "tests"), ["train/CLASS", "no test/CLASS"]),
    ],
)
def test_a_folder_that_is_not_a_data_set_says_why(tmp_path, change, words):
    write_folders(tmp_path)
    change(tmp_path)
    with refused(tmp_path, *words):
        sources.read(f"folder:{tmp_path}")


def test_pictures_deeper_than_their_class_are_refused_not_left_out(tmp_path):
    write_folders(tmp_path / "training")
    write_picture(tmp_path / "training/train/a/more/1.png")
    with refused(tmp_path / "training", "a/more holds pictures", "its own folder"):
        sources.read(f"folder:{tmp_path}/training")
    with refused(tmp_path, "training/test holds pictures"):  # one folder too high
        sources.read(f"folder:{tmp_path}")


def test_too_few_classes_or_pictures_are_refused(tmp_path):
    with refused(tmp_path / "none", "there is no folder"):
        sources.read(f"folder:{tmp_path}/none")
    with refused(tmp_path, "0 class folders"):
        sources.read(f"folder:{tmp_path}")
    write_picture(tmp_path / "a/0.png")
    with refused(tmp_path / "a", "one picture"):
        sources.read(f"folder:{tmp_path}")
    write_picture(tmp_path / "a/1.png")
    with refused(tmp_path, "1 class folder where"):
        sources.read(f"folder:{tmp_path}")


# --- check ---


def md5(content):
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def toy(monkeypatch):
    """A data set `toy` in the manner of CIFAR-10, one batch each, whose published md5s are those of a small archive."""

    def make(url, archive="toy.tar.gz", entries=None, packed=None, md5s=True):
        rows = np.concatenate([some(6, 1, high=10), some(6, 3072)], axis=1).tobytes()
        files = entries or {"toy-bin/train.bin": rows, "toy-bin/test.bin": rows}
        packed = packed or (zipped if archive.endswith(".zip") else tarred)(files)
        source = catalogue.Source(
            "Toy",
            "a toy",
            tuple("0123456789"),
            (catalogue.Archive(archive, md5(packed), (url + archive,)),),
            catalogue._cifar_layouts(
                "toy",
                ("toy-bin", formats.cifar_binary, {f"{k}.bin": md5(rows) if md5s else "" for k in ("train", "test")}),
            ),
        )
        monkeypatch.setitem(catalogue.SOURCES, "toy", source)
        return packed

    return make


def tarred(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def states(name, root):
    return [(str(row.path.relative_to(root)), row.state) for row in sources.check(name, root)]


def test_check_tells_what_is_there_and_what_is_wrong(tmp_path, toy):
    packed = toy("http://nowhere/")
    folder = tmp_path / "toy/toy-bin"
    assert states("toy", tmp_path) == [("toy/toy-bin/train.bin", "missing"), ("toy/toy-bin/test.bin", "missing")]
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tmp_path / "toy", filter="data")
    assert [row.state for row in sources.check("toy", tmp_path)] == ["ok", "ok", "ok"]
    assert sources.found("toy", tmp_path) == folder
    (folder / "test.bin").write_bytes(b"other")
    whole, _, wrong = sources.check("toy", tmp_path)
    assert wrong.state == whole.state == "wrong checksum" and md5(b"other") in wrong.detail
    assert sources.found("toy", tmp_path) is None
    (folder / "test.bin").write_bytes(gzip.compress(b"other")[:-9])
    assert sources.check("toy", tmp_path)[2].state == "unreadable"
    (tmp_path / "toy/toy.tar.gz.part").write_bytes(b"12345")
    assert states("toy", tmp_path)[3] == ("toy/toy.tar.gz.part", "partial")
    (tmp_path / "toy/toy.tar.gz").write_bytes(packed)
    assert states("toy", tmp_path)[3] == ("toy/toy.tar.gz", "ok")


def test_a_gz_has_the_checksum_of_its_content(tmp_path):
    write_idx(tmp_path / "mnist", "{}.gz", gzip.compress)
    row = sources.check("mnist", tmp_path)[1]
    content = gzip.decompress((tmp_path / f"mnist/{TRAIN}.gz").read_bytes())
    assert row.state == "wrong checksum" and md5(content) in row.detail


def test_a_folder_in_the_place_of_a_file_is_unreadable(tmp_path):
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / TRAIN).unlink()
    (tmp_path / "mnist" / TRAIN).mkdir()
    assert sources.check("mnist", tmp_path)[1].state == "unreadable"
    with refused(tmp_path / "mnist" / TRAIN, "not a regular file", f"`everlearn data get mnist --data {tmp_path}`"):
        sources.read("mnist", tmp_path)


def test_check_knows_digits_folders_and_files_of_ones_own(tmp_path):
    assert [row.state for row in sources.check("digits")] == ["ok"]
    write_folders(tmp_path / "mine")
    whole, *classes = sources.check(f"folder:{tmp_path}/mine")
    assert (whole.state, whole.detail) == ("ok", "4 + 4 images of 2 classes, in colour, 8x8; on disk 8x8 (8)")
    assert [(row.path.relative_to(tmp_path / "mine").as_posix(), row.detail) for row in classes] == [
        (f"{half}/{name}", "2 images") for half in ("train", "test") for name in "ab"
    ]
    (tmp_path / "bad.npz").write_text("hello")
    with refused("bad.npz"):
        sources.check(f"npz:{tmp_path}/bad.npz")
    assert [row.state for row in sources.check(f"npz:{tmp_path}/a.npz")] == ["missing"]
    write_tiny(tmp_path / "tinyimagenet/tiny-imagenet-200")
    whole, *parts = sources.check("tinyimagenet", tmp_path)
    assert whole.state == "wrong checksum" and {row.state for row in parts} == {"present"}
    with refused("unknown data set 'minst'", "did you mean 'mnist'?"):
        sources.check("minst")


# --- download ---


@pytest.fixture
def server():
    """A file server on this machine: `files` by path, `ranges` whether it honours Range, `sent` bytes of bodies."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = server.files.get(self.path.lstrip("/"))
            if content is None:
                return self.send_error(404)
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(asked[1]) if asked and server.ranges else 0
            if asked and server.ranges and start >= len(content):
                return self.send_error(416)
            self.send_response(206 if asked and server.ranges else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if asked and server.ranges:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            body = content[start:][: server.cut]
            server.sent += len(body)  # before the client can have it, and ask
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.ranges, server.sent, server.cut = {}, True, 0, None
    server.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("archive", ["toy.tar.gz", "toy.zip"])
def test_a_download_is_verified_and_unpacked_and_done_once(tmp_path, server, toy, archive):
    server.files[archive] = toy(server.url, archive)
    told = []
    assert download.get("toy", tmp_path, lambda *report: told.append(report)) == tmp_path / "toy/toy-bin"
    size = len(server.files[archive])
    assert told[-1] == (size, size) and server.sent == size
    assert sorted(os.listdir(tmp_path / "toy")) == ["toy-bin", archive]
    assert len(sources.read("toy", tmp_path).train[1]) == 6
    told.clear()
    assert download.get("toy", tmp_path, lambda *report: told.append(report)) == tmp_path / "toy/toy-bin"
    assert server.sent == size and not told


def test_mnist_needs_no_unpacking(tmp_path, server, monkeypatch):
    write_idx(tmp_path / "served", "{}.gz", gzip.compress)
    server.files = {file.name: file.read_bytes() for file in (tmp_path / "served").iterdir()}
    md5s = {name[:-3]: (md5(content), md5(gzip.decompress(content))) for name, content in server.files.items()}
    order = catalogue.SOURCES["mnist"].archives
    source = catalogue._idx(
        "MNIST", "", "0,1,2,3,4,5,6,7,8,9", (server.url[:-1],), {a.file[:-3]: md5s[a.file[:-3]] for a in order}
    )
    monkeypatch.setitem(catalogue.SOURCES, "mnist", source)
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / TRAIN).write_bytes(b"a damaged plain file beside what is downloaded")
    assert download.get("mnist", tmp_path) == tmp_path / "mnist"
    assert {row.state for row in sources.check("mnist", tmp_path)} == {"ok"}
    assert sources.read("mnist", tmp_path).train[0].shape == (20, 1, 5, 4)


def test_a_half_download_goes_on_where_it_stopped(tmp_path, server, toy):
    packed = server.files["toy.tar.gz"] = toy(server.url)
    server.cut = half = len(packed) // 2
    with refused(tmp_path / "toy/toy.tar.gz", f"after {half:,} of {len(packed):,} bytes", by=EverlearnError):
        download.get("toy", tmp_path)
    assert (tmp_path / "toy/toy.tar.gz.part").stat().st_size == half
    server.cut, server.sent, told = None, 0, []
    download.get("toy", tmp_path, lambda *report: told.append(report))
    assert server.sent == len(packed) - half
    assert told[0][0] > half and told[-1] == (len(packed), len(packed))


def test_a_server_without_range_sends_it_all_again(tmp_path, server, toy):
    packed = server.files["toy.tar.gz"] = toy(server.url)
    server.ranges = False
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/toy.tar.gz.part").write_bytes(packed[:1000])
    download.get("toy", tmp_path)
    assert server.sent == len(packed)


@pytest.mark.parametrize("extra", [b"", b"too much"])
def test_a_part_with_nothing_left_to_send_is_taken_or_started_over(tmp_path, server, toy, extra):
    packed = server.files["toy.tar.gz"] = toy(server.url)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/toy.tar.gz.part").write_bytes(packed + extra)
    download.get("toy", tmp_path)
    assert server.sent == (len(packed) if extra else 0)


def test_a_wrong_checksum_removes_the_part_and_says_so(tmp_path, server, toy):
    packed = toy(server.url)
    server.files["toy.tar.gz"] = packed[:-1] + b"!"
    with refused(md5(packed), md5(packed[:-1] + b"!"), "removed", tmp_path / "toy/toy.tar.gz", by=EverlearnError):
        download.get("toy", tmp_path)
    assert os.listdir(tmp_path / "toy") == []


def test_the_next_address_is_tried_when_one_fails(tmp_path, server, toy, monkeypatch):
    packed = toy(server.url)
    server.files = {"wrong/toy.tar.gz": b"wrong", "right/toy.tar.gz": packed}
    urls = tuple(f"{server.url}{folder}/toy.tar.gz" for folder in ("gone", "wrong", "right"))
    source = catalogue.SOURCES["toy"]
    archive = catalogue.Archive("toy.tar.gz", md5(packed), urls)
    monkeypatch.setitem(catalogue.SOURCES, "toy", catalogue.Source("Toy", "", source.names, (archive,), source.layouts))
    assert download.get("toy", tmp_path) == tmp_path / "toy/toy-bin"


def test_a_file_put_there_by_hand_is_verified_and_unpacked_without_a_network(tmp_path, toy):
    packed = toy("http://127.0.0.1:1/")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/toy.tar.gz").write_bytes(packed)
    assert download.get("toy", tmp_path) == tmp_path / "toy/toy-bin"
    (tmp_path / "toy/toy-bin/test.bin").write_bytes(b"damaged since")
    assert download.get("toy", tmp_path) == tmp_path / "toy/toy-bin"
    assert len(sources.read("toy", tmp_path).test[1]) == 6
    (tmp_path / "toy/toy-bin/test.bin").write_bytes(b"damaged since")
    (tmp_path / "toy/toy.tar.gz").write_bytes(b"wrong")
    with refused("the one there now has another md5", by=EverlearnError):
        download.get("toy", tmp_path)


def test_no_network_says_which_file_to_put_where(tmp_path, toy, server):
    toy("http://127.0.0.1:1/")
    with refused("toy.tar.gz", "refused", tmp_path / "toy/toy.tar.gz", by=EverlearnError) as raised:
        download.get("toy", tmp_path)
    assert not isinstance(raised.value, BadInput)
    toy(server.url)
    with refused("404", tmp_path / "toy/toy.tar.gz", by=EverlearnError):
        download.get("toy", tmp_path)


@pytest.mark.parametrize("archive", ["toy.tar.gz", "toy.zip"])
@pytest.mark.parametrize("name", ["../escaped", "toy-bin/../../escaped"])
def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path, server, toy, archive, name):
    server.files[archive] = toy(server.url, archive, {"toy-bin/train.bin": b"", name: b"!"})
    with refused(tmp_path / "toy" / archive, "escaped", by=EverlearnError):
        download.get("toy", tmp_path)
    assert not list(tmp_path.rglob("escaped")) and os.listdir(tmp_path / "toy") == [archive]


@pytest.mark.parametrize("name", ["/escaped", "C:\\escaped", "..\\escaped"])
def test_a_zip_with_absolute_or_backslashed_names_is_refused(tmp_path, server, toy, name):
    server.files["toy.zip"] = toy(server.url, "toy.zip", {name: b"!"})
    with refused("leads out of the folder", by=EverlearnError):
        download.get("toy", tmp_path)


@pytest.mark.parametrize("archive", ["toy.tar.gz", "toy.zip"])
@pytest.mark.parametrize(
    "packed", [b"not an archive", tarred({"toy-bin/train.bin": bytes(9999)})[:-60]], ids=["something else", "cut off"]
)
def test_a_broken_archive_is_named(tmp_path, server, toy, archive, packed):
    server.files[archive] = toy(server.url, archive, packed=packed)
    with refused("cannot unpack", tmp_path / "toy" / archive, by=EverlearnError):
        download.get("toy", tmp_path)
    assert os.listdir(tmp_path / "toy") == [archive]


def test_an_archive_of_something_else_is_not_taken_for_the_data_set(tmp_path, server, toy):
    server.files["toy.tar.gz"] = toy(server.url, entries={"toy-bin/train.bin": b"other"})
    with refused("Toy", tmp_path / "toy", by=EverlearnError):
        download.get("toy", tmp_path)


def test_there_is_nothing_to_get_of_digits_and_of_ones_own(tmp_path):
    assert download.get("digits", tmp_path / "new") == sources.found("digits", tmp_path / "new") == tmp_path / "new"
    assert not (tmp_path / "new").exists()
    with refused("nothing to get"):
        download.get(f"npz:{tmp_path}/a.npz")
    with refused("unknown data set 'cifar'", "did you mean"):
        download.get("cifar")


def test_a_root_that_cannot_be_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with refused(tmp_path / "file" / "mnist", by=EverlearnError):
        download.get("mnist", tmp_path / "file")


# --- what tells one's own data apart ---


def test_ones_own_images_are_known_by_their_content(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    x, y = np.zeros((4, 1, 6, 6), np.uint8), np.arange(4)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    first = streams.fingerprint("npz:~/own.npz")
    assert first == streams.fingerprint(f"npz:{tmp_path}/own.npz") != None  # noqa: E711
    np.savez(tmp_path / "own.npz", x_train=x + 1, y_train=y, x_test=x, y_test=y)
    assert streams.fingerprint("npz:~/own.npz") != first
    picture = tmp_path / "photos" / "cat" / "1.bmp"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"one")
    first = streams.fingerprint(f"folder:{tmp_path}/photos")
    (picture.parent / ".DS_Store").write_bytes(b"noise")
    assert streams.fingerprint(f"folder:{tmp_path}/photos") == first
    picture.write_bytes(b"two")
    assert streams.fingerprint(f"folder:{tmp_path}/photos") != first
    assert streams.fingerprint("digits") is streams.fingerprint("npz:nowhere.npz") is None


@pytest.fixture
def put(tmp_path, toy, settled):
    """Write the two files of `toy`, as published unless told otherwise."""
    toy("http://nowhere/")
    rows = np.concatenate([some(6, 1, high=10), some(6, 3072)], axis=1).tobytes()

    def put(train=rows, test=rows, root=tmp_path):
        for name, content in (("train", train), ("test", test)):
            path = root / f"toy/toy-bin/{name}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return rows

    return put


def test_published_files_are_no_other_experiment_and_changed_ones_are(tmp_path, put):
    assert identity.fingerprint("toy", tmp_path) is None  # not there
    rows = put()
    assert identity.fingerprint("toy", tmp_path) is None
    put(train=bytes(len(rows)))
    first = identity.fingerprint("toy", tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", first)
    put(train=bytes(len(rows)), root=tmp_path / "elsewhere")
    assert identity.fingerprint("toy", tmp_path / "elsewhere") == first
    put(train=b"\1" * len(rows))
    assert identity.fingerprint("toy", tmp_path) not in (None, first)
    put()
    assert identity.fingerprint("toy", tmp_path) is None
    (tmp_path / "toy/toy-bin/test.bin").unlink()
    assert identity.fingerprint("toy", tmp_path) is None  # what is there is the published


def test_an_unreadable_file_is_reported_when_it_is_read(tmp_path, put):
    put(test=gzip.compress(b"rows")[:-9])
    assert identity.fingerprint("toy", tmp_path)
    with refused("test.bin", "cannot be read"):
        sources.read("toy", tmp_path)


def test_a_file_changed_just_now_is_hashed_again(tmp_path, put, monkeypatch):
    monkeypatch.setattr(verified, "SETTLED", 2_000_000_000)
    looks = [os.stat(tmp_path)] * 9
    rows = put()
    monkeypatch.setattr(sources, "stat_of", lambda path: looks.pop())  # as two writes within one tick of the clock
    assert identity.fingerprint("toy", tmp_path) is None
    put(train=bytes(len(rows)))
    assert identity.fingerprint("toy", tmp_path)


def test_a_file_is_hashed_once_in_all_processes(tmp_path, put, monkeypatch):
    put()
    assert identity.fingerprint("toy", tmp_path) is None
    assert os.listdir(tmp_path) == ["toy"] and len(json.loads(Path(verified.MEMORY).read_text())) == 2
    hashed = []
    monkeypatch.setattr(formats, "md5", lambda path, unpack: hashed.append(path.name) or "other")
    assert identity.fingerprint("toy", tmp_path) is None
    verified._known.clear()  # another process
    assert identity.fingerprint("toy", tmp_path) is None and not hashed
    put(test=b"changed")
    assert identity.fingerprint("toy", tmp_path) and hashed == ["train.bin", "test.bin"]  # both have another time


@pytest.mark.parametrize(
    "content", ["", "[1]", "null", '{"a": 3}', '{"a": ["b", "c", "d"]}', "\0", "[" * 100_000, f'{{"a": {"9" * 5000}}}']
)
def test_a_damaged_memory_is_ignored(tmp_path, put, content):
    put()
    Path(verified.MEMORY).write_text(content)
    assert identity.fingerprint("toy", tmp_path) is None
    assert len(json.loads(Path(verified.MEMORY).read_text())) == 2


def test_files_that_are_gone_are_not_remembered(tmp_path, put):
    put(root=tmp_path / "one")
    identity.fingerprint("toy", tmp_path / "one")
    shutil.rmtree(tmp_path / "one")
    put(root=tmp_path / "other")
    identity.fingerprint("toy", tmp_path / "other")
    assert all("other" in path for path in json.loads(Path(verified.MEMORY).read_text()))


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path, put, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    put()
    monkeypatch.setattr(os, "replace", full)
    assert identity.fingerprint("toy", tmp_path) is None
    assert os.listdir(Path(verified.MEMORY).parent) == []


def test_digits_are_always_the_same(tmp_path):
    assert identity.fingerprint("digits", tmp_path) is None and not list(tmp_path.iterdir())
    with refused("unknown data set 'digit'"):
        identity.fingerprint("digit")


def test_tiny_imagenet_is_known_by_its_content(tmp_path, monkeypatch):
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    assert identity.fingerprint("tinyimagenet", tmp_path) is None
    write_tiny(folder)
    told = [identity.fingerprint("tinyimagenet", tmp_path)]
    write_picture(folder / "train/n01/images/n01_0.JPEG", (16, 16))
    told.append(identity.fingerprint("tinyimagenet", tmp_path))
    (folder / "train/n01/images/n01_9.JPEG").symlink_to(tmp_path / "nowhere")
    told.append(identity.fingerprint("tinyimagenet", tmp_path))
    (folder / "words.txt").write_text("n01\tcow\n")
    told.append(identity.fingerprint("tinyimagenet", tmp_path))
    assert len(set(told)) == 4 and all(re.fullmatch("[0-9a-f]{16}", each) for each in told)
    whole = dataclasses.replace(catalogue.SOURCES["tinyimagenet"].layouts[0].whole, published=tiny.content(folder))
    layout = dataclasses.replace(catalogue.SOURCES["tinyimagenet"].layouts[0], whole=whole)
    monkeypatch.setitem(
        catalogue.SOURCES, "tinyimagenet", dataclasses.replace(catalogue.SOURCES["tinyimagenet"], layouts=(layout,))
    )
    assert identity.fingerprint("tinyimagenet", tmp_path) is None


def test_a_class_without_test_images_is_refused(tmp_path):
    x, y = np.zeros((8, 4, 4), np.uint8), np.arange(8) % 4
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[y != 2], y_test=y[y != 2])
    with refused("never has the label 2"):
        streams.load(f"npz:{tmp_path}/own.npz", tasks=2)


def test_a_task_without_images_names_its_classes():
    x, y = torch.zeros(4, 1, 2, 2), torch.tensor([0, 0, 1, 1])
    with refused("no test image of cat or dog"):
        streams._part("test", x, y, range(2, 4), ["ant", "bee", "cat", "dog"])


# --- tasks without a test half ---


def halves(*tested):
    """A stream of a task of two images for each, with or without a test half."""
    pair = lambda k: (torch.full((2, 1, 2, 2), k, dtype=torch.uint8), torch.tensor([k, k]))
    tasks = tuple(streams.Task(pair(k), pair(k) if test else None, (k,)) for k, test in enumerate(tested))
    return streams.Stream("toy", tasks, tuple(map(str, range(len(tested)))), streams.Pixels())


def test_a_task_says_whether_there_is_something_to_test():
    with_test, without = halves(True, False)
    assert repr(with_test) == "<Task: classes 0; 2 images, 2 to test>"
    assert repr(without) == "<Task: classes 1; 2 images, none to test>"
    assert streams.Task(without.train, classes=(1,)).test is None


def test_a_task_has_classes():
    with refused("classes ()", "classes=(0, 1)"):
        streams.Task(halves(True).tasks[0].train)


def test_a_stream_moves_what_there_is(stand_ins):  # a device that holds nothing stands in for a GPU
    with_test, without = halves(True, False).to("meta")
    assert without.test is None and without.classes == (1,)
    assert {tensor.device.type for tensor in (*with_test.train, *with_test.test, *without.train)} == {"meta"}


@pytest.mark.parametrize(
    ("tested", "labels"),
    [((True, True), [0, 0, 1, 1]), ((True, False), [0, 0]), ((False, True), [1, 1]), ((False, False), None)],
)
def test_merged_tasks_are_tested_on_what_there_is(tested, labels):
    merged = halves(*tested).merged()
    assert merged.train[1].tolist() == [0, 0, 1, 1] and merged.classes == (0, 1)
    assert (merged.test and merged.test[1].tolist()) == labels
    assert merged.test is None or len(merged.test[0]) == len(labels)
