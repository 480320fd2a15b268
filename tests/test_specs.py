"""What somebody else wrote, in a file, a script or a package, is run, kept and found again like what is built in."""

import functools
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from commands import command
from conftest import kill_at, toy
from test_cli import QUICK, answer, call, document, folder, kept  # noqa: F401 (folder: each test in one of its own)
from typer.testing import CliRunner

import everlearn
from everlearn import Experiment, registry
from everlearn.cli import app as cli
from everlearn.core import plan
from everlearn.experiments import studies
from everlearn.launchers import local
from everlearn.networks import MLP

BRIER = '''"""A method of one's own."""

import everlearn
from torch.nn import functional as F


class Brier(everlearn.ER):
    """CE on new samples, the error of the probabilities on the memory, to a power."""

    def __init__(self, power: float = 2.0, weighting=None):
        super().__init__(weighting)
        self.power = power

    def rehearse(self, memory):
        truth = F.one_hot(memory.y, memory.z.shape[1])
        error = (memory.z.softmax(1) - truth).abs()
        return [everlearn.Term(error.pow(self.power).sum(1), memory)]
'''
MORE = "--set classes=0,1,2,3 --set tasks=2"


@pytest.fixture(autouse=True)
def mine(folder) -> Path:  # noqa: F811
    file = Path("mine.py")
    file.write_text(BRIER)
    return file


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {kind: {} for kind in registry.BUILT_IN})


def spec(result: dict, kind: str = "method") -> dict:
    return result["experiment"][kind]


def process(words: str, **environment: str) -> subprocess.CompletedProcess:
    """The command in a process of its own, with this folder not on its path."""
    return command(words.split(), CUDA_VISIBLE_DEVICES="", **environment)


# A method in a file ---------------------------------------------------------------------------------------------------
def test_a_method_in_a_file_is_run_kept_and_not_run_twice():
    first = document(f"run mine.py:Brier {QUICK}")
    assert (spec(first)["name"], spec(first)["options"]) == ("mine.py:Brier", {"power": 2.0})
    assert spec(first)["at"] == f"{Path.cwd()}/mine.py:Brier" and len(spec(first)["source"]) == 16
    (name,) = kept()
    assert name.startswith("digits-Brier-m20-e1-s0-")
    again = call(f"run mine.py:Brier {QUICK} --json")
    assert "already run" in again.stderr and json.loads(again.stdout) == first
    alone = everlearn.run("mine.py:Brier", memory=20, epochs=1, out="runs")
    assert alone == {key: value for key, value in first.items() if key != "seal"}
    assert document(f"run mine.py:Brier {QUICK} --fresh")["class_il"] == first["class_il"]
    assert first["class_il"] != document(f"run er {QUICK}")["class_il"] and len(kept()) == 2


def test_its_options_are_set_like_any_others_and_shown():
    three = document(f"run mine.py:Brier {QUICK} --set power=3")
    assert spec(three)["options"] == {"power": 3.0}
    assert three["class_il"] != document(f"run mine.py:Brier {QUICK}")["class_il"] and len(kept()) == 2
    shown = call("methods mine.py:Brier").stdout
    assert "to a power" in shown and " power " in shown
    for words, expected in (("powr=3", "did you mean 'power'?"), ("power=high", "power 'high' is not a number")):
        assert expected in call(f"run mine.py:Brier {QUICK} --set {words}").stderr


def test_it_can_be_weighed_by_any_weighting():
    relational = document(f"run mine.py:Brier --weighting relation --memory 20 --epochs 2 {MORE}")
    weighting = spec(relational, "weighting")
    assert (weighting["name"], weighting["options"]["warmup"]) == ("relation", 1)
    (name,) = kept()
    assert "-Brier+relation-" in name
    assert "already run" in call(f"run mine.py:Brier+relation --memory 20 --epochs 2 {MORE}").stderr
    assert call(f"explain runs/{name}").exit_code == 0


def test_it_is_another_experiment_once_its_source_changes_by_one_character(mine):
    first = document(f"run mine.py:Brier {QUICK}")
    mine.write_text(BRIER.replace("softmax(1) - truth", "softmax(1) + truth"))
    other = document(f"run mine.py:Brier {QUICK}")
    assert spec(other)["source"] != spec(first)["source"] and other["class_il"] != first["class_il"]
    assert len(kept()) == 2
    mine.write_text(BRIER)
    assert "already run" in call(f"run mine.py:Brier {QUICK}").stderr


def test_it_is_another_experiment_once_what_it_imports_from_beside_it_changes(mine):
    with_helper = BRIER.replace("import everlearn\n", "import everlearn\nimport mathematics\n")
    mine.write_text(with_helper.replace("pow(self.power)", "pow(mathematics.POWER)"))
    Path("mathematics.py").write_text("from constants import *\n")
    results = []
    for power in (2, 3, 2):  # as soon as it has changed: of the same length, within a second
        Path("constants.py").write_text(f"POWER = {power}\n")
        results.append(document(f"run mine.py:Brier {QUICK}"))
    two, three, again = results
    assert spec(two)["source"] != spec(three)["source"] and two["class_il"] != three["class_il"]
    assert again == two and len(kept()) == 2
    Path("unrelated.py").write_text("1\n")
    assert "already run" in call(f"run mine.py:Brier {QUICK}").stderr


def test_files_that_import_modules_of_the_same_name_have_their_own():
    for folder, power in (("one", 2), ("two", 3)):  # noqa: F402
        Path(folder).mkdir()
        Path(folder, "powers.py").write_text(f"POWER = {power}\n")
        Path(folder, "mine.py").write_text(
            BRIER.replace("import everlearn\n", "import everlearn\nimport powers\n").replace("= 2.0", "= powers.POWER")
        )
    first, second = (document(f"run {folder}/mine.py:Brier {QUICK}") for folder in ("one", "two"))
    assert (spec(first)["options"], spec(second)["options"]) == ({"power": 2.0}, {"power": 3.0})
    assert first["class_il"] != second["class_il"]


def test_where_the_file_lies_is_no_part_of_what_it_is(mine):
    first = document(f"run mine.py:Brier {QUICK}")
    Path("elsewhere").mkdir()
    mine.rename("elsewhere/mine.py")
    again = call(f"run elsewhere/mine.py:Brier {QUICK} --json")
    assert "already run" in again.stderr and json.loads(again.stdout) == first


def test_its_record_can_be_run_again_while_the_file_is_what_it_was(mine):
    assert call(f"run mine.py:Brier {QUICK}").exit_code == 0
    (name,) = kept()
    assert "50 of 50" in call(f"again runs/{name}").stdout and kept("again") == [name]
    mine.write_text(BRIER + "\n")
    told = call(f"again runs/{name} --fresh")
    assert told.exit_code == 2
    assert f"{mine.resolve()}:Brier, which this record was made from, has changed since" in told.stderr
    mine.unlink()
    told = call(f"again runs/{name} --fresh")
    assert told.exit_code == 2 and f"there is no file {mine.resolve()}, which this record was made from" in told.stderr
    assert "a run's folder has a copy of it, source.zip" in told.stderr
    document = json.loads(Path("runs", name, "result.json").read_text())["experiment"]
    assert Experiment.parse(document).label == "Brier", "the record itself is read without it"


def test_a_record_is_run_again_with_a_file_of_the_same_name_and_content_in_the_working_folder(monkeypatch, tmp_path):
    Path("old").mkdir()
    Path("old/mine.py").write_text(BRIER)
    Path("old/data.py").write_text("import everlearn\n\n\ndef digits():\n    return everlearn.load('digits')\n")
    words = f"run old/mine.py:Brier --stream old/data.py:digits --network mlp {QUICK} --out old/runs"
    assert call(words).exit_code == 0
    Path("old").rename("new")
    (name,) = kept("new/runs")
    assert "there is no file" in call(f"again new/runs/{name} --dry-run").stderr
    monkeypatch.chdir(tmp_path / "new")
    assert "50 of 50" in call(f"again runs/{name}").stdout
    Path("mine.py").write_text(BRIER + "\n")
    told = call(f"again runs/{name} --dry-run")
    assert told.exit_code == 2 and f"there is no file {tmp_path / 'old/mine.py'}" in told.stderr, "it is another one"


def test_a_run_keeps_a_copy_of_the_files_it_was_made_from(mine):
    used = BRIER.replace("import everlearn\n", "import everlearn\nfrom beside import constants\n")
    Path("beside").mkdir()
    Path("beside", "constants.py").write_text("ONE = 1\n")
    Path("unrelated.py").write_text("1\n")
    mine.write_text(used)
    assert call(f"run mine.py:Brier {QUICK}").exit_code == 0 and call(f"run er {QUICK}").exit_code == 0
    own, built_in = sorted(kept(), key=lambda name: "Brier" not in name)
    assert not Path("runs", built_in, "source.zip").exists()
    with zipfile.ZipFile(Path("runs", own, "source.zip")) as archive:
        assert sorted(archive.namelist()) == ["method/beside/constants.py", "method/mine.py"]
        archive.extractall("copy")
    assert Path("copy/method/mine.py").read_text() == used
    mine.write_text(BRIER)
    assert "a run's folder has a copy of it, source.zip" in " ".join(call(f"again runs/{own}").stderr.split())
    mine.write_bytes(Path("copy/method/mine.py").read_bytes())
    assert "50 of 50" in call(f"again runs/{own}").stdout


def test_in_a_study_it_stands_beside_what_is_built_in(monkeypatch):
    Path("mine.toml").write_text(
        'seeds = 2\n[[grid]]\nmethod = ["er", "mine.py:Brier", { name = "mine.py:Brier", power = 3 }]\n'
        'weighting = ["fixed", { name = "relation", interval = 1 }]\nmemory = 20\nepochs = 2\n'
        'classes = ["0", "1", "2", "3"]\ntasks = 2\n'
    )
    labels = ["er", "rer(interval = 1)", "Brier", "Brier+relation(interval = 1)"]
    labels += ["Brier(power = 3)", "Brier+relation(power = 3)(interval = 1)"]
    rows = studies.study("mine.toml").rows
    assert list(rows) == labels and rows["Brier(power = 3)"][0].method["power"] == 3
    with monkeypatch.context() as patch:
        patch.setattr(local, "cores", lambda: 2)
        patch.setattr(local, "each", None)  # here; the workers have their own
        found = document("study mine.toml")["rows"]
    assert list(found) == labels and len(kept()) == 12
    assert len({row["summary"]["class_il"]["acc"]["mean"] for row in found.values()}) > 3
    alone = everlearn.run("mine.py:Brier", memory=20, epochs=2, classes=list("0123"), tasks=2, seed=1, device="cpu")
    assert found["Brier"]["runs"][1]["class_il"]["acc"] == alone["class_il"]["acc"]


def test_killed_at_any_instant_it_goes_on_to_the_same_bits(monkeypatch):
    words = f"run mine.py:Brier --weighting relation --memory 20 --epochs 4 {MORE} --set warmup=2 --device cpu"
    experiment = Experiment.of(
        "mine.py:Brier", weighting="relation", memory=20, epochs=4, classes=list("0123"), tasks=2, warmup=2
    )
    whole = everlearn.run(experiment, out="whole", device="cpu")
    part = Path("runs", f"{experiment.name}.part")
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")
    monkeypatch.setattr(os, "fsync", lambda file: None)  # a process that goes takes no disk with it
    for goal, pause in ((2, 0.0), (8, 0.013)):
        kill_at(goal, pause, part, lambda: everlearn.run(experiment, out="runs", device="cpu"))
        assert (part / "checkpoint").exists()
    result = json.loads(process(f"{words} --json -q").stdout)
    assert [result[key] for key in ("experiment", "class_il", "task_il")] == [
        json.loads(json.dumps(whole[key])) for key in ("experiment", "class_il", "task_il")
    ]
    assert result["provenance"]["resumed"] == 2
    learned = [Path(of, experiment.name, "weighting.safetensors").read_bytes() for of in ("whole", "runs")]
    assert learned[0] == learned[1]


def test_a_script_that_names_what_is_in_it_is_run_once():
    Path("script.py").write_text(
        f"{BRIER}\nprint('begins')\n"
        "given = Brier(), Brier, 'script.py:Brier'\n"
        "results = [everlearn.run(one, memory=20, epochs=1, out='runs') for one in given]\n"
        "print(all(one == results[0] for one in results), results[0]['experiment']['method']['name'])\n"
    )
    own = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "CUDA_VISIBLE_DEVICES": ""}
    told = subprocess.run([sys.executable, "script.py"], env=own, capture_output=True, text=True, check=True)
    assert told.stdout == "begins\nTrue script.py:Brier\n" and len(kept()) == 1


# Weightings, networks, streams and launchers --------------------------------------------------------------------------
def test_a_weighting_of_ones_own_weighs_any_method():
    Path("weigh.py").write_text(
        "import everlearn\nfrom everlearn.core.terms import weighed\n\n\n"
        'class Fading(everlearn.Weighting):\n    """New samples count less from task to task."""\n\n'
        "    def __init__(self, rate: float = 0.5):\n        self.rate = rate\n\n"
        "    def begin(self, method, net, seed):\n        self.row = net.theta.new_ones(len(method.names))\n\n"
        "    def begin_epoch(self, task, epoch, epochs):\n        self.row[0] = self.rate**task\n\n"
        "    def loss(self, method, step, terms):\n        return weighed(terms.losses, self.row)\n"
    )
    found = {rate: document(f"run er --weighting weigh.py:Fading {QUICK} --set rate={rate}") for rate in (1, 0.5)}
    assert found[1]["class_il"] == document(f"run er {QUICK} --set weights=1,1")["class_il"] != found[0.5]["class_il"]
    assert spec(found[1], "weighting")["options"] == {"rate": 1.0} and len(kept()) == 3
    for method in ("der++", "mine.py:Brier"):
        assert document(f"run {method} --weighting weigh.py:Fading {QUICK}")["experiment"]["memory"] == 20
    assert any("-Brier+Fading-" in name for name in kept())
    assert "from task to task" in call("weightings weigh.py:Fading").stdout
    Path("mine.toml").write_text('[[grid]]\nmethod = "er"\nweighting = ["fixed", "weigh.py:Fading"]\n')
    assert list(studies.study("mine.toml").rows) == ["er", "er+Fading"]


def test_a_network_of_ones_own_in_a_file_has_a_name_and_options():
    Path("nets.py").write_text(
        "import math\n\nfrom torch import nn\n\n\ndef tiny(shape, classes, width: int = 8):\n"
        "    layers = nn.Linear(math.prod(shape), width), nn.ReLU(), nn.Linear(width, classes)\n"
        "    return nn.Sequential(nn.Flatten(), *layers)\n\n\ndef none(shape, classes):\n    return 3\n"
    )
    found = {width: document(f"run er --network nets.py:tiny {QUICK} --set width={width}") for width in (8, 16)}
    assert [spec(found[width], "network")["options"] for width in found] == [{"width": 8}, {"width": 16}]
    assert spec(found[8], "network")["name"] == "nets.py:tiny"
    assert found[8]["class_il"] != found[16]["class_il"] and len(kept()) == 2
    assert "already run" in call(f"run er --network nets.py:tiny {QUICK}").stderr
    assert "none makes a int; a network is an nn.Module" in call(f"run er --network nets.py:none {QUICK}").stderr


def test_a_stream_of_ones_own_in_a_file_has_a_name_and_options():
    Path("data_of_mine.py").write_text(
        f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom conftest import toy\n\n\n"
        'def blobs(tasks: int = 2, side: int = 8):\n    """Blobs in noise."""\n    return toy(tasks, side=side)\n\n\n'
        "def none():\n    return 3\n"
    )
    found = {side: document(f"run er --stream data_of_mine.py:blobs {QUICK} --set side={side}") for side in (8, 6)}
    assert spec(found[8], "stream")["options"] == {"tasks": 2, "side": 8} and spec(found[8], "network")["name"] == "cnn"
    assert found[8]["class_il"] != found[6]["class_il"] and len(found[8]["class_il"]["matrix"]) == 2
    assert "already run" in call(f"run er --stream data_of_mine.py:blobs {QUICK}").stderr and len(kept()) == 2
    assert "a stream is an everlearn.Stream" in call(f"run er --stream data_of_mine.py:none {QUICK}").stderr


def test_a_launcher_of_ones_own_performs_a_study():
    Path("here.py").write_text(
        "from everlearn.launchers import attempted\n\n\ndef launch(todo, job, report):\n"
        "    print(len(todo), job.options)\n"
        "    for experiment in todo:\n        yield experiment, attempted(job, experiment)\n"
    )
    Path("mine.toml").write_text('seeds = 2\n[[grid]]\nmethod = ["er", "mine.py:Brier"]\nmemory = 20\nepochs = 1\n')
    told = call("study mine.toml --on here.py:launch --launcher-option queue=short -q")
    assert told.exit_code == 0 and told.stderr.startswith("4 {'queue': 'short'}\n") and len(kept()) == 4


# Names ----------------------------------------------------------------------------------------------------------------
class Plain(everlearn.ER):
    """Of this file."""


def test_what_is_registered_has_a_name_of_its_own():
    everlearn.register("plain")(Plain)
    everlearn.register("blobs", kind="stream")(blobs)
    first = everlearn.run("plain", "blobs", memory=20, epochs=1, out="runs", side=6)
    assert (spec(first)["name"], spec(first, "stream")["name"]) == ("plain", "blobs")
    (name,) = kept()
    assert name.startswith("blobs-plain-m20-")
    assert "already run" in call("run plain --stream blobs --memory 20 --epochs 1 --set side=6").stderr
    assert " plain " in call("methods").stdout and " blobs " in call("streams").stdout
    assert Experiment.of(Plain, blobs, memory=20, epochs=1, side=6).name == name
    assert Experiment.of(Plain(), "blobs", memory=20, epochs=1, side=6).name == name
    assert Experiment.of("plain+consolidate").label == "plain+consolidate"
    assert "did you mean 'plain'" in call("run plian").stderr


def blobs(tasks: int = 2, side: int = 8):
    """Blobs in noise."""
    return toy(tasks, side=side)


@pytest.mark.parametrize(
    ("name", "thing", "words"),
    [
        ("er", Plain, "there is a method 'er' already"),
        ("rer", Plain, "there is a method 'rer' already"),
        ("er+mine", Plain, "is not a name for a method"),
        ("mine:one", Plain, "is not a name for a method"),
        ("mine", blobs, "what is 'mine'? Say register"),
    ],
)
def test_a_name_that_cannot_be_is_refused(name, thing, words):
    with pytest.raises(everlearn.BadInput) as error:
        everlearn.register(name)(thing)
    assert words in str(error.value)


def test_a_name_is_one_classs_which_may_be_defined_anew():
    define = lambda own: type(own, (everlearn.ER,), {"__module__": __name__})
    for _ in range(2):
        everlearn.register("anew")(define("Anew"))
    with pytest.raises(everlearn.BadInput, match="another method is registered as 'anew' already"):
        everlearn.register("anew")(define("Other"))


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("def __init__(self, power: float = 2.0): self.power = power", "Mine.__init__ must take `weighting`"),
        ("def __init__(self, weighting=None): pass", "its __init__ should call super().__init__(weighting)"),
        ("def learn(self): return []", "Mine.learn should take one batch"),
        ("def rehearse(self, memory): [self.learn(memory)]", "Mine.rehearse must give a list of Term(loss, batch)"),
    ],
)
def test_a_mistake_in_a_method_of_ones_own_is_named(own, words):
    Path("wrong.py").write_text(f"import everlearn\n\n\nclass Mine(everlearn.ER):\n    {own}\n")
    assert words in call(f"run wrong.py:Mine {QUICK}").stderr


def test_a_weighting_without_a_loss_is_named():
    Path("wrong.py").write_text("import everlearn\n\n\nclass Mine(everlearn.Fixed):\n    def loss(self, *of): pass\n")
    assert "the loss to descend is None" in call(f"run er --weighting wrong.py:Mine {QUICK}").stderr


def test_what_another_package_names_is_listed_and_runs(mine):
    Path("site", "brier").mkdir(parents=True)
    mine.rename("site/brier/methods.py")
    Path("site/brier/__init__.py").touch()
    Path("site/brier-1.0.dist-info").mkdir()
    Path("site/brier-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: brier\nVersion: 1.0\n")
    Path("site/brier-1.0.dist-info/entry_points.txt").write_text("[everlearn]\nbrier = brier.methods:Brier\n")
    installed = {"PYTHONPATH": str(Path("site").resolve())}
    assert " brier " in process("methods", **installed).stdout and " brier " not in process("methods").stdout
    it = json.loads(process(f"run brier {QUICK} --set power=3 --json -q", **installed).stdout)
    assert spec(it) == {"name": "brier", "options": {"power": 3.0}, "at": "brier.methods:Brier"} | {
        "source": spec(it)["source"]
    }
    assert "already run" in process(f"run brier {QUICK} --set power=3", **installed).stderr
    other = process(f"run brier.methods:Brier {QUICK} --set power=3 --json -q", **installed)
    assert json.loads(other.stdout)["class_il"] == it["class_il"]
    Path("site/brier/__init__.py").write_text("1\n")
    again = process(f"run brier {QUICK} --set power=3", **installed)
    assert "already run" in again.stderr, "the method does not import it"
    Path("site/brier/methods.py").write_text("raise ValueError('broken')\n")
    assert process("methods", **installed).returncode == 0, "one broken package spoils nothing else"
    told = process("run brier", **installed)
    assert told.returncode == 2 and told.stderr.count("\n") == 1
    assert "the entry point brier (brier.methods:Brier) cannot be loaded: broken" in told.stderr


def test_a_file_is_looked_for_beside_the_study_that_names_it(mine):
    Path("elsewhere").mkdir()
    mine.rename("elsewhere/mine.py")
    Path("elsewhere/study.toml").write_text(
        "seeds = 1\n[[grid]]\nmethod = ['er', 'mine.py:Brier', { name = 'mine.py:Brier', power = 3 }]\n"
        "stream = 'digits'\nepochs = 1\nmemory = 20\n"
    )
    rows = studies.study("elsewhere/study.toml").rows
    assert list(rows) == ["er", "Brier", "Brier(power = 3)"]


def test_an_object_that_is_more_than_its_options_is_not_run_as_less():
    changed = everlearn.ER(everlearn.Relation())
    changed.factor = 100
    with pytest.raises(everlearn.BadInput, match="this ER has factor, which its options do not say"):
        everlearn.run(changed)
    weighting = everlearn.Relation()
    weighting.hidden = 8  # an option, by its name
    assert Experiment.of(everlearn.ER(weighting)).weighting["hidden"] == 8
    with pytest.raises(everlearn.BadInput, match="is not a network"):
        everlearn.run("er", network=everlearn.ER)


# What cannot be -------------------------------------------------------------------------------------------------------
def test_an_option_that_two_parts_have_is_asked_for_by_the_part():
    words = f"run rer --network mlp {QUICK}"
    assert "say weighting.hidden or network.hidden" in answer(f"{words} --set hidden=8")
    it = document(f"{words} --set weighting.hidden=8 --set network.hidden=50")
    assert (spec(it, "weighting")["options"]["hidden"], spec(it, "network")["options"]["hidden"]) == (8, 50)
    settings = Experiment.parse(it["experiment"]).settings()
    assert settings["hidden"] == 8 and settings["network.hidden"] == 50
    tables = dict(weighting={"name": "relation", "hidden": 8}, network={"name": "mlp", "hidden": 50})
    assert kept() == [Experiment.of("er", memory=20, epochs=1, **tables).name]
    with pytest.raises(everlearn.BadInput, match="hidden is given twice"):
        Experiment.of("er", weighting={"name": "relation", "hidden": 8}, **{"weighting.hidden": 9})


def test_a_name_for_an_object_that_is_no_class_or_function_is_refused_in_one_sentence():
    lines = [
        "import functools, torch, everlearn, everlearn.networks",
        "net = functools.partial(everlearn.networks.MLP, hidden=8)",
    ]
    lines += ["built = torch.nn.Flatten()", "@functools.cache", "def tasks(): return everlearn.load('digits')"]
    Path("objects.py").write_text("\n".join(lines))
    words = "has no source of its own, and so no identity; name a class, or a function that makes what is wanted"
    assert f"a partial {words}" in answer("run er --network objects.py:net")
    assert f"a Flatten {words}" in answer("run er --network objects.py:built")
    assert words in answer("run er --stream objects.py:tasks")
    with pytest.raises(everlearn.BadInput, match="a partial is not a network; it must be a class or function"):
        everlearn.register("halved", kind="network")(functools.partial(MLP, hidden=50))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run mine.py:Bier", "unknown name in mine.py 'Bier'; did you mean 'Brier'?"),
        ("run er --weighting mine.py:Brier", "is not a weighting; it must be a class derived from everlearn.Weighting"),
        ("run nowhere.py:Brier", "there is no file"),
        ("run mine:Brier", "a file is named with its .py"),
        ("run broken.py:Brier", "'broken.py:Brier' cannot be imported: ValueError: on purpose"),
        ("run garbled.py:Brier", "'garbled.py:Brier' cannot be imported: SyntaxError"),
        ("run er --network mine.py:F", "is not a network; it must be a class or function that makes one"),
        ("run er --weighting broken.py:W", "'broken.py:W' cannot be imported"),
        ("run er --set batch=100000000", "batch 100000000 must be a number below 1000000"),
        ("run er --set hidden=0", "hidden 0 must be a number greater than 0"),
        ("run er --stream broken.py:s", "'broken.py:s' cannot be imported"),
        ("run er --network broken.py:n", "'broken.py:n' cannot be imported"),
    ],
)
def test_what_is_not_there_or_cannot_be_imported_is_answered_in_one_sentence(words, expected):
    Path("broken.py").write_text("raise ValueError('on purpose')\n")
    Path("garbled.py").write_text("def )\n")
    assert expected in answer(words)


WRONG = {
    "its own": ("raise ValueError('not today')", "ValueError: not today (mine.py, line 15)"),
    "torch's": ("F.cross_entropy(memory.z, memory.z[:, :3])", "RuntimeError: "),
    "a file's": ("open('weights.csv')", "FileNotFoundError: [Errno 2] No such file or directory: 'weights.csv'"),
    "a pipe's": ("raise BrokenPipeError(32, 'Broken pipe')", "BrokenPipeError: [Errno 32] Broken pipe"),
    "an iterator's": ("next(iter(()))", "RuntimeError: generator raised StopIteration"),
    "a library's": ("__import__('json').loads('{')", "JSONDecodeError: "),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", WRONG)
def test_a_mistake_in_its_code_is_one_sentence_with_the_file_and_the_line(mine, monkeypatch, workers, kind):
    code, sentence = WRONG[kind]
    mine.write_text(BRIER.replace("truth = F.one_hot(memory.y, memory.z.shape[1])", code))
    monkeypatch.setattr(local, "cores", lambda: workers)
    told = answer(f"run mine.py:Brier {QUICK} --seeds 2", code=1)
    assert told.startswith(f"everlearn: {sentence}") and "(mine.py, line 15)" in told
    shown = call(f"run mine.py:Brier {QUICK} --seeds 2 --debug").stderr
    assert shown.startswith("Traceback") and 'mine.py", line 15, in rehearse' in shown and shown.endswith(told)
    Path("mine.toml").write_text('seeds = 2\n[[grid]]\nmethod = ["er", "mine.py:Brier"]\nmemory = 20\nepochs = 1\n')
    study = call("study mine.toml -q")
    assert study.exit_code == 1 and "2 of 4 runs failed" in study.stderr and "(mine.py, line 15)" in study.stderr
    assert len(kept()) == 2 and "Traceback" not in study.stderr
    assert 'mine.py", line 15, in rehearse' in call("study mine.toml -q --debug").stderr


LOST = """from everlearn import ER, Term, cross_entropy


class Lost(ER):
    def learn(self, new):
        return [Term(cross_entropy(new).loss.detach(), new)]

    def rehearse(self, memory):
        return [Term(cross_entropy(memory).loss.detach(), memory)]
"""


def test_a_loss_that_does_not_depend_on_the_network_is_refused_in_words():
    Path("lost.py").write_text(LOST)
    assert "the loss does not depend on the network any more" in call(f"run lost.py:Lost {QUICK}").stderr


@pytest.mark.parametrize("words", [["run", "er", "--out", ""], ["compare", ""], ["run", "er", "--data", ""]])
def test_an_empty_word_is_no_path(words):
    result = CliRunner().invoke(cli.app, words, prog_name="everlearn")
    assert result.exit_code == 2 and not list(Path().glob("*digits*"))
    assert (
        result.stderr == "everlearn: a word on the command line is empty; it may come from a variable that is not set\n"
    )


def test_a_network_that_cannot_take_the_streams_images_is_refused_in_words(mine):
    Path("net.py").write_text("from torch import nn\n\n\ndef make(shape, classes):\n    return nn.Linear(3, classes)\n")
    assert "the network cannot take uint8 samples of shape (1, 8, 8) (" in answer(
        f"run er --network net.py:make {QUICK}"
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_what_ones_own_code_prints_is_no_part_of_the_results(mine, workers):
    mine.write_text(BRIER.replace("truth = F", "print('hello')\n        truth = F"))
    own = "from everlearn.launchers import local; from everlearn import cli"
    words = ["run", "mine.py:Brier", *QUICK.split(), "--seeds", "2", "--json", "-q"]
    command = [sys.executable, "-c", f"{own}; local.cores = lambda: {workers}; cli.main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)["runs"]) == 2 and "hello" in done.stderr


def test_a_batch_of_very_many_rows_is_chosen_in_no_time():
    rows = plan.choose(np.random.default_rng(0), np.array([3, 50_000]), 20_000)
    assert rows.shape == (2, 20_000) and len({*rows[1].tolist()}) == 20_000 and {*rows[0].tolist()} == {0, 1, 2}


def test_a_network_that_was_not_kept_is_said_to_be_lost_where_it_is_asked_for():
    call(f"run er {QUICK} --no-keep")
    assert "the network of 1 run was not kept; with --fresh it is" in call(f"run er {QUICK} --keep").stderr
    assert "not kept" not in call(f"run er {QUICK} --keep --fresh").stderr
    assert "not kept" not in call(f"run er {QUICK} --keep").stderr
