"""What was trained is used: loaded by the name of its network, taught with files, exported."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import toy
from PIL import Image
from torch import nn

import everlearn
from everlearn import Learner
from everlearn.data.samples import Like

MAKE = '''"""A network of one's own."""

from torch import nn


def make(shape, classes, width: int = 8):
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, classes))
'''


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: str):
    return pytest.raises(everlearn.BadInput, match=re.escape(words))


def perceptron(width: int = 8, classes: int = 2) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))


def taught(width: int = 8, **settings) -> Learner:
    """A learner of words for classes, which has met two of them."""
    x, y = toy(1, 20).tasks[0].train
    learner = Learner(perceptron(width), **dict(memory=10, epochs=1, batch=4) | settings)
    return learner.update(x, [["cat", "dog"][c] for c in y])


def same(one: Learner, other: Learner) -> bool:
    a, b = one.state(), other.state()
    return a.keys() == b.keys() and all(map(torch.equal, a.values(), b.values()))


# --- by the name of its network ---


def test_a_network_that_is_named_is_built_and_its_name_kept():
    Path("net.py").write_text(MAKE)
    taught(width=12).save("model")
    with refused("--network file.py:make"):
        Learner.load("model")
    learner = Learner.load("model", {"name": "net.py:make", "width": "12"})
    learner.update(torch.zeros(8, 1, 8, 8, dtype=torch.uint8), ["eel"] * 8).save("more")
    again = Learner.load("more")
    assert same(learner, again) and list(again.classes_) == ["cat", "dog", "eel"]
    with refused("unknown option of net.py:make 'widht'; did you mean 'width'?"):
        Learner.load("model", {"name": "net.py:make", "widht": 12})
    with refused("another network"):
        Learner.load("model", "net.py:make")
    Path("net.py").write_text(MAKE.replace("ReLU", "Tanh"))
    with refused("has changed since; put it back as it was"):
        Learner.load("more")
    assert Learner.load("more", {"name": "net.py:make", "width": 12}).classes == 3


def test_what_a_network_is_built_for_must_have_been_met():
    Path("net.py").write_text(MAKE)
    Learner(perceptron()).save("model")
    with refused("met no sample yet"):
        Learner.load("model", "net.py:make")


def test_a_run_goes_on_and_is_saved_and_loaded_without_its_network_being_given():
    everlearn.run("er", epochs=1, memory=20, out="runs")
    (run,) = Path("runs").iterdir()
    learner = Learner.load(run, device="auto")
    learner.epochs = 1
    learner.update(torch.zeros(40, 1, 8, 8, dtype=torch.uint8), ["black"] * 40).save("model")
    again = Learner.load("model")
    assert same(learner, again) and again.classes_[-1] == "black"


# --- taught with files ---


def draw(folder: str, shade: int, count: int = 3, size: tuple[int, int] = (12, 10), mode: str = "L") -> None:
    """Plain pictures of about that shade."""
    Path(folder).mkdir(parents=True)
    for n in range(count):
        colour = shade + n if mode == "L" else (shade + n,) * 3
        Image.new(mode, size, colour).save(Path(folder, f"{n}.png"))


def test_a_folder_of_class_folders_is_a_task_in_the_learners_size_and_colour():
    learner = taught()
    draw("monday/cat", 10)
    draw("monday/eel", 200, mode="RGB")
    Path("monday/eel/torn.png").write_bytes(b"no picture")
    with pytest.warns(everlearn.errors.Notice, match="1 of 7 pictures in monday cannot be read and are left out: eel"):
        learner.update("monday")
    assert list(learner.classes_) == ["cat", "dog", "eel"] and learner.memory.x.shape[1:] == (1, 8, 8)
    with pytest.warns(everlearn.errors.Notice):
        assert 0 <= learner.score("monday") <= 1


def test_pictures_have_the_scale_of_the_samples_a_learner_holds():
    draw("all/cat", 255, count=1)
    bytes_, x = everlearn.data.samples.gathered("all", like=Like((1, 8, 8), torch.uint8, 16))[0], torch.full
    assert torch.equal(bytes_, x((1, 1, 8, 8), 16, dtype=torch.uint8))
    floats, _ = everlearn.data.samples.gathered("all", like=Like((3, 4, 4), torch.float32, 1))
    assert torch.equal(floats, x((1, 3, 4, 4), 1.0))
    assert everlearn.data.samples.gathered("all")[0].shape == (1, 1, 10, 12)
    for kind in (Like((64,), torch.float32), Like((1, 8, 8), torch.float32), Like((5, 8, 8), torch.uint8)):
        with refused(f"samples of shape {list(kind.shape)}, which pictures are not"):
            everlearn.data.samples.gathered("all", like=kind)


def test_numbers_and_their_words_are_one_class_in_a_file():
    x, y = toy(1, 20).tasks[0].train
    learner = Learner(perceptron(), memory=10, epochs=1, batch=4).update(x, y)
    draw("all/1", 10)
    draw("all/7", 90)
    assert list(learner.update("all").classes_) == [0, 1, 7]
    learner = taught()
    np.savez("more.npz", x=x.numpy(), y=[1, 0] * 10, names=["cat", "elk"])
    np.savez("numbers.npz", samples=x.numpy()[:, 0], labels=[3] * 20)
    assert list(learner.update("more.npz").update("numbers.npz").classes_) == ["cat", "dog", "elk", "3"]


def test_samples_in_a_file_are_fitted_to_those_a_learner_holds():
    x = toy(1, 6, channels=3).tasks[0].train[0]
    np.save("last.npy", x.permute(0, 2, 3, 1).numpy())
    np.save("one.npy", x[0].numpy())
    np.savez("stream.npz", x_test=x.numpy(), y_test=[0] * 6, x_train=x.numpy()[:2])
    for name, rows in (("last.npy", x), ("one.npy", x[:1]), ("stream.npz", x)):
        assert torch.equal(everlearn.data.samples.samples(name, Like((3, 8, 8), torch.uint8)), rows)
    assert everlearn.data.samples.samples("last.npy").shape == x.shape


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": [1], "b": [2]}, "has the arrays a, b; it needs x and y or samples and labels"),
        (
            {"x": np.zeros((2, 64)), "y": [1]},
            "y of wrong.npz has the shape [1]; it needs a label for each of 2 samples",
        ),
        ({"x": np.zeros((2, 64)), "y": [0, 1]}, "samples of shape [64], and the learner's are [1, 8, 8]"),
        ({"x": np.zeros((0, 1, 8, 8)), "y": []}, "x of wrong.npz holds no sample"),
        ({"x": np.zeros((1, 1, 8, 8)), "y": [2], "names": ["a", "b"]}, "'names' of wrong.npz are 2"),
        ({"x": np.zeros((1, 1, 8, 8)), "y": [2]}, "float64 samples of shape (1, 8, 8) after torch.uint8"),
    ],
)
def test_a_file_that_cannot_be_learned_from_is_named(arrays, words):
    np.savez("wrong.npz", **arrays)
    with refused(words):
        taught().update("wrong.npz")


def test_a_path_to_nothing_of_the_kind_is_told():
    Path("text.txt").touch()
    Path("torn.npz").write_bytes(b"PK no")
    for path, words in {
        "nothing": "there is no folder nothing",
        "text.txt": "text.txt cannot be learned from; give",
        "torn.npz": "torn.npz is not a file of arrays that can be read",
        "no.npz": "there is no file no.npz",
    }.items():
        with refused(words):
            taught().update(path)


@pytest.mark.parametrize("options", [{}, {"classes": ["7", "1", "3", "0"], "tasks": 2}])
def test_a_run_that_is_loaded_has_on_its_stream_the_accuracies_of_its_record(options):
    settings = dict(memory=20, epochs=2, **options)
    result = everlearn.run("er", "digits", out="runs", **settings)
    learner, stream = Learner.load(next(Path("runs").iterdir())), everlearn.load("digits", **options)
    assert learner.evaluate(stream).class_il == pytest.approx(result["class_il"]["matrix"][-1])
    assert learner.evaluate(stream).task_il == pytest.approx(result["task_il"]["matrix"][-1])
    first = stream.tasks[0]
    assert 100 * learner.score(first) == pytest.approx(result["class_il"]["matrix"][-1][0])
    before = list(learner.classes_)
    learner.update(first, validation=first)
    assert list(learner.classes_) == before == list(stream.names), "and its classes are known again"


def test_a_task_whose_labels_are_numbers_alone_has_other_classes_than_words(folder):
    learner, task = taught(), toy(1, 20).tasks[0]
    learner.update(everlearn.Task(task.train, None, (0, 1)))
    assert list(learner.classes_) == ["cat", "dog", 0, 1]
