"""What was trained is used: loaded by the name of its network, taught with files, exported."""

import re
from pathlib import Path

import pytest
import torch
from conftest import toy
from torch import nn

import everlearn
from everlearn import Learner

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
    with refused("has changed since); give one like it had"):
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
