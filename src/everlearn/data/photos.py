"""Pictures in folders, as they are: of any size, turned on their side, grey or in colour, some of them damaged.

A picture becomes uint8 [C, H, W]: turned as its EXIF says; in 8 bits; grey (1 channel) or RGB (3), without what it has
of transparency; and, where another size is wanted, scaled until its short side has that size and cut to it about its
centre. Pillow decodes it, and is imported when the first picture is read. Only regular files are opened.
"""

import contextlib
import math
import os
import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from everlearn.data.formats import Damaged, Split, limit, reading
from everlearn.errors import BadInput, number, plural
from everlearn.files import opened

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
FOREIGN = (".avif", ".gif", ".heic", ".heif", ".tif", ".tiff")  # suffixes of pictures, too, but these are not read
# What is read, whatever the suffix; Pillow also knows formats that run code.
FORMATS = ("BMP", "DIB", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N"}  # the Pillow modes without colour
SIZE = 64  # pixels a side, where pictures differ in size and none is asked for
LARGEST = 2**14  # pixels a side that can be asked for
PIXELS = 89_478_485  # most of a picture, unless $EVERLEARN_PIXELS says otherwise: Pillow's limit, a quarter of a GiB
TURNS = {  # EXIF's orientation, and what undoes it
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)

Size = int | tuple[int, int]  # pixels a side, or height and width
Shape = tuple[int, int, int]  # channels, height, width

_opening = threading.Lock()


class Skipped(NamedTuple):
    """A file that is called a picture and cannot be read as one, and why."""

    path: Path
    reason: str


class Photos(NamedTuple):
    """The pictures of class folders: (pixels, labels), the classes' names by label, and what was skipped."""

    images: Split
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]


class Unreadable(Exception):
    """Why a file cannot be read as a picture, in words that follow its name."""


# --- one picture ---


def photo(path: Path | str, size: Size | None = None, channels: int | None = None) -> np.ndarray:
    """One picture as uint8 [C, H, W], by the rules above; a file that is none raises Damaged.

    `size` is a number of pixels a side, or height and width; `channels` is 1 or 3. What is not given is the picture's
    own.
    """
    wanted = _checked(size, channels)
    try:
        return _decoded(Path(path), wanted, channels)
    except Unreadable as error:
        raise Damaged(f"{path} cannot be decoded ({error})") from error


def _checked(size: Size | None, channels: int | None) -> tuple[int, int] | None:
    """Height and width of a size that is asked for; sizes and channels that cannot be had are refused."""
    if channels not in (None, 1, 3):
        raise BadInput(f"channels {channels} must be 1, for grey, or 3, for colour")
    if size is None:
        return None
    height, width = size if isinstance(size, tuple) else (size, size)
    for side in (height, width):
        number("size", side, whole=True, positive=True, below=LARGEST)
    return height, width


def _decoded(path: Path, size: tuple[int, int] | None, channels: int | None) -> np.ndarray:
    with _opened(path) as image:
        from PIL import Image, ImageOps

        mode = "L" if (channels or _channels(image)) == 1 else "RGB"
        if size:
            image.draft(None, (2 * max(size),) * 2)  # a JPEG can be decoded at a half, a quarter or an eighth
        image.load()
        plain, turn = _eight_bits(image), TURNS.get(_orientation(image))
        if plain.mode != mode:  # else it would be a copy
            plain = plain.convert(mode)
        if turn:
            plain = plain.transpose(Image.Transpose[turn])
        if size and plain.size != size[::-1]:
            height, width = size
            plain = ImageOps.fit(plain, (width, height), Image.Resampling.BICUBIC)
        pixels = np.asarray(plain).reshape(plain.height, plain.width, len(mode))
        return np.array(np.moveaxis(pixels, -1, 0), order="C")


def _look(path: Path) -> Shape:
    """The shape a picture has once it is decoded, from the beginning of its file."""
    with _opened(path) as image:
        # The EXIF of a PNG may come after its pixels; to look for it there is to decode them.
        near = image.format != "PNG" or "exif" in image.info
        width, height = image.size[::-1] if near and _orientation(image) in SIDEWAYS else image.size
        return _channels(image), height, width


def _channels(image: Any) -> int:
    return 1 if image.mode in GREY else 3


def _orientation(image: Any) -> int:
    try:
        return image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged EXIF turns nothing
        return 1


def _eight_bits(image: Any) -> Any:
    """Sixteen bits, which Pillow would clip at 255, as eight; of more nobody knows which value is white."""
    if image.mode[0] not in "IF":
        return image
    if image.mode == "F" or (image.mode == "I" and image.format != "PNG"):  # which older Pillows give 16-bit PNGs
        raise Unreadable(f"more than 16 bits per channel, mode {image.mode}")
    from PIL import Image

    values = np.asarray(image).astype(np.int64).clip(0, 65535)
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A picture of which the header is read; whatever goes wrong with it, here or later, is Unreadable."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise BadInput(f"decoding {path} needs Pillow: pip install 'everlearn[images]'") from None
    most = limit("EVERLEARN_PIXELS", PIXELS)
    try:
        with warnings.catch_warnings(), opened(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise Unreadable("empty")
            warnings.simplefilter("ignore")  # Pillow warns about metadata
            with _header(Image, file) as image:
                if image.width * image.height > most:
                    raise Unreadable(f"{image.width}x{image.height}, more than the {most:,} pixels of EVERLEARN_PIXELS")
                yield image
    except (Unreadable, MemoryError):
        raise
    except UnidentifiedImageError:
        raise Unreadable("not a picture") from None
    except Exception as error:  # OSError, SyntaxError, ValueError, struct.error: Pillow's plugins raise what they like
        raise Unreadable(getattr(error, "strerror", None) or str(error) or type(error).__name__) from error


def _header(pillow: Any, file: Any) -> Any:
    """Open without Pillow's own limit: that is a warning first, and an error at another number."""
    with _opening:
        before, pillow.MAX_IMAGE_PIXELS = pillow.MAX_IMAGE_PIXELS, None
        try:
            return pillow.open(file, formats=FORMATS)
        finally:
            pillow.MAX_IMAGE_PIXELS = before


# --- many pictures ---


class Gathered(NamedTuple):
    """Pictures in one shape, what each is on disk, and what could not be read."""

    pixels: np.ndarray  # [N, C, H, W]
    looks: dict[Path, Shape]  # of each, in their order, as it is on disk
    skipped: tuple[Skipped, ...]


def gather(files: Sequence[Path], size: Size | None, channels: int | None) -> Gathered:
    """Those that can be read, in one shape: the one asked for, else the one that `_common` finds."""
    wanted = _checked(size, channels)
    looks: dict[Path, Shape] = {}
    skipped: dict[Path, str] = {}
    for file in files:
        try:
            looks[file] = _look(file)
        except Unreadable as error:
            skipped[file] = str(error)
    pixels = np.zeros((0, 0, 0, 0), np.uint8)
    while looks:
        shape = _common(looks.values(), wanted, channels)
        pixels, failed = _fill(list(looks), shape)
        skipped |= failed
        looks = {file: look for file, look in looks.items() if file not in failed}
        if not looks or _common(looks.values(), wanted, channels) == shape:
            break  # else one that cannot be read hid what the others have in common
    return Gathered(pixels, looks, tuple(Skipped(file, skipped[file]) for file in files if file in skipped))


def _fill(files: Sequence[Path], shape: Shape) -> tuple[np.ndarray, dict[Path, str]]:
    """The pictures that can be decoded, in that shape, and why the others cannot."""
    pixels, row = _room(len(files), shape), 0
    failed: dict[Path, str] = {}
    for file in files:
        try:
            pixels[row] = _decoded(file, shape[1:], shape[0])
            row += 1
        except Unreadable as error:
            failed[file] = str(error)
    return pixels[:row], failed


def _common(looks: Collection[Shape], size: tuple[int, int] | None, channels: int | None) -> Shape:
    """The shape that pictures are brought to: grey if all are grey, and the size that all have, else SIZE."""
    sizes = {look[1:] for look in looks}
    height, width = size or (sizes.pop() if len(sizes) == 1 else (SIZE, SIZE))
    return channels or max(look[0] for look in looks), height, width


def _room(count: int, shape: Shape) -> np.ndarray:
    try:
        if count * math.prod(shape) > _memory():  # else the system may kill the process while the array is filled
            raise MemoryError
        return np.empty((count, *shape), np.uint8)
    except (MemoryError, ValueError):
        kept = f"{count:,} pictures of {shape[2]}x{shape[1]} pixels"
        raise BadInput(
            f"there is not enough memory for {kept}; bring them to a smaller size, such as size={SIZE}"
        ) from None


def _memory() -> int:
    """The memory of this machine, in bytes."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def unread(path: Path, files: int, skipped: Sequence[Skipped], then: str = "") -> str:
    """How many of the files in a folder cannot be read, what became of them, and the first ones with the reason."""
    named = [f"{os.path.relpath(one.path, path)} ({one.reason})" for one in skipped[:3]]
    more = f" and {len(skipped) - 3} more" if len(skipped) > 3 else ""
    return f"{len(skipped)} of {files} pictures in {path} cannot be read{then}: {', '.join(named)}{more}"


def insist(path: Path, files: int, skipped: Sequence[Skipped]) -> None:
    """Refuse a folder of which something would be skipped."""
    if skipped:
        raise Damaged(f"{unread(path, files, skipped)}; repair them, remove them, or leave strict out")


# --- folders of them ---


def is_picture(file: Path) -> bool:
    """Does the file have the name of a picture?"""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def pictures_under(folder: Path, links: int = 2) -> Iterator[Path]:
    """What is called a picture in a folder and below it.

    Links to folders are followed `links` levels down, which is as deep as classes lie, and never back up.
    """
    entries: list[Path] = []
    with contextlib.suppress(OSError):  # what cannot be listed is reported when it is read
        entries = list(folder.iterdir())
    for entry in entries:
        if not entry.is_dir():
            if is_picture(entry):
                yield entry
        elif not entry.is_symlink() or (links > 0 and not _leads_back(entry)):
            yield from pictures_under(entry, links - 1)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, without hidden ones and links that lead back to it or above it."""
    with reading(folder):
        if not folder.is_dir():
            return []
        named = (entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        return sorted(entry for entry in named if not _leads_back(entry))


def _leads_back(entry: Path) -> bool:
    return entry.is_symlink() and Path(os.path.realpath(entry.parent)).is_relative_to(os.path.realpath(entry))


def _pictures_in(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if is_picture(file) and not file.is_dir()]


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """The pictures of each class, both in the order of their names."""
    with reading(folder):
        classes = {entry.name: sorted(_pictures_in(entry)) for entry in subfolders(folder)}
    for name, files in classes.items():
        for inside in subfolders(folder / name):
            if next(pictures_under(inside, links=0), None):
                raise BadInput(
                    f"{inside} holds pictures: a class has them in its own folder, {folder / name}; "
                    f"if {inside.name} is a class, give {folder / name} instead of {folder}"
                )
        if not files:
            raise BadInput(
                f"{folder / name} holds no pictures ({' '.join(SUFFIXES)}); each folder in {folder} is to be a class"
            )
    return classes


def passed_over(folder: Path) -> Iterator[str]:
    """What lies in a folder of class folders and is not taken, though it is a picture."""
    with reading(folder):
        homeless = _pictures_in(folder)
        foreign = [file for home in subfolders(folder) for file in home.iterdir() if file.suffix.lower() in FOREIGN]
    for files, why in ((homeless, "beside the class folders"), (foreign, "of a kind that is not read")):
        if files:
            yield f"{plural(len(files), 'picture')} in {folder} left out, {why}, such as {min(files).name}"


def readable(classes: Mapping[str, list[Path]], found: Gathered) -> dict[str, list[Path]]:
    """The pictures of each class that could be read; a class without any is refused."""
    left = {name: [file for file in files if file in found.looks] for name, files in classes.items()}
    for name, files in left.items():
        if not files:
            gone = set(classes[name])
            lost = [one for one in found.skipped if one.path in gone]
            raise Damaged(f"a class needs a picture that can be read: {unread(lost[0].path.parent, len(lost), lost)}")
    return left


def photos(path: Path | str, size: Size | None = None, channels: int | None = None, strict: bool = False) -> Photos:
    """PATH/CLASS/*, all of it: pixels [N, C, H, W] and labels [N], class names, and which files were skipped and why.

    Classes and their pictures are in the order of their names. Without a `size` it is the one that all pictures have,
    else 64x64; without `channels` it is 1 if all are grey, else 3. With `strict`, a file that cannot be read is refused
    rather than skipped.
    """
    path = Path(path)
    if not path.is_dir():
        raise BadInput(f"there is no folder {path}")
    classes = class_folders(path)
    if not classes:
        raise BadInput(f"{path} has no class folders: {path}/CLASS/*.png")
    files = [file for of in classes.values() for file in of]
    found = gather(files, size, channels)
    if strict:
        insist(path, len(files), found.skipped)
    left = readable(classes, found)
    return Photos((found.pixels, labels(left)), tuple(left), found.skipped)


def labels(classes: Mapping[str, Sequence[Path]]) -> np.ndarray:
    """A number for each picture: its class's place among the classes."""
    return np.repeat(np.arange(len(classes)), [len(files) for files in classes.values()])
