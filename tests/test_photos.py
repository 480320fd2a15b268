"""Folders of photographs as they are: sizes, turns, colours, damaged files, and what is no file at all."""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from commands import command
from typer.testing import CliRunner

import everlearn
from everlearn import Experiment
from everlearn.cli import app as cli
from everlearn.data import folders, photos, sources, streams
from everlearn.errors import BadInput, Notice

Image = pytest.importorskip("PIL.Image")
RED, GREEN, BLUE = (250, 0, 0), (0, 250, 0), (0, 0, 250)


@pytest.fixture(autouse=True)
def in_time():
    """What would wait for ever fails instead."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(60)
    yield
    signal.alarm(0)


def save(path: Path, pixels: np.ndarray, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path, **options)
    return path


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def plain(height: int, width: int, colour: tuple[int, ...]) -> np.ndarray:
    return np.full((height, width, len(colour)), colour, np.uint8)


def album(root: Path, each: int = 4, size: tuple[int, int] = (8, 8), channels: int = 3, suffix: str = "png") -> Path:
    """Two classes, `cat` and `dog`."""
    for name in ("cat", "dog"):
        for n in range(each):
            save(root / name / f"{n}.{suffix}", noise(*size, channels, seed=n))
    return root


def exif(orientation: int):
    tags = Image.Exif()
    tags[photos.ORIENTATION] = orientation
    return tags


def noticed(path: Path, **options) -> str:
    """The warning with which a folder is read."""
    with pytest.warns(Notice) as told:
        folders.folder(path, **options)
    (one,) = told
    return str(one.message)


def read(path: Path, **options):
    """A folder that is read without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return folders.folder(path, **options)


# --- size ---


def test_pictures_of_one_size_keep_it_to_the_last_bit(tmp_path):
    album(tmp_path, size=(20, 12))
    (x, y), (held, _), names = read(tmp_path)
    assert x.shape == (6, 3, 20, 12) and held.shape == (2, 3, 20, 12) and names == ("cat", "dog")
    both = {picture.tobytes() for picture in (*x[y == 0], held[0])}
    assert both == {noise(20, 12, seed=n).transpose(2, 0, 1).tobytes() for n in range(4)}


def test_pictures_of_several_sizes_are_brought_to_64_or_to_what_is_asked_for(tmp_path):
    album(tmp_path, size=(40, 30))
    save(tmp_path / "cat/wide.jpg", noise(90, 300))
    assert read(tmp_path)[0][0].shape == (7, 3, 64, 64)
    assert read(tmp_path, size=17)[0][0].shape == (7, 3, 17, 17)
    assert read(tmp_path, size=(10, 20))[0][0].shape == (7, 3, 10, 20)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("upright", [False, True])
def test_the_short_side_is_scaled_and_the_middle_is_kept(tmp_path, suffix, upright):
    stripes = np.concatenate([plain(400, 200, RED), plain(400, 400, GREEN), plain(400, 200, BLUE)], axis=1)
    path = save(tmp_path / f"a.{suffix}", stripes.swapaxes(0, 1) if upright else stripes, quality=95)
    middle = photos.photo(path, 32)
    assert middle.shape == (3, 32, 32) and (np.abs(middle[:, 2:-2, 2:-2].astype(int).mean((1, 2)) - GREEN) < 5).all()


def test_fine_detail_is_averaged_and_not_sampled(tmp_path):
    path = save(tmp_path / "a.png", np.indices((256, 256)).sum(0) % 2 * 255)
    assert (abs(photos.photo(path, 32).astype(int) - 127) < 3).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "size 0 must be a number greater than 0"),
        ({"size": 1 << 20}, "size 1048576 must be a number below 16384"),
        ({"size": "64"}, "size must be a whole number, not '64'"),
        ({"channels": 2}, "channels 2 must be 1, for grey, or 3, for colour"),
    ],
)
def test_a_size_that_cannot_be_is_refused(tmp_path, options, words):
    path = save(tmp_path / "a.png", noise(8, 8))
    with pytest.raises(BadInput, match=words):
        photos.photo(path, **options)


def test_what_no_memory_holds_is_refused_with_the_way_out(tmp_path, monkeypatch):
    album(tmp_path)
    monkeypatch.setattr(photos.np, "empty", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(BadInput, match=r"not enough memory for 8 pictures of 8x8 pixels; .*size=64"):
        photos.gather(sorted(tmp_path.rglob("*.png")), None, None)


def test_more_than_the_machine_has_is_refused_before_it_is_filled(tmp_path, monkeypatch):
    album(tmp_path)
    monkeypatch.setattr(photos, "_memory", lambda: 999)
    with pytest.raises(BadInput, match=r"not enough memory for 8 pictures of 8x8 pixels"):
        photos.gather(sorted(tmp_path.rglob("*.png")), None, None)


# --- turns ---


def test_a_photograph_taken_upright_stands_upright(tmp_path):
    stored = np.concatenate([plain(10, 40, RED), plain(20, 40, GREEN)])  # 40 wide, 30 high, red at its top
    for suffix in ("jpg", "png", "webp"):
        upright = photos.photo(save(tmp_path / f"a.{suffix}", stored, exif=exif(6)))  # its top is the right-hand side
        assert upright.shape == (3, 40, 30)
        assert (np.abs(upright[:, 5:35, 22:].mean((1, 2)) - RED) < 12).all()
        assert (np.abs(upright[:, 5:35, :18].mean((1, 2)) - GREEN) < 12).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_undone(tmp_path, orientation):
    from PIL import ImageOps

    path = save(tmp_path / "a.png", noise(7, 5), exif=exif(orientation))
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image)).transpose(2, 0, 1)
    assert (photos.photo(path) == expected).all()


def test_pictures_have_one_size_if_they_have_it_once_turned(tmp_path):
    album(tmp_path, size=(40, 30))
    for suffix in ("jpg", "png"):
        save(tmp_path / f"cat/turned.{suffix}", noise(30, 40), exif=exif(6))
    assert read(tmp_path)[0][0].shape[1:] == (3, 40, 30)


def test_exif_after_the_pixels_of_a_png_counts_too(tmp_path):
    content = save(tmp_path / "a.png", noise(30, 40), exif=exif(6)).read_bytes()
    start = content.index(b"eXIf") - 4
    end = start + 12 + struct.unpack(">I", content[start : start + 4])[0]
    late = tmp_path / "late.png"
    late.write_bytes(content[:start] + content[end:-12] + content[start:end] + content[-12:])
    assert (photos.photo(late) == photos.photo(tmp_path / "a.png")).all()
    album(tmp_path / "album", size=(30, 40))
    late.rename(tmp_path / "album/cat/late.png")
    assert read(tmp_path / "album")[0][0].shape[1:] == (3, 30, 40)


def test_damaged_exif_turns_nothing(tmp_path):
    pixels = noise(6, 4)
    path = save(tmp_path / "a.png", pixels, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12")
    assert (photos.photo(path) == pixels.transpose(2, 0, 1)).all()


# --- colours ---


def test_a_grey_picture_among_coloured_ones_is_coloured_and_alone_is_not(tmp_path):
    album(tmp_path, channels=1)
    assert read(tmp_path)[0][0].shape[1] == 1
    save(tmp_path / "dog/colour.png", noise(8, 8))
    (x, _), (held, _), _ = read(tmp_path)
    grey = [picture for picture in (*x, *held) if (picture == picture[0]).all()]
    assert x.shape[1] == 3 and len(grey) == 8


@pytest.mark.parametrize("mode", ["RGBA", "P", "CMYK", "LA", "1", "L", "RGB"])
def test_a_picture_of_any_mode_has_one_or_three_channels_as_asked(tmp_path, mode):
    pixels = plain(8, 8, (200, 40, 90))
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    image = Image.fromarray(pixels)
    (image.convert("L").convert(mode) if mode in ("LA", "1") else image.convert(mode)).save(path)
    assert photos.photo(path, channels=3).shape == (3, 8, 8) and photos.photo(path, channels=1).shape == (1, 8, 8)
    assert photos.photo(path).shape[0] == (1 if mode in ("LA", "1", "L") else 3)
    if mode in ("RGBA", "P", "CMYK", "RGB"):
        assert (np.abs(photos.photo(path)[:, 0, 0].astype(int) - (200, 40, 90)) < 16).all()


def test_of_a_transparent_picture_the_colours_are_read(tmp_path):
    clear = np.concatenate([plain(8, 8, RED), plain(8, 8, (0,))], axis=2)
    assert (photos.photo(save(tmp_path / "a.png", clear))[:, 0, 0] == RED).all()


def test_sixteen_bits_are_scaled_to_eight_and_not_clipped(tmp_path):
    values = np.array([[0, 257, 40000, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert photos.photo(tmp_path / "a.png").tolist() == [[[0, 1, 156, 255]]]


# --- what cannot be read ---


def spoil(root: Path) -> None:
    """Four files in a folder of cats that are no pictures."""
    whole = save(root / "whole.jpg", noise(64, 64)).read_bytes()
    (root / "whole.jpg").unlink()
    (root / "cat/cut.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "cat/empty.png").write_bytes(b"")
    (root / "cat/random.webp").write_bytes(noise(10, 10).tobytes())
    (root / "cat/text.png").write_text("this is no picture\n")


def test_what_cannot_be_read_is_skipped_and_named(tmp_path):
    (clean, _), _, _ = read(album(tmp_path))
    spoil(tmp_path)
    told = noticed(tmp_path)
    assert re.match(rf"4 of 12 pictures in {tmp_path} cannot be read and were skipped: cat/cut.jpg \(.*truncated", told)
    assert "cat/empty.png (empty), cat/random.webp (not a picture) and 1 more; `everlearn data check" in told
    with pytest.warns(Notice):
        (x, y), (_, held), _ = folders.folder(tmp_path)
    assert (x == clean).all(), "the rest is as it would be without them"
    assert np.bincount(y).tolist() == [3, 3] and np.bincount(held).tolist() == [1, 1]


def test_strict_refuses_what_would_be_skipped(tmp_path):
    album(tmp_path)
    assert read(tmp_path, strict=True)[2] == ("cat", "dog")
    spoil(tmp_path)
    with pytest.raises(BadInput, match=r"4 of 12 pictures .* cannot be read: cat/cut.jpg .* leave strict out"):
        folders.folder(tmp_path, strict=True)
    with pytest.raises(BadInput, match="4 of 12 pictures"):
        photos.photos(tmp_path, strict=True)
    with pytest.raises(BadInput, match="4 of 12 pictures"):
        everlearn.load(f"folder:{tmp_path}", strict=True)


def test_a_damaged_picture_of_another_size_or_colour_does_not_change_the_others(tmp_path):
    album(tmp_path, channels=1)
    whole = save(tmp_path / "cat/cut.png", noise(9, 90)).read_bytes()
    (tmp_path / "cat/cut.png").write_bytes(whole[:400])
    with pytest.warns(Notice, match="cut.png"):
        assert folders.folder(tmp_path)[0][0].shape[1:] == (1, 8, 8)


def test_a_class_of_which_nothing_or_too_little_can_be_read_is_refused(tmp_path):
    album(tmp_path, each=2)
    (tmp_path / "dog/0.png").write_bytes(b"")
    with pytest.raises(BadInput, match="dog holds one picture that can be read: two at least"):
        folders.folder(tmp_path)
    assert np.bincount(photos.photos(tmp_path).images[1]).tolist() == [2, 1]
    (tmp_path / "dog/1.png").write_bytes(b"")
    for reads in (folders.folder, photos.photos):
        with pytest.raises(
            BadInput, match=r"a class needs a picture that can be read: 2 of 2 pictures in .*dog .*0.png"
        ):
            reads(tmp_path)
    (tmp_path / "dog/0.png").unlink()
    with pytest.raises(BadInput, match="dog holds one picture: two at least are needed to hold one out"):
        folders.folder(tmp_path)


def test_a_damaged_file_is_part_of_what_tells_a_folder_from_others(tmp_path):
    album(tmp_path)
    before = streams.fingerprint(f"folder:{tmp_path}")
    spoil(tmp_path)
    spoiled = streams.fingerprint(f"folder:{tmp_path}")
    (tmp_path / "cat/text.png").unlink()
    assert len({before, spoiled, streams.fingerprint(f"folder:{tmp_path}")}) == 3


# --- too large ---


def header(width: int, height: int) -> bytes:
    """A PNG that says it is that large, and has not one pixel."""
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_000, 10_000), (100_000, 100_000)])  # where Pillow warns, and where it refuses
def test_a_picture_of_too_many_pixels_is_skipped_without_a_warning_of_pillows(tmp_path, size):
    limit = Image.MAX_IMAGE_PIXELS
    album(tmp_path)
    (tmp_path / "cat/bomb.png").write_bytes(header(*size))
    assert f"bomb.png ({size[0]}x{size[1]}, more than the 89,478,485 pixels of EVERLEARN_PIXELS)" in noticed(tmp_path)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_how_many_pixels_are_too_many_can_be_said(tmp_path, monkeypatch):
    album(tmp_path)
    save(tmp_path / "cat/large.png", noise(20, 20))
    monkeypatch.setenv("EVERLEARN_PIXELS", "100")
    assert "large.png (20x20, more than the 100 pixels" in noticed(tmp_path)
    monkeypatch.setenv("EVERLEARN_PIXELS", "400")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    assert len(read(tmp_path)[0][0]) == 7, "Pillow's own limit is not asked"
    for wrong in ("many", "0", "-1", "1e9"):
        monkeypatch.setenv("EVERLEARN_PIXELS", wrong)
        with pytest.raises(BadInput, match=f"EVERLEARN_PIXELS '{wrong}' must be a whole number"):
            folders.folder(tmp_path)


# --- what is no file ---


def test_a_pipe_a_socket_and_a_device_are_not_opened(tmp_path, monkeypatch):
    album(tmp_path)
    digest = streams.fingerprint(f"folder:{tmp_path}")
    os.mkfifo(tmp_path / "cat/pipe.png")
    (tmp_path / "cat/device.png").symlink_to("/dev/zero")
    monkeypatch.chdir(tmp_path / "cat")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.png")
        assert noticed(tmp_path).count("(not a regular file)") == 3
    assert streams.fingerprint(f"folder:{tmp_path}") == digest
    with pytest.raises(BadInput, match=r"pipe.png cannot be decoded \(not a regular file\)"):
        photos.photo("pipe.png")


def test_links_to_pictures_are_followed_and_those_that_lead_nowhere_skipped(tmp_path):
    album(tmp_path / "album")
    save(tmp_path / "far.png", noise(8, 8, seed=9))
    (tmp_path / "album/cat/linked.png").symlink_to(tmp_path / "far.png")
    assert len(read(tmp_path / "album")[0][0]) == 7
    (tmp_path / "album/cat/gone.png").symlink_to("nowhere.png")
    (tmp_path / "album/cat/self.png").symlink_to("self.png")
    told = noticed(tmp_path / "album")
    assert "gone.png (No such file or directory), cat/self.png (Too many levels of symbolic links)" in told


def test_links_that_lead_back_are_not_followed(tmp_path):
    album(tmp_path)
    digest, whole = streams.fingerprint(f"folder:{tmp_path}"), read(tmp_path)
    (tmp_path / "cat/up").symlink_to("..")
    (tmp_path / "cat/here").symlink_to(".")
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    again = read(tmp_path)
    assert again[2] == ("cat", "dog") and (again[0][0] == whole[0][0]).all()
    assert streams.fingerprint(f"folder:{tmp_path}") == digest
    with pytest.raises(BadInput, match="there is no folder"):
        everlearn.load(f"folder:{tmp_path}/self")
    with pytest.raises(BadInput, match="there is no folder"):
        everlearn.run("er", f"folder:{tmp_path}/self", network="mlp")


def test_links_round_two_folders_end(tmp_path):
    album(tmp_path)
    (tmp_path / "cat/other").symlink_to("../dog")
    (tmp_path / "dog/other").symlink_to("../cat")
    assert streams.fingerprint(f"folder:{tmp_path}")
    with pytest.raises(BadInput, match="cat/other holds pictures"):
        folders.folder(tmp_path)


def test_a_class_that_is_a_link_is_read_and_told_apart_by_its_content(tmp_path):
    album(tmp_path / "real")
    for half in ("", "train", "test"):
        place = tmp_path / "linked" / half
        place.mkdir(parents=True, exist_ok=True)
        for name in ("cat", "dog") if half else ():
            (place / name).symlink_to(tmp_path / "real" / name)
    name = f"folder:{tmp_path}/linked"
    assert sources.read(name).names == ("cat", "dog")
    before = streams.fingerprint(name)
    save(tmp_path / "real/cat/0.png", noise(8, 8, seed=99))
    assert before is not None and streams.fingerprint(name) != before


def test_a_folder_called_like_a_picture_is_none(tmp_path):
    album(tmp_path)
    (tmp_path / "cat/strange.png").mkdir()
    assert len(read(tmp_path)[0][0]) == 6


# --- the two functions others use ---


def test_photo_is_one_picture_in_the_shape_asked_for(tmp_path):
    path = save(tmp_path / "a.jpg", noise(50, 30))
    for size, channels, shape in ((None, None, (3, 50, 30)), (16, 1, (1, 16, 16)), ((8, 24), 3, (3, 8, 24))):
        picture = photos.photo(str(path), size, channels)
        assert picture.shape == shape and picture.dtype == np.uint8 and picture.flags.c_contiguous
        assert picture.flags.writeable
    with pytest.raises(BadInput, match=r"none.png cannot be decoded \(No such file or directory\)"):
        photos.photo(tmp_path / "none.png")


def test_photos_are_all_pictures_of_the_class_folders_and_what_was_skipped(tmp_path):
    album(tmp_path)
    (tmp_path / "dog/9.png").write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (x, y), names, skipped = photos.photos(tmp_path, size=(4, 6), channels=1)
    assert x.shape == (8, 1, 4, 6) and y.tolist() == [0] * 4 + [1] * 4 and names == ("cat", "dog")
    assert skipped == ((tmp_path / "dog/9.png", "empty"),) and skipped[0].reason == "empty"
    assert (x[5] == photos.photo(tmp_path / "dog/1.png", (4, 6), 1)).all()
    for name, words in (("none", "there is no folder"), ("cat", "has no class folders")):
        with pytest.raises(BadInput, match=words):
            photos.photos(tmp_path / name)


def test_without_pillow_it_says_what_to_install(tmp_path, monkeypatch):
    album(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BadInput, match=r"needs Pillow: pip install 'everlearn\[images\]'"):
        folders.folder(tmp_path)


def test_pillow_is_imported_when_a_picture_is_read():
    code = "import sys, everlearn.data.photos, everlearn.data.folders; sys.exit('PIL' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": ":".join(sys.path)}).returncode
        == 0
    )


# --- as settings of an experiment ---


def test_experiments_that_set_no_size_have_the_hashes_they_had(tmp_path):
    album(tmp_path / "photos", suffix="bmp")
    of = lambda *names, **more: Experiment.of(*names, device="cpu", **more)
    assert of("er", "digits").hash == "af937241e44d6a816a889c438d264a9a65fb2fc2ae2d483ce0df862966f39831"
    assert of("rder", "cifar10", memory=200).hash == "f0ea7fd0a783ca03a169959001946df04f9748b9da7953085d86025f5132ae01"
    own = of("er", f"folder:{tmp_path}/photos")
    assert own.document()["stream"]["options"] == {"classes": None, "shuffle": None, "tasks": None}
    assert own.hash == "f9e5d45eb25aede2f9b87679367cb3bea78c79cc48ca1528eed7e12af088aa68"
    assert own == of("er", f"folder:{tmp_path}/photos", strict=False)


def test_a_size_is_a_setting_that_is_hashed_recorded_and_read_back(tmp_path):
    album(tmp_path)
    name = f"folder:{tmp_path}"
    own, small = Experiment.of("er", name), Experiment.of("er", name, size="6")
    assert own.hash != small.hash and small.stream["size"] == 6 and small.settings()["size"] == 6
    assert small == Experiment.of("er", {"name": name, "size": 6}) == Experiment.read(small.document())
    assert Experiment.of("er", name, size=6, strict=True) != small
    assert everlearn.load(name, size=6).shape == (3, 6, 6) and everlearn.load(name).shape == (3, 8, 8)
    assert Experiment.of("er", name, size=32).network.name == "resnet18"


def test_a_size_is_refused_of_what_has_one(tmp_path):
    with pytest.raises(BadInput, match="size can be said of folder:DIR, and not of digits"):
        everlearn.load("digits", size=32)
    with pytest.raises(BadInput, match="size and strict can be said of folder:DIR, and not of npz:mine"):
        everlearn.load("npz:mine", size=32, strict=True)
    with pytest.raises(BadInput, match="unknown setting of er 'size'"):
        Experiment.of("er", "digits", size=32)


# --- on the command line ---


def process(words: str, folder: Path) -> subprocess.CompletedProcess:
    """The command in a process of its own, in that folder."""
    return command(words.split(), folder, CUDA_VISIBLE_DEVICES="", COLUMNS="200")


def mixed(root: Path) -> Path:
    """As people have them: of many sizes, one turned, one grey, one damaged, one in a format that is not read."""
    for name, level in (("cat", 60), ("dog", 180)):
        for n in range(6):
            save(root / name / f"{n}.jpg", plain(30 + n, 40, (level, level, 10 * n)))
        save(root / name / "turned.jpg", plain(30, 50, (level,) * 3), exif=exif(6))
        save(root / name / "grey.png", np.full((20, 20), level))
    (root / "cat/cut.jpg").write_bytes((root / "cat/0.jpg").read_bytes()[:300])
    (root / "dog/phone.heic").write_bytes(b"another format")
    return root


def test_a_run_on_photos_can_be_run_again_from_another_folder(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    mixed(here / "photos")
    there.mkdir()
    words = "run er --stream folder:photos --set size=12 --network mlp --epochs 1 --memory 4 --set tasks=2 --json"
    ran = process(f"{words} --quiet", here)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.startswith("everlearn: 1 of 17 pictures in ") and ran.stderr.count("\n") == 2
    assert "cat/cut.jpg (" in ran.stderr and "of a kind that is not read, such as phone.heic" in ran.stderr
    document = json.loads(ran.stdout)["experiment"]
    assert document["stream"]["options"]["size"] == 12 and document["stream"]["name"] == "folder:photos"
    assert document["stream"]["at"] == f"folder:{here.resolve()}/photos"
    (record,) = (here / "runs").iterdir()
    again = process(f"again {record} --json --quiet", there)
    assert again.returncode == 0, again.stderr
    assert [one["same"] for key, one in json.loads(again.stdout).items() if key != "seal"] == [True]
    several = process(f"{words.replace('--json', '--seeds 2')}", here)
    assert several.returncode == 0 and several.stderr.count("cannot be read") == 1 and "Notice" not in several.stderr
    refused = process(f"{words} --set strict=true", here)
    assert refused.returncode == 2 and "cat/cut.jpg" in refused.stderr and refused.stderr.count("\n") == 1
    hint = process("run er --stream folder:photos --size 12", here)
    assert "give it as --set size=12" in hint.stderr


def test_an_npz_can_be_run_again_from_another_folder(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    x, y = noise(40, 36, 1).reshape(40, 6, 6), np.arange(40) % 4
    np.savez(here / "x.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    ran = process("run er --stream npz:x.npz --network mlp --epochs 1 --memory 4 --quiet", here)
    assert ran.returncode == 0, ran.stderr
    (record,) = (here / "runs").iterdir()
    again = process(f"again {record} --json --quiet", there)
    assert again.returncode == 0
    assert [one["same"] for key, one in json.loads(again.stdout).items() if key != "seal"] == [True]


def test_check_tells_classes_sizes_and_what_would_be_skipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    mixed(tmp_path / "photos")
    call = lambda words: CliRunner().invoke(cli.app, words.split(), prog_name="everlearn")
    told = call("data check folder:photos")
    assert told.exit_code == 0 and told.stderr == ""
    flat = " ".join(told.stdout.split())
    assert "12 + 4 images of 2 classes, in colour, 64x64; on disk 40x30 (2), 40x31 (2)" in flat
    assert "and 4 other sizes" in flat and "cat ok 6 + 2 images" in flat
    assert "dog ok 6 + 2 images; not read: 1 .heic" in flat
    heads = re.findall(r"(data set|class|file) state", flat)
    assert heads == ["data set", "class", "file"]  # of photos, of cat and dog, of cut.jpg
    assert re.search(r"cut.jpg skipped \S+", flat)
    strict = call("data check folder:photos --strict")
    assert strict.exit_code == 2 and "unreadable" in strict.stdout
    assert strict.stderr == "everlearn: folder:photos has files that cannot be read, 1 of them; repair or remove them\n"
    (tmp_path / "photos/cat/cut.jpg").unlink()
    assert call("data check folder:photos --strict").exit_code == 0
