"""The commands for what one has trained: predict, teach, memory, export."""

import base64
import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import interruptible
from PIL import Image
from sklearn.datasets import load_digits
from test_cli import call, folder, write_own  # noqa: F401 (folder: each test in one of its own)
from typer.testing import CliRunner, Result

import everlearn
from everlearn import Learner
from everlearn.cli import app as cli
from everlearn.core import ranks
from everlearn.experiments import kept, use
from everlearn.learner.saved import LEARNER
from everlearn.report import known
from everlearn.report import memory as sheet
from everlearn.report.png import png

NET = '''"""A network for vectors."""

from torch import nn


def make(shape, classes, width: int = 8):
    return nn.Sequential(nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, classes))
'''


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A run on digits."""
    out = tmp_path_factory.mktemp("trained")
    everlearn.run("er", epochs=2, memory="balanced:50", out=out)
    return next(out.iterdir())


@pytest.fixture
def run(trained) -> Path:
    shutil.copytree(trained, "runs/one")
    return Path("runs/one")


def said(words: list, code: int = 0) -> Result:
    result = CliRunner().invoke(cli.app, [str(word) for word in words], prog_name="everlearn")
    assert result.exit_code == code, result.output
    return result


def refused(*words) -> str:
    """The one sentence of a command that is refused; nothing is left behind."""
    before = sorted(Path().rglob("*"))
    result = said([*words], 2)
    assert result.stderr.startswith("everlearn: ") and result.stderr.count("\n") == 1 and result.stdout == ""
    assert sorted(Path().rglob("*")) == before
    return result.stderr


def draw(place: str, *classes: int, count: int = 8, size: int = 32) -> Path:
    """Digits as pictures larger than those a run has learned from, a folder per class."""
    digits = load_digits()
    for c in classes:
        home = Path(place, str(c))
        home.mkdir(parents=True)
        for n, image in enumerate(digits.images[digits.target == c][-count:]):
            Image.fromarray((image * 255 / 16).round().astype(np.uint8)).resize((size, size)).save(home / f"{n}.png")
    return Path(place)


def noise(place: str, count: int = 8) -> None:
    """Colour photographs of nothing."""
    Path(place).mkdir(parents=True)
    for n, image in enumerate(np.random.default_rng(0).integers(90, 160, (count, 30, 40, 3), np.uint8)):
        Image.fromarray(image).save(Path(place, f"{n}.jpg"))


def content(place: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in place.iterdir()}


def vectors(width: int = 8) -> Learner:
    """A learner whose network no folder knows."""
    Path("net.py").write_text(NET)
    network = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))
    x = torch.rand(20, 6)
    learner = Learner(network, memory=10, epochs=1, batch=4).update(x, [0, 1] * 10)
    np.savez("more.npz", x=x.numpy() + 1, y=[1, 2] * 10)
    np.save("x.npy", x.numpy())
    learner.save("model")
    return learner


# --- predict ---


def test_pictures_of_any_size_are_told_apart(run):
    draw("photos", 4, 7, 8)
    found = json.loads(said(["predict", run, "photos", "photos/4/0.png", "--json", "--top", "3"]).stdout)
    guesses = found["predictions"]
    assert len(guesses) == 25 and guesses[-1]["file"] == "photos/4/0.png" and found["skipped"] == []
    right = sum(guess["class"] == Path(guess["file"]).parent.name for guess in guesses)
    assert right >= 20
    for guess in guesses:
        chances = [one["probability"] for one in guess["top"]]
        assert len(chances) == 3 and chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1 + 1e-6
        assert (guess["class"], guess["probability"]) == (guess["top"][0]["class"], chances[0])


def test_the_table_names_each_file_and_csv_is_read_back(run, monkeypatch):
    draw("photos", 3, count=3)
    monkeypatch.setenv("COLUMNS", "60")
    shown = said(["predict", run, "photos", "--top", "2"]).stdout
    assert all(f"photos/3/{n}.png" in shown for n in range(3)) and max(map(len, shown.splitlines())) <= 60
    rows = list(csv.DictReader(io.StringIO(said(["predict", run, "photos", "--csv", "--top", "2"]).stdout)))
    assert list(rows[0]) == ["file", "class", "probability", "class_2", "probability_2"] and len(rows) == 3


def test_samples_in_a_file_are_the_learners_own(run):
    x = everlearn.load("digits").tasks[0].test[0]
    np.savez("x.npz", x=x.numpy()[:, 0])
    np.save("one.npy", x[0].numpy())
    found = json.loads(said(["predict", run, "x.npz", "one.npy", "--json"]).stdout)["predictions"]
    assert [guess["class"] for guess in found[:-1]] == Learner.load(run).predict(x).tolist()
    first, alone = found[0], found[-1]
    assert found[5]["sample"] == 5 and alone["class"] == first["class"]
    assert alone["probability"] == pytest.approx(first["probability"], rel=1e-4)
    assert "x.npz[5]" in said(["predict", run, "x.npz"]).stdout


def test_a_file_that_cannot_be_read_is_skipped_and_said(run):
    draw("photos", 4, count=2)
    Path("photos/4/torn.png").write_bytes(b"no picture")
    result = said(["predict", run, "photos"], 1)
    assert "photos/4/1.png" in result.stdout and "torn" not in result.stdout
    assert result.stderr.splitlines() == [
        "everlearn: photos/4/torn.png cannot be decoded (not a picture); skipped",
        "everlearn: 1 of 3 files could not be read",
    ]
    assert json.loads(said(["predict", run, "photos", "--json"], 1).stdout)["skipped"][0]["file"].endswith("torn.png")
    assert "1 of 1 file could not be read" in said(["predict", run, "photos/4/torn.png"], 1).stderr
    assert "torn.png cannot be decoded (not a picture); without --strict it is skipped" in refused(
        "predict", run, "photos", "--strict"
    )


# --- teach ---


def test_a_new_class_is_learned_and_the_run_stays_as_it_was(run):
    draw("photos", 3)
    noise("photos/noise")
    before = content(run)
    words = ["teach", run, "photos", "--out", "model", "--epochs", "3", "--validation", "0.25"]
    found = json.loads(said([*words, "--json"]).stdout)
    of = {row["class"]: row for row in found["classes"]}
    assert content(run) == before and found["model"] == "model" and found["epochs"] == 3
    assert of["noise"]["new"] and not of["3"]["new"] and of["noise"]["acc"] == 100 and of["noise"]["kept"] > 0
    assert (of["3"]["samples"], of["0"]["samples"], of["0"]["acc"]) == (8, 0, None) and of["0"]["kept"] > 0
    assert found["validation"]["samples"] == 4
    assert found["others"]["samples"] == 50 - Learner.load(run).kept()["3"]
    assert (
        json.loads(said(["predict", "model", "photos/noise/1.jpg", "--json"]).stdout)["predictions"][0]["class"]
        == "noise"
    )


def test_of_a_class_of_one_picture_none_is_held_out_and_so_many_fewer_are_said(run):
    draw("photos", 3, count=4)
    draw("photos", 0, 1, 2, 4, 5, 6, count=1)
    found = json.loads(said(["teach", run, "photos", "--epochs", "1", "--validation", "0.5", "--json"]).stdout)
    assert 0 < found["validation"]["samples"] < 5, "half of 10, of which four at most may be held out"


def test_what_a_lesson_does_to_the_other_classes_is_said():
    lesson = lambda before, after: use.Lesson([], 1.0, 3, 0, None, use.Others(60, before, after))
    lost, kept = known.others(lesson(0.783, 0.1)), known.others(lesson(0.783, 0.75))
    assert lost.endswith("78.3 % were right, 10.0 % are now: more --epochs than 3 rehearse them longer.")
    assert kept == "Of 60 samples kept of other classes 78.3 % were right, 75.0 % are now."
    assert known.others(use.Lesson([], 1.0, 3, 0, None, None)) is None


def test_one_goes_on_again_and_again_beside_the_run(run, monkeypatch):
    draw("photos", 5)
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("one-taught", "one-taught-2", "one-taught-3"):
        start = run if name == "one-taught" else Path("runs/one-taught")
        shown = said(["teach", start, "photos", "--epochs", "1"]).stdout
        assert f"Saved to runs/{name}\n" in shown and max(map(len, shown.splitlines())) <= 60
        assert [file.name for file in Path("runs", name).iterdir()] == [LEARNER]
    assert Learner.load("runs/one-taught-2").tasks == Learner.load(run).tasks + 2
    assert "Saved" not in said(["teach", run, "photos", "--epochs", "1", "--quiet"]).stdout


def test_what_is_there_is_replaced_only_if_it_may_be(run):
    draw("photos", 5)
    teach = ("teach", run, "photos", "--epochs", "1", "--out")
    said([*teach, "model"])
    before = content(Path("model"))
    assert "give another --out, or --force" in refused(*teach, "model")
    assert content(Path("model")) == before
    said(["teach", "model", "photos", "--epochs", "1", "--out", "model", "--force"])
    assert content(Path("model")) != before and Learner.load("model").tasks == Learner.load(run).tasks + 2
    for out, sentence in ((run, "a run's folder, which stays as it is"), ("photos", "holds something else")):
        assert sentence in refused(*teach, out, "--force")
    assert "is a file" in refused(*teach, run / "result.json")


def learning(start: Path) -> subprocess.Popen:
    """Another process that teaches it for as long as one lets it."""
    code = (
        "import sys; from everlearn.learner import teaching; from everlearn.cli.app import main\n"
        "plan = teaching.plan\n"
        "teaching.plan = lambda *a: (print('learning', flush=True), plan(*a))[1]\n"
        "sys.argv[0] = 'everlearn'; main()"
    )
    more = ["--out", "model", "--force", "--epochs", "100000"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "teach", str(start), "photos", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    assert process.stdout and process.stdout.readline() == "learning\n"
    return process


def test_of_two_that_teach_one_folder_at_once_the_second_is_refused(run):
    """Both said that they had saved to it, and the lesson of one was gone."""
    draw("photos", 5)
    said(["teach", run, "photos", "--out", "model", "--epochs", "1"])
    process, again = learning(Path("model")), ["teach", "model", "photos", "--out", "model", "--force", "--epochs", "1"]
    try:
        for words in (again, ["memory", "model", "--forget", "1", "--out", "model", "--force"]):
            assert "another process saves to model; wait for it or choose another --out" in refused(*words)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    said(again)
    assert [file.name for file in Path("model").iterdir()] == [LEARNER]
    refused("teach", "none/one", "photos")
    assert not Path("none").exists()


def test_ranks_that_teach_are_not_told_of_another_process_but_of_torchrun(run, monkeypatch):
    monkeypatch.setattr(ranks, "distributed", lambda: True)
    with pytest.raises(everlearn.BadInput, match="by one process; start it without torchrun"), kept.room(None, run):
        pass


def test_ctrl_c_leaves_the_run_as_it_was_and_nothing_else(run):
    draw("photos", 5)
    before, there = content(run), sorted(Path().rglob("*"))
    process = learning(run)
    assert Path("model").is_dir()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130 and told == "everlearn: stopped; runs/one is as it was, and nothing was saved\n"
    assert content(run) == before and sorted(Path().rglob("*")) == there


def test_skipped_pictures_are_named_and_a_class_without_room_is_pointed_out():
    assert call(f"run er {write_own()} --memory 3 --epochs 1").exit_code == 0
    (run,) = Path("runs").iterdir()
    for n in range(3):
        noise(f"photos/{n}", 2)
    Path("photos/1/torn.jpg").write_bytes(b"")
    told = said(["teach", run, "photos", "--out", "model", "--epochs", "1"])
    assert "1 of 7 pictures in photos cannot be read and are left out: 1/torn.jpg (empty)" in told.stderr
    assert "The memory has room for none of" in told.stdout and "--memory balanced:3" in told.stdout


def test_a_model_without_code_is_taught_with_a_network_that_is_named_once():
    vectors(width=12)
    assert "--network file.py:make" in refused("teach", "model", "more.npz")
    more = ["--network", "net.py:make", "--set", "width=12"]
    found = json.loads(said(["teach", "model", "more.npz", "--out", "next", "--json", *more]).stdout)
    assert [row["class"] for row in found["classes"]] == [0, 1, 2]
    assert len(json.loads(said(["predict", "next", "x.npy", "--json"]).stdout)["predictions"]) == 20


# --- memory ---


def test_the_memory_is_counted_by_class(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = said(["memory", run]).stdout
    assert "50 of 50 rows taken, equally many of each class" in shown and max(map(len, shown.splitlines())) <= 60
    found = json.loads(said(["memory", run, "--json"]).stdout)
    assert {row["class"]: row["kept"] for row in found["classes"]} == Learner.load(run).kept() and found["held"] == 50
    assert found["sample"] == {"shape": [1, 8, 8], "dtype": "uint8"}


def test_the_contact_sheet_has_every_image_and_needs_nothing_else(run):
    said(["memory", run, "--html", "sheet.html"])
    page = Path("sheet.html").read_text()
    images = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    learner = Learner.load(run)
    x, y = learner.memory.held()
    kept = {(x[row] * 255.0 / 16).round().to(torch.uint8).numpy().tobytes() for row in range(50)}
    assert {np.asarray(Image.open(io.BytesIO(base64.b64decode(of)))).tobytes() for of in images} == kept
    assert len(images) == len(y) == 50 and not re.search(r"https?:|<script|<link", page)


def test_names_are_escaped_and_what_is_no_image_is_listed():
    x = torch.rand(8, 3, 6, 4) * 2 - 1
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(72, 2))
    learner = Learner(network, memory=8, epochs=1, batch=4).update(x, ["<script>alert(1)</script>", "b"] * 4)
    page = sheet.page(learner, "a<b")
    assert "<script" not in page and "&lt;script&gt;" in page and "a&lt;b" in page and "from the lowest value" in page
    vectors()
    said(["memory", "model", "--html", "sheet.html", "--network", "net.py:make"])
    page = Path("sheet.html").read_text()
    assert "<img" not in page and page.count("float32 of shape [6]: no images.") == 2


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_is_read_back_as_it_was(channels):
    image = np.random.default_rng(0).integers(0, 256, (channels, 5, 9), np.uint8)
    read = np.asarray(Image.open(io.BytesIO(png(image)))).reshape(5, 9, channels)
    assert np.array_equal(np.moveaxis(read, -1, 0), image)


def test_a_class_is_forgotten_in_a_folder_of_its_own(run):
    before = content(run)
    shown = said(["memory", run, "--forget", "3", "--forget", "7", "--out", "less"]).stdout
    assert "Forgotten: 3, 5 samples" in shown and content(run) == before
    kept = Learner.load("less").kept()
    assert kept["3"] == kept["7"] == 0 and kept["1"] > 0
    found = json.loads(said(["memory", "less", "--forget", "3", "--out", "same", "--json"]).stdout)
    assert found["forgotten"] == [{"class": "3", "samples": 0}]
    order = ["7", "1", "9", "0", "8", "2", "7", "6"]
    words = [word for name in order for word in ("--forget", name)]
    found = json.loads(said(["memory", "less", *words, "--out", "few", "--json"]).stdout)
    assert [of["class"] for of in found["forgotten"]] == [*order[:6], "6"], "as they were named"
    assert "unknown class 'three'" in refused("memory", run, "--forget", "three", "--out", "new")
    assert "go together" in refused("memory", run, "--forget", "3")
    assert "go together" in refused("memory", run, "--out", "new")
    assert "a run's folder" in refused("memory", run, "--forget", "3", "--out", run, "--force")


def test_a_method_without_a_memory_has_none_to_show():
    assert call(f"run finetune {write_own()} --epochs 1").exit_code == 0
    assert "FineTune keeps none" in refused("memory", next(Path("runs").iterdir()))


# --- export ---


def test_an_export_is_written_once(run):
    from safetensors.torch import load_file

    assert said(["export", run, "net.safetensors"]).stdout == "written to net.safetensors\n"
    said(["export", run, "net.pt"])
    state = torch.load("net.pt", weights_only=True)
    assert all(torch.equal(tensor, state[name]) for name, tensor in load_file("net.safetensors").items())
    assert "--force to replace it" in refused("export", run, "net.pt")
    said(["export", run, "net.pt", "--force"])
    assert "ends in none of .safetensors" in refused("export", run, "net.h5")
    assert "is a folder" in refused("export", run, "runs")


# --- what cannot be ---


@pytest.mark.parametrize("command", ["predict", "teach", "memory", "export"])
def test_a_folder_without_a_learner_is_told_why(command, run):
    Path("empty").mkdir()
    Path("runs/two.part").mkdir()
    (bare := Path("runs/bare")).mkdir()
    (bare / "experiment.json").write_text("{}")
    more = {"predict": ["x.png"], "teach": ["photos"], "memory": [], "export": ["net.pt"]}[command]
    for name, sentence in {
        "nothing": "there is no folder nothing",
        "empty": "empty holds no learner",
        "runs": "name one of those in it, such as runs/one",
        "runs/two.part": "a run that is not complete",
        "runs/bare": "run it again with the same command and --keep --fresh",
        "runs/one/result.json": "is a file; give the folder of a run",
    }.items():
        assert sentence in refused(command, name, *more)


def test_a_run_without_its_network_says_how_to_keep_it():
    words = f"run er {write_own()} --memory 5 --epochs 1"
    assert call(f"{words} --no-keep").exit_code == 0
    (run,) = Path("runs").iterdir()
    assert "--keep --fresh" in refused("predict", run, "own.npz")
    assert call(f"{words} --keep --fresh").exit_code == 0
    said(["predict", run, "own.npz"])


def test_wrong_input_is_answered_in_one_sentence(run):
    vectors()
    draw("photos", 2, count=2)
    Path("empty").mkdir()
    Path("text.txt").touch()
    net = ("--network", "net.py:make")
    for words, sentence in (
        (("predict", run, "no.png"), "there is no file or folder no.png"),
        (("predict", run, "empty"), "empty holds no pictures"),
        (("predict", run, "x.npy"), "samples of shape [6], and the learner's are [1, 8, 8]"),
        (("predict", run, "photos", "--json", "--csv"), "give one of the two"),
        (("predict", run, "photos", "--tpo", "3"), "no such option"),
        (("predict", run, "photos", "--lr", "3"), "no such option: --lr"),
        (
            ("predict", run, "photos", "--set", "width=3"),
            "--set width is an option of a network; name that with --network",
        ),
        (("predict", run, "photos", "--network", "resnet"), "unknown network 'resnet'; did you mean 'resnet18'?"),
        (("predict", run, "photos", "--network", "resnet18"), "this state is of another network"),
        (("predict", "model", "photos", *net), "float32 samples of shape [6], which pictures are not"),
        (("predict", "model", "x.npy", *net, "--set", "widht=3"), "did you mean 'width'?"),
        (("predict", "model", "x.npy", *net, "--set", "width=wide"), "width 'wide' is not a whole number"),
        (("teach", run, "no", "--out", "new"), "there is no folder no"),
        (("teach", run, "empty", "--out", "new"), "empty has no class folders"),
        (("teach", run, "text.txt", "--out", "new"), "text.txt cannot be learned from"),
        (("teach", run, "photos", "--out", "new", "--epochs", "0"), "epochs 0 must be a number greater than 0"),
        (("teach", run, "photos", "--out", "new", "--validation", "2"), "validation 2.0 of 2 samples leaves none"),
        (("teach", "model", "photos", "--out", "new", *net), "which pictures are not"),
        (("teach", run, "more.npz", "--out", "new"), "samples of shape [6]"),
    ):
        assert sentence in refused(*words), words


def test_a_networks_maker_that_fails_is_located_with_what_it_was_called_with():
    vectors()
    Path("net.py").write_text(NET.replace("shape[0]", "shape[0] * shape[1]"))
    words = "make fails when called with the shape (6,) and 2 classes: IndexError: tuple index out of range (net.py, "
    assert f"{words}line 7)" in refused("predict", "model", "x.npy", "--network", "net.py:make")
    Path("net.py").write_text(NET.replace("shape[0]", "-shape[0]"))
    words = "with the shape (1, 8, 8) and 10 classes: RuntimeError: "
    result = said(["run", "er", "--epochs", "1", "--network", "net.py:make"], 2)
    assert words in result.stderr and "(net.py, line 7)" in result.stderr, "what torch raises was asked for there"


def test_a_method_that_learns_all_at_once_cannot_go_on():
    assert call(f"run joint {write_own()} --epochs 1").exit_code == 0
    assert "cannot go on" in refused("teach", next(Path("runs").iterdir()), "own.npz", "--out", "new")


@pytest.mark.parametrize("command", ["predict", "teach", "memory", "export"])
def test_help_has_examples_and_the_command_is_listed(command):
    told = said([command, "--help"]).stdout
    assert "Examples:\n" in told and f"everlearn {command} " in told and "--network" in told
    assert f"\n  {command} " in said(["--help"]).stdout
