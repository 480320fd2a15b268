"""The data sets: where each comes from, which files it is made of, and how they become arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.data import formats, tiny


@dataclass(frozen=True)
class Images:
    """A labelled image data set as plain arrays."""

    train: tuple[np.ndarray, np.ndarray]  # uint8 [N, C, H, W], int64 [N]
    test: tuple[np.ndarray, np.ndarray]
    names: tuple[str, ...]  # class names, index = label


@dataclass(frozen=True)
class Archive:
    """A file to download: its name, its md5 as published, and the addresses to try in turn."""

    file: str
    md5: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A file or folder of a data set as it lies on disk: the names it may have, and the md5 of its unpacked content."""

    names: tuple[str, ...]
    md5: str = ""


@dataclass(frozen=True)
class Whole:
    """A folder of very many files that is verified as one: the digest of its content, and what is said of it."""

    published: str
    identify: Callable[[Path], str]  # the digest, remembered as long as nothing changes
    compute: Callable[[Path], str]  # the digest, read anew
    counts: Callable[[Path], dict[str, str]]  # by part, what it holds
    wanting: Callable[[Path], str]  # what is missing or too much
    cache: Callable[[Path], tuple[Path, str]]  # where it is kept decoded, and of what use that is


@dataclass(frozen=True)
class Layout:
    """One form in which a data set may lie: folders under the data root, the parts in one of them, and their reader."""

    folders: tuple[str, ...]
    parts: tuple[Part, ...]
    read: Callable[[list[Path], tuple[str, ...]], Images]
    remedy: str = "`{get}` fetches it again"  # what to do about a damaged part
    whole: Whole | None = None  # where the parts have no md5


@dataclass(frozen=True)
class Source:
    """A data set: what it is, what to download, how it may lie on disk; of two whole layouts the first counts."""

    title: str
    summary: str
    names: tuple[str, ...] = ()  # empty where the files themselves name the classes
    archives: tuple[Archive, ...] = ()
    layouts: tuple[Layout, ...] = ()


# --- readers: the parts of a layout, in its order, to Images ---


def _read_idx(paths: list[Path], names: tuple[str, ...]) -> Images:
    train_images, train_labels, test_images, test_labels = paths
    train, test = (
        formats.idx_pair(images, labels, len(names))
        for images, labels in ((train_images, train_labels), (test_images, test_labels))
    )
    if train[0].shape[1:] != test[0].shape[1:]:
        raise formats.Damaged(f"{test_images} has images of another size than {train_images}")
    return Images(train, test, names)


def _read_cifar(decode: Callable[[Path, int], formats.Split]) -> Callable[[list[Path], tuple[str, ...]], Images]:
    def read(paths: list[Path], names: tuple[str, ...]) -> Images:
        *train, test = (decode(path, len(names)) for path in paths)
        images, labels = (np.concatenate(column) for column in zip(*train, strict=True))
        return Images((images, labels), test, names)

    return read


def _read_tiny(paths: list[Path], _: tuple[str, ...]) -> Images:
    return Images(*tiny.read(paths[0].parent))


def read_digits() -> Images:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits: Any = load_digits()
    images, labels = digits.images.astype(np.uint8)[:, None], digits.target.astype(np.int64)
    parts: Any = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
    x_train, x_test, y_train, y_test = parts
    return Images((x_train, y_train), (x_test, y_test), SOURCES["digits"].names)


# --- the table ---


def _idx(title: str, summary: str, names: str, urls: tuple[str, ...], files: dict[str, tuple[str, str]]) -> Source:
    """Four IDX files, each with the md5 of its .gz as published and the md5 of its content."""
    name, raw = title.lower(), f"{title.replace('-', '')}/raw"
    archives = [
        Archive(f"{file}.gz", md5, tuple(f"{url}/{file}.gz" for url in urls)) for file, (md5, _) in files.items()
    ]
    parts = []
    for file, (_, md5) in files.items():
        dotted = file.replace("-idx", ".idx")
        # .gz first: what is downloaded counts before a damaged plain file that lies beside it
        parts.append(Part((f"{file}.gz", file, f"{dotted}.gz", dotted), md5))
    layout = Layout((name, f"{name}/raw", f"{name}/{raw}", raw), tuple(parts), _read_idx)
    return Source(title, summary, tuple(names.split(",")), tuple(archives), (layout,))


def _cifar_layouts(name: str, *published: tuple[str, Callable, dict[str, str]]) -> tuple[Layout, ...]:
    return tuple(
        Layout(
            (f"{name}/{folder}", name, folder),
            tuple(Part((file,), md5) for file, md5 in files.items()),
            _read_cifar(decode),
        )
        for folder, decode, files in published
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _toronto(file: str, md5: str) -> Archive:
    return Archive(file, md5, (f"https://www.cs.toronto.edu/~kriz/{file}", f"https://cave.cs.toronto.edu/kriz/{file}"))


SOURCES: dict[str, Source] = {
    "digits": Source(
        "Digits",
        "1,797 grey 8x8 images of handwritten digits, 10 classes; comes with scikit-learn, a quarter is held out",
        tuple("0123456789"),
    ),
    "mnist": _idx(
        "MNIST",
        "60,000 + 10,000 grey 28x28 images of handwritten digits, 10 classes",
        "0,1,2,3,4,5,6,7,8,9",
        ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"),
        {
            "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
            "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
            "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
            "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
        },
    ),
    "fashion-mnist": _idx(
        "Fashion-MNIST",
        "60,000 + 10,000 grey 28x28 images of clothes, 10 classes",
        "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot",
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",  # has no https
        ),
        {
            "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
            "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"),
            "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"),
            "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"),
        },
    ),
    "cifar10": Source(
        "CIFAR-10",
        "50,000 + 10,000 colour 32x32 photographs, 10 classes",
        _words("airplane automobile bird cat deer dog frog horse ship truck"),
        (_toronto("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        _cifar_layouts(
            "cifar10",
            (
                "cifar-10-batches-bin",
                formats.cifar_binary,
                {
                    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
                    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
                    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
                    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
                    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
                    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
                },
            ),
            (
                "cifar-10-batches-py",
                formats.cifar_python,
                {
                    "data_batch_1": "c99cafc152244af753f735de768cd75f",
                    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                    "data_batch_4": "634d18415352ddfa80567beed471001a",
                    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                    "test_batch": "40351d587109b95175f43aff81a1287e",
                },
            ),
        ),
    ),
    "cifar100": Source(
        "CIFAR-100",
        "50,000 + 10,000 colour 32x32 photographs, 100 classes (the fine labels)",
        _words(
            """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
            can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
            dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
            lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
            pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
            seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table
            tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman
            worm"""
        ),
        (_toronto("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
        _cifar_layouts(
            "cifar100",
            (
                "cifar-100-binary",
                lambda path, classes: formats.cifar_binary(path, classes, label_bytes=2),
                {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"},
            ),
            (
                "cifar-100-python",
                formats.cifar_python,
                {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            ),
        ),
    ),
    "tinyimagenet": Source(
        "Tiny ImageNet",
        "100,000 + 10,000 colour 64x64 photographs, 200 classes; decoding them needs Pillow, once",
        archives=(
            Archive(
                "tiny-imagenet-200.zip",
                "90528d7ca1a48142e341f4ef8d21d0de",
                ("https://cs231n.stanford.edu/tiny-imagenet-200.zip",),
            ),
        ),
        layouts=(
            Layout(
                ("tinyimagenet/tiny-imagenet-200", "tinyimagenet", "tiny-imagenet-200"),
                tuple(Part((name,)) for name in ("wnids.txt", "train", "val/images", "val/val_annotations.txt")),
                _read_tiny,
                "delete {folder}, and {folder}.npz beside it, and run `{get}`",
                Whole(tiny.PUBLISHED, tiny.identify, tiny.content, tiny.counts, tiny.wanting, tiny.cached),
            ),
        ),
    ),
}
