"""A trained network for use elsewhere: it answers there as it does here."""

import json
import pickle
import re
import subprocess
import sys
import warnings

import pytest
import torch
from conftest import learner_of, toy
from safetensors.torch import load_file
from torch import nn

import everlearn
from everlearn import Learner, Pixels
from everlearn.networks import CNN, ResNet18


def run_pt2(file, x):
    found = {"classes.json": ""}
    program = torch.export.load(file, extra_files=found)
    return program.module()(x).detach(), json.loads(found["classes.json"])


def run_onnx(file, x):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(file)
    answer = session.run(["scores"], {"samples": x.numpy()})[0]
    return torch.from_numpy(answer), json.loads(session.get_modelmeta().custom_metadata_map["classes"])


WAYS = {"pt2": run_pt2, "onnx": run_onnx}
EACH = ["pt2", pytest.param("onnx", marks=pytest.mark.slow)]


def needs(way: str) -> None:
    if way == "onnx":
        pytest.importorskip("onnxscript")


def taught(network: nn.Module, x: torch.Tensor, **settings) -> Learner:
    words = ["cat", "dog"] * (len(x) // 2)
    return Learner(network, **dict(memory=4, epochs=1, batch=4) | settings).update(x, words)


@pytest.mark.parametrize("way", EACH)
def test_samples_as_stored_go_in_and_the_learners_logits_come_out(way, tmp_path):
    needs(way)
    x = toy(1, 20, channels=3).tasks[0].train[0]
    learner = taught(CNN((3, 8, 8), 2), x, inputs=Pixels((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    learner.export(tmp_path / f"net.{way}")
    for rows in (x[:1], x[:7], x):  # batches of any size
        answer, classes = WAYS[way](tmp_path / f"net.{way}", rows)
        assert classes == ["cat", "dog"]
        torch.testing.assert_close(answer, learner.logits(rows), atol=1e-5, rtol=1e-5)


class Centred(nn.Module):
    """Preprocessing with a tensor of its own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("middle", torch.tensor(0.5))

    def forward(self, x):
        return (x - self.middle) * 3


@pytest.mark.parametrize("way", EACH)
def test_what_prepares_samples_that_are_no_images_is_in_the_file(way, tmp_path):
    needs(way)
    file, x, ids = tmp_path / f"net.{way}", torch.rand(20, 6), torch.randint(0, 9, (20, 6))
    text = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(24, 2))
    for learner, rows in (
        (taught(nn.Linear(6, 2), x), x),
        (taught(nn.Linear(6, 2), x, inputs=Centred()), x),
        (taught(text, ids), ids),
    ):
        learner.export(file)
        torch.testing.assert_close(WAYS[way](file, rows)[0], learner.logits(rows), atol=1e-5, rtol=1e-5)


def test_a_resnet_takes_its_own_size_once(tmp_path):
    x = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
    learner = taught(ResNet18((3, 32, 32), 2), x)
    before = {name: tensor.clone() for name, tensor in learner.net.module.state_dict().items()}
    for name in ("net.pt", "net.safetensors"):
        learner.export(file := tmp_path / name)
        state = torch.load(file, weights_only=True) if name == "net.pt" else load_file(file)
        assert state.keys() == before.keys() and all(torch.equal(state[key], before[key]) for key in state)
        assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in state.values())
        assert 44e6 < file.stat().st_size < 46e6 and 44e6 < len(pickle.dumps(state)) < 46e6
    network = ResNet18((3, 32, 32), 2)
    network.load_state_dict(state)
    network.eval()
    torch.testing.assert_close(network(learner.inputs(x)), learner.logits(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.export(tmp_path / "net.pt2")
    torch.testing.assert_close(run_pt2(tmp_path / "net.pt2", x)[0], learner.logits(x), atol=1e-5, rtol=1e-5)


class Fickle(nn.Module):
    """What it does depends on what it sees, which no graph can hold."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(x * 2 if float(x.sum()) > 0 else x)


@pytest.mark.parametrize("way", EACH)
def test_a_network_torch_cannot_follow_is_told_in_a_sentence_and_leaves_no_file(way, tmp_path, capfd):
    needs(way)
    learner = taught(Fickle(), torch.rand(20, 6))
    with pytest.raises(everlearn.EverlearnError, match="torch cannot export this network") as told:
        learner.export(tmp_path / f"net.{way}")
    assert "\n" not in str(told.value) and not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


def test_tied_weights_are_exported_each_by_its_name(tmp_path):
    network = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 2))
    network[2].weight = network[0].weight
    taught(network, torch.randn(8, 4)).export(tmp_path / "net.safetensors")
    network[0].weight = nn.Parameter(torch.zeros(4, 4))
    network.load_state_dict(found := load_file(tmp_path / "net.safetensors"))
    assert torch.equal(found["0.weight"], found["2.weight"]) and found["0.weight"].any()


def test_what_cannot_be_exported_is_refused(tmp_path):
    stream = toy()
    learner = learner_of("icarl", stream)
    for file, words in (("net.h5", "ends in none of .safetensors"), ("net.pt", "met no sample yet")):
        with pytest.raises(everlearn.BadInput, match=re.escape(words)):
            learner.export(tmp_path / file)
    learner.update(stream.tasks[0])
    with pytest.raises(everlearn.BadInput, match="ICaRL does not predict by its network's logits"):
        learner.export(tmp_path / "net.pt")


@pytest.mark.slow
def test_an_onnx_file_is_made_without_a_word(tmp_path):
    needs("onnx")
    code = """
import torch, everlearn
learner = everlearn.Learner(torch.nn.Linear(6, 2), memory=4, epochs=1, batch=4)
learner.update(torch.rand(8, 6), [0, 1] * 4).export("net.onnx")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt", "net.pt2"])
def test_the_folder_of_an_export_is_made_and_a_file_in_its_place_is_named(name, tmp_path):
    learner = everlearn.Learner(torch.nn.Linear(4, 2), memory=8, epochs=1)
    learner.update(torch.randn(8, 4), [0, 1] * 4)
    learner.export(tmp_path / "new" / "folder" / name)
    assert (tmp_path / "new" / "folder" / name).exists()
    (tmp_path / "file").touch()
    with pytest.raises(everlearn.BadInput, match="file is a file; give the name of a folder"):
        learner.export(tmp_path / "file" / name)
