"""What is read is what was published, or is refused; and no file makes the reader hang, crash or take all memory."""

import dataclasses
import gzip
import os
import pickle
import socket
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from test_data import (  # noqa: F401  # fixtures
    by_itself,
    npz_arrays,
    put,
    refused,
    settled,
    some,
    toy,
    write_cifar_binary,
    write_idx,
    write_npz,
    write_picture,
    write_tiny,
)

from everlearn import Experiment, launchers, registry, run
from everlearn.data import catalogue, formats, identity, sources, streams, tiny, verified
from everlearn.errors import BadInput, Notice
from everlearn.experiments.store import Store
from everlearn.files import write_whole


@pytest.fixture
def strict(monkeypatch):
    """As a user has it."""
    monkeypatch.delenv("EVERLEARN_UNVERIFIED")


# --- named data ---


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: bytes([(rows[0] + 1) % 10]) + rows[1:],  # another label
        lambda rows: rows[:-1] + bytes([rows[-1] ^ 1]),  # another pixel
        lambda rows: rows + rows[:3073],
        lambda rows: rows[:-3073],
    ],
)
def test_a_changed_file_is_refused_and_is_another_experiment(tmp_path, put, strict, change, monkeypatch):  # noqa: F811
    rows = put()
    assert len(sources.read("toy", tmp_path).train[1]) == 6
    put(test=change(rows))
    with refused(
        "test.bin is not Toy as published",
        "its md5 is",
        f"`everlearn data get toy --data {tmp_path}`",
        "EVERLEARN_UNVERIFIED=1",
    ):
        sources.read("toy", tmp_path)
    assert identity.fingerprint("toy", tmp_path)
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    assert len(sources.read("toy", tmp_path).train[1]) == 6


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_data_sets_of_the_table_are_verified_when_they_are_read(tmp_path, strict, name):
    write_idx(tmp_path / "mnist")
    write_cifar_binary(tmp_path / "cifar10/cifar-10-batches-bin", "cifar10")
    with refused("as published", f"`everlearn data get {name} --data {tmp_path}`"):
        sources.read(name, tmp_path)


def test_what_is_verified_is_not_hashed_again(tmp_path, put, strict, monkeypatch):  # noqa: F811
    put()
    sources.read("toy", tmp_path)
    monkeypatch.setattr(formats, "md5", lambda *_, **__: pytest.fail("hashed again"))
    verified._known.clear()  # another process
    sources.read("toy", tmp_path)
    assert sources.found("toy", tmp_path)


def test_check_hashes_what_is_on_the_disk_now(tmp_path, put, monkeypatch):  # noqa: F811
    put()
    assert sources.check("toy", tmp_path)[0].detail == "6 + 6 images of 10 classes; as published"
    monkeypatch.setattr(formats, "md5", lambda *_, **__: "other")
    assert [row.state for row in sources.check("toy", tmp_path)] == ["wrong checksum"] * 3


def test_a_data_folder_cannot_vouch_for_itself(tmp_path, put, strict):  # noqa: F811
    rows = put()
    sources.read("toy", tmp_path)
    put(train=bytes(len(rows)))
    for name in (".verified.json", "verified.json", "toy/verified.json"):
        (tmp_path / name).write_bytes(Path(verified.MEMORY).read_bytes())
    with refused("train.bin is not Toy as published"):
        sources.read("toy", tmp_path)


def odd_files(folder):
    """What is no regular file, by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    listening.close()
    (folder / "device").symlink_to("/dev/zero")
    (folder / "folder").mkdir()
    return ["pipe", "socket", "device", "folder"]


def test_only_regular_files_are_opened(tmp_path, put, strict, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    for kind in odd_files(Path("odd")):
        put()
        target = tmp_path / "toy/toy-bin/train.bin"
        target.unlink()
        target.symlink_to(tmp_path / "odd" / kind)
        with refused("train.bin cannot be read (not a regular file)", f"`everlearn data get toy --data {tmp_path}`"):
            sources.read("toy", tmp_path)
        assert identity.fingerprint("toy", tmp_path)
        assert [row.state for row in sources.check("toy", tmp_path)] == ["wrong checksum", "unreadable", "ok"]
        with refused("is a folder; folder:" if kind == "folder" else "there is no file"):
            sources.read(f"npz:{tmp_path}/odd/{kind}")
        target.unlink()


def test_a_memory_that_is_a_pipe_is_done_without(tmp_path, put, strict):  # noqa: F811
    put()
    os.mkfifo(verified.MEMORY)
    assert len(sources.read("toy", tmp_path).train[1]) == 6


def test_a_draft_does_not_follow_a_link(tmp_path):
    (tmp_path / "there").write_text("kept")
    (tmp_path / "file").symlink_to(tmp_path / "there")
    write_whole(tmp_path / "file", lambda draft: draft.write(b"new"))
    assert (tmp_path / "there").read_text() == "kept" and (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "file").is_symlink() and len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_what_is_written_for_later_can_be_read_by_whom_the_umask_says(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "file", lambda draft: draft.write(b"new"))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask


def test_drafts_of_who_was_killed_while_writing_are_removed_by_who_writes_later(tmp_path):
    ours, theirs = "file", "another"
    for name, age in ((f".{ours}.{'a' * 16}", 1000), (f".{ours}.{'b' * 16}", 10), (f".{theirs}.{'c' * 16}", 1000)):
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write_whole(tmp_path / ours, lambda draft: draft.write(b"new"))
    left = {f".{ours}.{'b' * 16}", f".{theirs}.{'c' * 16}"}  # somebody may still write the first
    assert set(os.listdir(tmp_path)) == {ours} | left and (tmp_path / ours).read_text() == "new"


def test_nothing_is_run_or_answered_on_data_that_are_not_the_published_ones(tmp_path, put, strict, monkeypatch):  # noqa: F811
    rows, store = put(), Store(tmp_path / "runs")
    monkeypatch.setitem(streams.STREAMS, "toy", streams.STREAMS["cifar10"])
    monkeypatch.setattr(registry, "STREAMS", (*registry.STREAMS, "toy"))
    settings = dict(stream="toy", data=tmp_path, network="mlp", memory=4, epochs=1, tasks=1, device="cpu")
    (published,) = performed = [Experiment.of("er", **settings)]
    monkeypatch.setattr(store, "done", lambda of: list(of))
    monkeypatch.setattr(store, "result", lambda of: {"known": of.hash})
    here = dict(store=store, device="cpu", data=tmp_path)
    assert launchers.perform(performed, **here) == [{"known": published.hash}]
    put(test=bytes(len(rows)))
    other = Experiment.of("er", **settings)  # may be named, listed and compared
    assert other.hash != published.hash
    for do in (lambda: launchers.perform([other], **here), lambda: run("er", **settings)):
        with refused("test.bin is not Toy as published", f"`everlearn data get toy --data {tmp_path}`"):
            do()
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    with pytest.warns(Notice, match=r"test\.bin is not Toy as published .*; its runs are kept apart"):
        assert launchers.perform([other], **here) == [{"known": other.hash}]


def test_a_folder_that_is_given_too_deep_is_answered_with_the_right_one(tmp_path, put, strict, monkeypatch):  # noqa: F811
    put()
    for folder in ("", "toy"):
        assert len(sources.read("toy", tmp_path / folder).train[1]) == 6
    for folder in ("toy/toy-bin", "toy/toy-bin/train"):
        with refused(f"it is in {tmp_path}/toy: give that with --data"):
            sources.read("toy", tmp_path / folder)
    monkeypatch.chdir(tmp_path / "toy/toy-bin")
    with refused(f"it is in {tmp_path}/toy: give that with --data"):
        sources.read("toy", Path())


def test_a_folder_whose_name_has_a_space_is_named_as_a_shell_takes_it(tmp_path):
    assert sources.getting("cifar10", tmp_path / "my data") == f"everlearn data get cifar10 --data '{tmp_path}/my data'"
    assert sources.getting("cifar10", None) == "everlearn data get cifar10"


def test_what_may_not_be_read_is_not_to_be_fetched_again(tmp_path, put, strict, monkeypatch):  # noqa: F811
    put()

    def forbidden(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(formats, "opened", forbidden)
    with pytest.raises(BadInput, match=r"cannot be read \(Permission denied\)$"):
        sources.read("toy", tmp_path)


# --- Tiny ImageNet ---


@pytest.fixture
def published(tmp_path, strict, settled, monkeypatch):  # noqa: F811
    """A small Tiny ImageNet, and what it holds as what was published."""
    folder = tmp_path / "tinyimagenet/tiny-imagenet-200"
    write_tiny(folder)
    (folder / "words.txt").write_text("n01\tcat, house cat\nn02\tdog\nn03\tcow\n")
    for number, value in (("CLASSES", 3), ("EACH", 2), ("TESTED", 3)):
        monkeypatch.setattr(tiny, number, value)
    source = catalogue.SOURCES["tinyimagenet"]
    whole = dataclasses.replace(source.layouts[0].whole, published=tiny.content(folder))
    layout = dataclasses.replace(source.layouts[0], whole=whole)
    monkeypatch.setitem(catalogue.SOURCES, "tinyimagenet", dataclasses.replace(source, layouts=(layout,)))
    return folder


def fewer_classes(folder):
    for name in ("wnids.txt", "val/val_annotations.txt"):
        lines = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join(line for line in lines if "n02" not in line))
    for picture in (folder / "train/n02/images").iterdir():
        picture.unlink()
    (folder / "train/n02/images").rmdir()
    (folder / "train/n02").rmdir()


def swapped(folder):
    rows = (folder / "val/val_annotations.txt").read_text().splitlines()
    (folder / "val/val_annotations.txt").write_text("\n".join(row.replace("n01", "n02") for row in rows))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (fewer_classes, "wnids.txt has 2 of 3 classes"),
        (lambda folder: (folder / "train/n01/images/n01_0.JPEG").unlink(), "train/n01/images has 1 of 2 pictures"),
        (lambda folder: write_picture(folder / "train/n01/images/n01_9.JPEG"), "train/n01/images has 3 of 2 pictures"),
        (lambda folder: (folder / "words.txt").unlink(), "words.txt has 0 of 3 names"),
        (swapped, "a name, a label or a picture is another"),
        (lambda folder: write_picture(folder / "train/n01/images/n01_5.JPEG"), "3 of 2 pictures"),
    ],
)
@pytest.mark.parametrize("decoded", [False, True])
def test_a_tiny_imagenet_that_is_not_whole_is_refused(tmp_path, published, change, words, decoded, monkeypatch):
    if decoded:
        assert sources.read("tinyimagenet", tmp_path).names == ("cow", "cat", "dog")
    assert identity.fingerprint("tinyimagenet", tmp_path) is None
    change(published)
    with refused(f"{published} is not Tiny ImageNet as published", words, f"delete {published}", f"{published}.npz"):
        sources.read("tinyimagenet", tmp_path)
    assert identity.fingerprint("tinyimagenet", tmp_path)
    whole = sources.check("tinyimagenet", tmp_path)[0]
    assert whole.state == "wrong checksum" and words in whole.detail
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    now, fresh = sources.read("tinyimagenet", tmp_path), catalogue.Images(*tiny.decode(published))
    assert all(np.array_equal(a, b) for a, b in zip(now.train + now.test, fresh.train + fresh.test, strict=True))


def test_a_picture_written_over_is_noticed_and_so_is_its_return(tmp_path, published):
    sources.read("tinyimagenet", tmp_path)
    picture = published / "train/n01/images/n01_0.JPEG"
    content = picture.read_bytes()
    picture.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    for _ in range(2):
        with refused("a name, a label or a picture is another"):
            sources.read("tinyimagenet", tmp_path)
    assert identity.fingerprint("tinyimagenet", tmp_path)
    picture.write_bytes(content)
    assert sources.read("tinyimagenet", tmp_path).names == ("cow", "cat", "dog")
    assert identity.fingerprint("tinyimagenet", tmp_path) is None


def test_pictures_that_change_while_they_are_decoded_are_refused(tmp_path, published, monkeypatch):
    decode = tiny.decode
    overwrite = lambda folder: write_picture(folder / "train/n01/images/n01_0.JPEG", seed=9)
    monkeypatch.setattr(tiny, "decode", lambda folder: (decode(folder), overwrite(folder))[0])
    with refused("tiny-imagenet-200 changed while it was read"):
        sources.read("tinyimagenet", tmp_path)
    assert not published.with_name("tiny-imagenet-200.npz").exists()


def test_many_pictures_are_not_looked_at_again_at_once(tmp_path, published, monkeypatch):
    monkeypatch.setattr(tiny, "MANY", 5)
    monkeypatch.setattr(tiny, "_seen", {})
    sources.read("tinyimagenet", tmp_path)
    (published / "train/n01/images/n01_0.JPEG").unlink()
    assert identity.fingerprint("tinyimagenet", tmp_path) is None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    assert identity.fingerprint("tinyimagenet", tmp_path)


def test_a_class_named_twice_is_refused_even_unverified(tmp_path, published, monkeypatch):
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    with (published / "wnids.txt").open("a") as wnids:
        wnids.write("\nn01\n")
    with refused("wnids.txt names a class twice"):
        sources.read("tinyimagenet", tmp_path)


def test_decoded_pictures_that_cannot_be_kept_are_said_to_be_that(tmp_path, published, monkeypatch):
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("Read-only file system")))
    with pytest.warns(Notice, match="the decoded pictures cannot be kept in"):
        sources.read("tinyimagenet", tmp_path)


def test_check_tells_the_counts_of_tiny_imagenet_and_its_cache(tmp_path, published):
    rows = {row.path.relative_to(published.parent).as_posix(): row for row in sources.check("tinyimagenet", tmp_path)}
    assert rows["tiny-imagenet-200"].detail == "6 pictures of 3 classes, 3 pictures to test on; as published"
    assert {name: row.detail for name, row in rows.items() if "/" in name} == {
        "tiny-imagenet-200/wnids.txt": "3 classes",
        "tiny-imagenet-200/train": "6 pictures of 3 classes",
        "tiny-imagenet-200/val/images": "3 pictures",
        "tiny-imagenet-200/val/val_annotations.txt": "3 labels",
    }
    sources.read("tinyimagenet", tmp_path)
    cache = sources.check("tinyimagenet", tmp_path)[-1]
    assert cache.state == "cache" and f"{cache.path.stat().st_size:,} bytes: the decoded pictures" in cache.detail
    (published / "train/n01/images/n01_0.JPEG").unlink()
    assert "have changed since" in sources.check("tinyimagenet", tmp_path)[-1].detail


@pytest.mark.parametrize("name", ["wnids.txt", "words.txt", "val/val_annotations.txt", "train/n01/images/n01_0.JPEG"])
def test_a_pipe_in_tiny_imagenet_is_not_opened(tmp_path, published, name, monkeypatch):
    (published / name).unlink()
    os.mkfifo(published / name)
    with refused("is not Tiny ImageNet as published"):
        sources.read("tinyimagenet", tmp_path)
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    if name != "words.txt":
        with refused(Path(name).name, "everlearn data get tinyimagenet"):
            sources.read("tinyimagenet", tmp_path)


def test_annotations_name_files_of_their_folder_alone(tmp_path, published, monkeypatch):
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    for name in ("../../train/n01/images/n01_0.JPEG", "/etc/passwd", "..", ""):
        (published / "val/val_annotations.txt").write_text(f"{name}\tn01\n")
        with refused("row 1", "val_annotations.txt"):
            sources.read("tinyimagenet", tmp_path)


# --- what unpacks to more than it should ---


def test_what_unpacks_to_far_more_than_it_is_is_refused_unless_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "ALWAYS", 2**20)
    write_idx(tmp_path / "mnist")
    path, image = tmp_path / "mnist/train-images-idx3-ubyte", bytes(20 * 300 * 300)
    path.write_bytes(gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 20, 300, 300) + image))
    with refused("train-images-idx3-ubyte cannot be read", "more than 1,048,576", "EVERLEARN_UNPACKED="):
        sources.read("mnist", tmp_path)
    assert "EVERLEARN_UNPACKED" in sources.check("mnist", tmp_path)[1].detail
    blank = {"x_train": np.zeros((6, 600, 600), np.uint8), "x_test": np.zeros((3, 600, 600), np.uint8)}
    np.savez_compressed(tmp_path / "blank.npz", **npz_arrays(**blank))
    with refused("blank.npz is not a readable .npz file", "EVERLEARN_UNPACKED"):
        sources.read(f"npz:{tmp_path}/blank.npz")
    monkeypatch.setenv("EVERLEARN_UNPACKED", "2000")
    assert sources.read(f"npz:{tmp_path}/blank.npz").train[0].shape == (6, 1, 600, 600)
    assert formats.idx(path, 3).shape == (20, 300, 300)
    monkeypatch.setenv("EVERLEARN_UNPACKED", "many")
    with refused("EVERLEARN_UNPACKED 'many' must be a whole number"):
        formats.room(1)


def npy(header, content=b""):
    text = header.encode() + b" " * (53 - len(header) % 64 % 53) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + content


@pytest.mark.parametrize(
    ("header", "content"),
    [
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 1000000, 10)}", bytes(99)),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (3, 3)}", bytes(10)),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (-1, -9)}", bytes(9)),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        ("{'descr': [('a', '<u4')], 'fortran_order': False, 'shape': (2,)}", bytes(8)),
        ("{'descr': '<U100000000', 'fortran_order': False, 'shape': (9,)}", bytes(8)),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': " + "(1," * 90 + ")" * 90 + "}", bytes(1)),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': " + "(" + "1," * 90 + ")}", bytes(1)),
        ("{'descr': __import__('os').abort(), 'fortran_order': False, 'shape': ()}", bytes(1)),
    ],
)
def test_an_array_has_the_bytes_its_header_asks_for(tmp_path, header, content):
    path = tmp_path / "a.npz"
    write_npz(path)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, member in (members | {"x_train.npy": npy(header, content)}).items():
            file.writestr(name, member)
    with refused("a.npz is not a readable .npz file"):
        sources.read(f"npz:{path}")


@pytest.mark.parametrize("names", [np.array([b"\xff", b"a", b"b"]), np.array(["a", "b", "x" * 2000]), np.zeros(2)])
def test_names_are_short_words(tmp_path, names):
    with refused("'names' of"):
        sources.read(write_npz(tmp_path / "a.npz", names=names))


def test_arrays_come_back_as_they_were_written(tmp_path):
    arrays = {
        "fortran": np.asfortranarray(some(4, 5)),
        "empty": np.zeros((0, 3), np.float32),
        "one": np.array(7.5),
        "big": np.arange(6, dtype=">i4").reshape(2, 3),
        "words": np.array(["a", "bä"]),
        "bytes": np.array([b"a", b"bcd"]),
        "truth": np.array([True, False]),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    found = formats.arrays(tmp_path / "a.npz")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[key], arrays[key]) and found[key].dtype == arrays[key].dtype for key in arrays)
    np.save(tmp_path / "a.npy", arrays["big"])
    assert np.array_equal(formats.arrays(tmp_path / "a.npy")[""], arrays["big"])


def test_a_rank_of_an_idx_file_is_not_believed(tmp_path):
    (tmp_path / "a").write_bytes(b"\0\0\x08\xff" + struct.pack(">255I", *[1] * 255) + b"\7")
    with refused("has 255 dimensions where 3 are expected"):
        formats.idx(tmp_path / "a", 3)


# --- pickles ---


def deep(count):
    """A tuple in a tuple, …"""
    return b")" + b"\x85" * count


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"(" + b"K\0" * 2_000_001 + b"t.", "instructions"),
        (
            b"\x80\x02X" + struct.pack("<I", 99_000) + b"a" * 99_000 + b"X\x06\0\0\0latin1\x86q\0("
            b"c_codecs\nencode\nh\0R" + b"c_codecs\nencode\nh\0R" * 40 + b"t.",
            "more than its own",
        ),
        (b"}(" + deep(500_000) + b"K\0u.", "a tuple where a str or bytes is due"),
        (b"}(K\1K\0u.", "a int where a str or bytes is due"),
        (b"cos" + b"x" * 10_000 + b"\nsystem\n.", "…"),
    ],
)
def test_a_pickle_that_takes_time_or_memory_is_refused(tmp_path, content, words):
    (tmp_path / "a").write_bytes(content)
    with refused(tmp_path / "a", words):
        formats.cifar_python(tmp_path / "a", 10)


@pytest.mark.parametrize(
    "labels", [[b"x" * 50_000] * 6, [1, 2, [3], 4, 5, 6], [1.0] * 6, [2**80] * 6, {}, b"123456", None]
)
def test_labels_are_whole_numbers(tmp_path, labels):
    batch = {"labels": labels, "data": some(6, 3072)}
    (tmp_path / "a").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(BadInput):
        formats.cifar_python(tmp_path / "a", 10)
