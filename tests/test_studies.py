"""A study: its grid, its table beside the published one, and a run that fails, is killed, or is somewhere else."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import toy
from typer.testing import CliRunner

import everlearn
from everlearn import ER, BadInput, Experiment, Relation, launchers, registry
from everlearn.cli import app as cli
from everlearn.errors import Notice
from everlearn.experiments import failures, provenance, studies
from everlearn.experiments import run as runs
from everlearn.experiments.published import Figure, published
from everlearn.experiments.store import Store
from everlearn.launchers import local, remote
from everlearn.metrics import across
from everlearn.networks import CNN
from everlearn.report import tables

TOML = """
question = "does a larger memory help?"
seeds = 2
[[grid]]
method = ["er", "finetune"]
memory = [10, 20]
stream = "digits"
epochs = 1
classes = ["0", "1", "2", "3"]
tasks = 2
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(local, "cores", lambda: 1)
    Path("mine.toml").write_text(TOML)


def call(words: str):
    return CliRunner().invoke(cli.app, words.split(), prog_name="everlearn")


def finished() -> dict[str, int]:
    """The runs there are, and when each was finished."""
    results = [path for path in Path("runs").glob("*/result.json") if path.parent.suffix != ".part"]
    return {path.parent.name: path.stat().st_mtime_ns for path in results}


# The grid ------------------------------------------------------------------------------------------------------------
def test_a_file_is_a_grid_of_all_combinations():
    study = studies.study("mine.toml")
    assert study.question == "does a larger memory help?" and study.name == "mine.toml"
    assert list(study.rows) == ["er, M = 10", "er, M = 20", "finetune"], "fine-tuning keeps no memory to vary"
    (first, second), *_ = study.rows.values()
    assert (first.memory, first.seed, second.seed, first.stream["classes"]) == (10, 0, 1, ("0", "1", "2", "3"))
    assert len(studies.study("mine.toml", seeds=3).rows["finetune"]) == 3
    assert list(studies.study("mine.toml", only=["M = 20"]).rows) == ["er, M = 20"]
    assert list(studies.study("mine.toml", only=["er*"]).rows) == ["er, M = 10", "er, M = 20"]
    assert list(studies.study("mine.toml", only=["M = 20", "finetune"]).rows) == ["er, M = 20", "finetune"]
    assert studies.study("mine.toml", given={"lr": "0.5"}).rows["finetune"][0].training.lr == 0.5


@pytest.mark.parametrize(
    "text, words",
    [
        ("question = 1 2", "not TOML"),
        ("seeds = 2", "no [[grid]]"),
        ("[[grid]]\nmemory = 2", "no [[grid]] with a method"),
        ("sedes = 2\n[[grid]]\nmethod = 'er'", "did you mean 'seeds'?"),
        ("seeds = 0\n[[grid]]\nmethod = 'er'", "seeds 0"),
        ("[[grid]]\nmethod = 'err'", "unknown method 'err'"),
        ("[[grid]]\nmethod = 'er'\nmemroy = 3", "did you mean 'memory'?"),
        ("[[grid]]\nmethod = 'er'\n[[grid]]\nmethod = 'er'\nlr = 0.5", "two rows 'er'"),
        ("[[grid]]\nmethod = 'er'\nseed = [1, 2]", "seed has no place in a grid"),
        ("[[grid]]\nmethod = 'er'\nseeds = 2", "seeds has no place in a grid"),
        ("[[grid]]\nmethod = [1]", "method = [1] must be a name"),
        ("[[grid]]\nmethod = [['er']]", "must be a name"),
        ("[[grid]]\nmethod = 'er'\nstream = 3", "stream = 3 must be a name"),
        ("[[grid]]\nmethod = 'er'\nmemory = []", "memory = [] must be a value"),
        ("[[grid]]\nmethod = 'er'\nweights = 1", "weights = 1 must be a list"),
        ("[[grid]]\nmethod = 'er'\nweights = []", "weights = [] must be a list"),
        ("[[grid]]\nmethod = 'er'\nlr = {a = 1}", "must be a value"),
    ],
)
def test_a_file_that_cannot_be_is_answered_in_a_sentence(text, words):
    Path("wrong.toml").write_text(text)
    result = call("study wrong.toml")
    assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_weights_are_a_row_or_several():
    write = lambda weights: Path("w.toml").write_text(f"[[grid]]\nmethod = 'er'\nweights = {weights}")
    write([1, 0.5])
    assert list(studies.study("w.toml").rows) == ["er"]
    write([[1, 0.5], [1, 1]])
    assert list(studies.study("w.toml").rows) == ["er, weights = [1, 0.5]", "er, weights = [1, 1]"]


@pytest.mark.parametrize(
    "words",
    [
        "digits --set method=er",
        "digits --set seed=3",
        "table1-cifar10 --only rder --set memory=200",
        "relation-digits --set memory=20",
        "similarity --set classes=ship,truck",
    ],
)
def test_a_setting_that_rows_are_named_after_cannot_be_overridden(words):
    result = call(f"study {words} --dry-run")
    assert result.exit_code == 2 and "--only chooses among its rows" in result.stderr


def test_published_figures_belong_to_the_papers_studies_alone():
    Path("table1-cifar10.toml").write_text(TOML.replace("memory = [10, 20]", "memory = [200, 500]"))
    study = studies.study("table1-cifar10.toml")
    assert "er, M = 200" in study.rows and published(study.name, "er, M = 200") is None


@pytest.mark.parametrize(
    "words, sentence",
    [
        ("--launcher-option a=1", "--launcher-option is for"),
        ("--on slurm", "there is no Slurm here"),
        ("--on slurm --launcher-option cluster=nowhere", "submitit does not take"),
        ("--on slurm --launcher-option cluster=local --launcher-option foo=3", "submitit does not take"),
        ("--on slurm --launcher-option foo", "has no '='"),
    ],
)
def test_a_launcher_that_cannot_be_is_answered_in_a_sentence(words, sentence):
    pytest.importorskip("submitit")
    result = call(f"study mine.toml {words}")
    assert result.exit_code == 2 and sentence in result.stderr, (result.stderr, result.exception)


def gpu(monkeypatch, here: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def test_on_a_cluster_the_precision_does_not_depend_on_the_machine_that_sends(monkeypatch):
    for here in (True, False):
        gpu(monkeypatch, here)
        for device, launcher, precision in (("cuda", "slurm", "bfloat16"), ("auto", "slurm", "float32")):
            given = {"device": launchers.device_of(launcher, device)}
            (row,) = studies.study("table1-cifar10", 1, ["er, M = 200"], given).rows.values()
            assert row[0].training.precision == precision


def test_a_study_that_is_not_there_is_said_to_be():
    assert "did you mean 'digits'?" in call("study digit").stderr
    assert "cannot read the study" in call("study none.toml").stderr
    with pytest.raises(BadInput, match=r"no row of mine.toml has 'M = 99'"):
        studies.study("mine.toml", only=["M = 99"])


@pytest.mark.parametrize("name", [name for name in studies.STUDIES if name.startswith(("table", "similarity"))])
def test_every_published_row_is_a_row_of_its_study(name):
    from everlearn.experiments import published

    given = lambda row: any(figure for setting in row.values() for figure in setting.values())
    printed = {label for label, row in published.tables().get(name, {}).items() if given(row)}
    assert printed <= set(studies.study(name, 1).rows) and (printed or name not in published.tables())


def test_the_papers_settings_are_the_studies_defaults():
    rows = studies.study("table1-cifar10", 1).rows
    er, rder = rows["er, M = 500"][0], rows["rder, M = 200"][0]
    assert (er.stream.name, er.memory) == ("cifar10", 500)
    assert (er.training.epochs, er.training.lr, er.training.batch) == (50, 0.03, 32)
    assert rder.weighting["warmup"] == 25 and rder.weighting["weights"] == (1, 0.2, 0.5)
    assert studies.study("table7-interval", 1).rows["rder, M = 50, interval = 10"][0].weighting["interval"] == 10
    assert "gem, M = 200" not in studies.study("table1-tinyimagenet", 1).rows


def test_what_the_released_code_does_otherwise_is_a_study():
    rows = {name: studies.study(f"released-{name}", 1).rows for name in ("cifar10", "cifar100")}
    paper = studies.study("table1-cifar10", 1).rows
    odd = {
        "er-ace": {"weights": (0.5, 0.5)},
        "rer": {"weights": (1, 1), "order": "fresh", "warmup": 26},
        "rer-ace": {"weights": (1, 1), "rrn_lr": 1e-9, "warmup": 26},
        "rder": {"order": "fresh", "warmup": 26},
    }
    for method, settings in odd.items():
        for memory in (200, 500, 5120):
            ((theirs,), (usual,)) = (
                rows["cifar10"][f"{method}, as released, M = {memory}"],
                paper[f"{method}, M = {memory}"],
            )
            assert theirs == Experiment.of(method, "cifar10", memory=memory, **settings)
            here, there = theirs.settings(), usual.settings()
            assert {key: here[key] for key in here if here[key] != there[key]} == settings
    assert rows["cifar10"].keys() == rows["cifar100"].keys()


def test_a_net_with_rer_aces_rate_in_the_released_code_stays_as_it_was_made():
    stream = toy()
    moved = {}
    for rate in (studies.RELEASED["rer-ace"]["rrn_lr"], 1e-3):
        method = ER(Relation(rrn_lr=rate, interval=1, relation_from_task=1))
        learner = everlearn.Learner(CNN(stream.shape, 4), method, memory=8, epochs=4, batch=2, classes=range(4))
        before = method.weighting.phi.clone()
        for task in stream.tasks:
            learner.update(task)
        moved[rate] = (method.weighting.phi - before).abs().max().item()
        assert method.weighting.adam.steps > 40
    assert moved[1e-9] < 1e-6 < 1e-3 < moved[1e-3]


# The table -----------------------------------------------------------------------------------------------------------
def test_a_difference_beyond_two_published_deviations_is_marked():
    ours = lambda mean, std: {"mean": mean, "std": std}
    assert tables.compared(ours(60.1, 0.5), Figure(58.59, 0.74)) == ("58.59 ± 0.74", "60.10 ± 0.50", "+1.51 *")
    assert tables.compared(ours(60.0, 0.1), Figure(58.59, 0.74))[2] == "+1.41"
    assert tables.compared(ours(57.1, 4.0), Figure(58.59, 0.74))[2] == "-1.49 *"
    assert tables.compared(ours(62.0, None), Figure(58.59, 0.74))[2] == "+3.41", "one run says little"
    assert tables.compared(ours(60.0, 0.5), None)[0] == "–"


def test_a_table_shows_published_ours_and_difference_and_the_settings():
    study = studies.study("table5-small-memory", 2, only=["er, M = 50"])
    result = lambda acc: {s: {"acc": acc, "bwt": -1.0, "forgetting": 1.0, "fwt": 0.0} for s in ("class_il", "task_il")}
    label = "er, M = 50"
    made = {"provenance": provenance.here("cpu") | {"finished": provenance.now()}}
    documents = {label: [result(43.0) | made | {"experiment": e.document()} for e in study.rows[label]]}
    text = "".join(str(cell) for row in tables.study(study, documents).rows for cell in row)
    assert "36.47 ± 2.92" in text and "43.00 ± 0.00" in text and "+6.53 *" in text
    notes = " ".join(tables.study_notes(study, documents))
    assert "50 epochs per task" in notes and "epochs 50" in notes and "1, 1 (er)" in notes
    assert published("table5-small-memory", label)["class_il"]["bwt"] is None
    text = " ".join(str(cell) for row in tables.study(study, {}).rows for cell in row)
    assert "36.47 ± 2.92" in text and "ours, 0 runs" in text, "its runs have failed: the row stays"


def test_a_row_of_ones_own_whose_runs_failed_is_empty():
    study = studies.Study("mine", "which?", {"er": [Experiment.of("er")], "broken": [Experiment.of("er", seed=1)]})
    figures = {s: {"acc": 50.0, "bwt": -1.0, "forgetting": 1.0, "fwt": 0.0} for s in ("class_il", "task_il")}
    rows = [[str(cell) for cell in row] for row in tables.study(study, {"er": [figures]}).rows]
    assert [row[:3] for row in rows] == [["er", "1", "50.00"], ["broken", "0", "–"]]


def own_images(side: int) -> str:
    x, y = np.zeros((4, side, side, 3), np.uint8), np.arange(4)
    np.savez(f"own-{side}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return f"own-{side}.npz"


def test_a_resnet_on_a_gpu_runs_in_bfloat16_unless_told_otherwise(monkeypatch):
    of = lambda *words, **given: Experiment.of(*words, **given).training.precision
    gpu(monkeypatch, True)
    assert of("er", "cifar10") == of("er", "cifar10", device="cuda") == "bfloat16"
    assert of("er", "cifar10", precision="float32") == of("er", "cifar10", device="cpu") == "float32"
    assert of("er") == "float32", "an MLP"
    own = 'seeds = 1\n[[grid]]\nmethod = "er"\nstream = ["cifar10", "digits"]\n'
    for line, expected in (("", {"bfloat16", "float32"}), ('precision = "float32"', {"float32"})):
        Path("own.toml").write_text(own + line)
        rows = studies.study("own.toml").rows.values()
        assert {experiment.training.precision for row in rows for experiment in row} == expected
    Path("own.toml").write_text(own + 'precision = ["float32", "bfloat16"]')
    assert len(studies.study("own.toml").rows) == 4
    small, large = (Experiment.of("er", f"npz:{own_images(side)}") for side in (8, 32))
    job = launchers.Job(Store())
    assert (small.network.name, small.training.precision) == ("cnn", "float32") and local.light(small, job)
    assert (large.network.name, large.training.precision) == ("resnet18", "bfloat16") and not local.light(large, job)
    gpu(monkeypatch, False)
    assert of("er", "cifar10") == "float32"


def test_what_a_study_says_itself_cannot_be_set_and_what_it_leaves_open_can():
    given = lambda name, **more: studies.study(name, 1, given=more).rows
    assert given("phase-cifar10", network="cnn", epochs="1")["rer, M = 200"][0].network.name == "cnn"
    assert given("presets-cifar10", epochs=1)["rer, preset 1, 0.5, fresh"][0].training.epochs == 1
    rows = given("relation-digits", interval="3")  # where it means something
    assert rows["rer, M = 20"][0].weighting["interval"] == 3 and "interval" not in rows["er, M = 20"][0].settings()
    for only, key, word in (([], "intervall", "did you mean 'interval'"), (["er"], "interval", "unknown setting")):
        with pytest.raises(BadInput, match=word):
            studies.study("relation-digits", 1, only, {key: 3})
    for name, more in (
        ("table1-cifar10", {"stream": "digits"}),
        ("presets-cifar10", {"weights": (1, 2)}),
        ("phase-digits-cnn", {"network": "mlp"}),
        ("table1-cifar10", {"memory": 3}),
    ):
        with pytest.raises(BadInput, match="says itself"):
            given(name, **more)


# The work ------------------------------------------------------------------------------------------------------------
def test_a_dry_run_says_what_is_done_and_what_would_run():
    call("study mine.toml --only finetune -q")
    said = call("study mine.toml --dry-run").stdout
    lines = {
        line.split()[0] if "M =" not in line else line[:12].strip(): line.split()[-3:]
        for line in said.splitlines()
        if line[-1:].isdigit() or line.rstrip()[-1:].isdigit()
    }
    assert lines["finetune"] == ["2", "2", "0"] and lines["all"] == ["6", "2", "4"]
    assert len(finished()) == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_data_set_that_is_not_there_stops_its_own_runs_only(jobs):
    streams = TOML.replace('stream = "digits"', 'stream = ["digits", "mnist"]').replace(', "finetune"', "")
    Path("two.toml").write_text(streams)
    result = call(f"study two.toml -q --data nowhere --jobs {jobs}")
    assert result.exit_code == 1 and "4 of 8 runs failed" in result.stderr and len(finished()) == 4
    assert result.stderr.count("and 3 more failed: ") == 1 and "everlearn data get mnist" in result.stderr


def test_a_studys_heading_says_what_is_run_of_it_and_with_which_settings():
    heading = lambda words: call(f"study {words} --dry-run").stdout.splitlines()
    digits = "digits: fifteen methods on Split-Digits, memory 100, 5 epochs"
    assert heading("digits")[0] == digits
    said = " ".join(heading("digits --only er --only joint --set epochs=1 --seeds 2"))
    assert said.startswith(f"{digits} (here: only er, only joint, epochs = 1) ")
    Path("mine.toml").write_text(TOML.replace("seeds = 2", "seeds = 1"))
    assert call("study mine.toml --only finetune -q").stdout.startswith(
        "mine.toml: does a larger memory help? (here: only finetune)\n"
    )


def test_data_of_ones_own_are_looked_for_beside_the_study_then_in_the_working_folder(monkeypatch, tmp_path):
    Path("sub").mkdir()
    images = Path(own_images(8)).rename("mine.npz")
    for stream in ('"npz:mine.npz"', '{ name = "npz:mine.npz" }'):
        Path("own.toml").write_text(f"seeds = 1\n[[grid]]\nmethod = 'er'\nstream = {stream}\n")
        place = lambda study: studies.study(study).rows["er"][0].stream.at
        assert place("own.toml") == f"npz:{images.resolve()}"
        monkeypatch.chdir(tmp_path / "sub")
        assert place("../own.toml") == f"npz:{tmp_path / 'mine.npz'}"
        Path("../own.toml").rename("own.toml")
        result = call("study own.toml --dry-run")
        assert result.exit_code == 2 and f"own.toml: there is no file {tmp_path / 'sub/mine.npz'}" in result.stderr
        monkeypatch.chdir(tmp_path)
        assert place("sub/own.toml") == f"npz:{images.resolve()}", "in the working folder"


@pytest.mark.parametrize(
    ("only", "labels"),
    [
        ("er", ["er, M = 50", "er, M = 500"]),
        ("M = 50", ["er, M = 50", "er+consolidate, M = 50"]),
        ("consolidate", ["er+consolidate, M = 50", "er+consolidate, M = 500"]),
        ("consol*50", ["er+consolidate, M = 50"]),
        ("er*, M = 500", ["er, M = 500", "er+consolidate, M = 500"]),
    ],
)
def test_only_takes_rows_that_have_the_words(only, labels):
    Path("rows.toml").write_text(TOML.replace('"finetune"', '"er+consolidate"').replace("[10, 20]", "[50, 500]"))
    assert list(studies.study("rows.toml", only=[only]).rows) == labels


def test_words_in_brackets_are_printed_as_they_are():
    Path("odd[b].toml").write_text(TOML.replace("a larger memory", "train[/test] :smile:"))
    result = call("study odd[b].toml --only finetune -q")
    assert result.exit_code == 0 and "odd[b].toml: does train[/test] :smile: help?" in result.stdout


def test_a_failed_run_is_told_at_the_end_and_stops_no_other():
    Path("half.toml").write_text(TOML.replace("memory = [10, 20]", "lr = [0.1, 1e30]").replace(', "finetune"', ""))
    result = call("study half.toml -q")
    assert (
        result.exit_code == 1
        and "2 of 4 runs failed" in result.stderr
        and result.stderr.count("and 1 more failed: the loss is no longer a finite") == 1
    )
    assert "er, lr = 0.1" in result.stdout and len(finished()) == 2
    document = json.loads(call("study half.toml -q --json").stdout)
    assert len(document["failed"]) == 2 and list(document["rows"]) == ["er, lr = 0.1"]


def test_ctrl_c_waits_while_workers_are_started_whichever_thread_it_comes_to():
    inside, sent, after = threading.Event(), threading.Event(), []

    def press() -> None:
        inside.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        sent.set()

    thread = threading.Thread(target=press)  # as the progress bar's, from before Ctrl-C was made to wait
    thread.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), local._uninterrupted():
            inside.set()
            sent.wait()
            after.append("the workers are known")
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    assert after


BOOM = """from everlearn import ER


class Boom(ER):
    def rehearse(self, memory):
        1 / {0}
        return super().rehearse(memory)
"""


def test_a_run_that_failed_leaves_a_note_until_it_is_begun_again_with_a_mended_file():
    own, run = Path("boom.py"), "run boom.py:Boom -q --epochs 1 --seeds 2 --set tasks=2"
    own.write_text(BOOM.format(0))
    call("run er -q --epochs 1 --set tasks=2")
    assert call(run).exit_code == 1
    notes = sorted(Path("runs").glob("*.failed.json"))
    assert len(notes) == 2 and "in rehearse" in json.loads(notes[0].read_text())["traceback"]
    words = " ".join(call("compare runs").stdout.split())
    assert all(f"failed: {note}: ZeroDivisionError" in words for note in notes) and "(boom.py, line 6)" in words
    Path("runs/other.failed.json").write_text("[]")  # somebody else's
    own.write_text(BOOM.format(1))
    assert call(run).exit_code == 0
    assert not any(note.exists() for note in notes) and Path("runs/other.failed.json").exists()
    assert "ZeroDivisionError" not in call("compare runs").stdout


def test_a_run_that_fails_in_python_leaves_a_note_too_and_one_that_is_run_anew_keeps_what_was_there():
    own = Path("boom.py")
    run = lambda **more: everlearn.run("boom.py:Boom", out="runs", epochs=1, tasks=2, **more)
    own.write_text(BOOM.format(1))
    run()
    time.sleep(0.01)  # what is later has a later time on any disk
    Boom = registry.find("method", "boom.py:Boom")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Boom, "rehearse", lambda self, memory: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(fresh=True)
    (note,) = Path("runs").glob("*.failed.json")
    assert "ZeroDivisionError" in json.loads(note.read_text())["traceback"]
    assert "division by zero" in " ".join(call("compare runs").stdout.split()), "though the older run is there"
    run(fresh=True)
    assert not note.exists()


def test_of_several_seeds_the_one_that_failed_is_named_and_the_others_are_kept():
    own = BOOM.replace("1 / {0}", "1 / (self.learner.seed != 1)")
    Path("boom.py").write_text(own)
    result = call("run boom.py:Boom -q --epochs 1 --seeds 3 --set tasks=2")
    assert result.exit_code == 1 and len(finished()) == 2
    assert "-s1-" in result.stderr and "; 1 of 3 runs failed, the others are complete" in result.stderr
    told = call("report runs")
    assert "2 complete runs" in told.stdout and "everlearn: failed: " in told.stderr and "-s1-" in told.stderr


def test_a_note_that_cannot_be_written_or_read_stops_nothing():
    experiment = Experiment.of("er", epochs=1, tasks=2)
    everlearn.run(experiment, out="runs")
    Path(f"runs/{experiment.name}.failed.json").mkdir()
    failures.note(Store("runs"), experiment, ValueError("no room"))
    Path("runs/long.json").write_text(json.dumps({"rows": {}, "failed": {"a" * 300: "too long", "": "nameless"}}))
    words = call("compare runs")
    assert words.exit_code == 0 and "too long" in words.stdout and "nameless" in words.stdout


def test_a_note_of_a_run_that_is_there_is_out_of_date():
    Path("runs").mkdir()
    experiment = Experiment.of("er", epochs=1, tasks=2)
    failures.note(Store("runs"), experiment, ValueError("no room"))
    assert "no room" in call("compare runs").stderr
    runs.finish(runs.recorded(experiment, Store("runs"), "cpu", None, None))  # not by a launcher: the note is left
    assert list(Path("runs").glob("*.failed.json")) and "no room" not in call("compare runs").stdout


@pytest.mark.slow
def test_killed_three_times_it_ends_complete_and_nothing_is_run_twice():
    study = [e for row in studies.study("mine.toml", seeds=4).rows.values() for e in row]
    seen: dict[str, int] = {}
    command = [sys.executable, "-m", "everlearn", "study", "mine.toml", "--seeds", "4", "-q"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    for goal in (2, 5, 8, None):
        process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
        while process.poll() is None and (goal is None or len(finished()) < goal):
            time.sleep(0.02)
        if goal is not None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
        now = finished()
        assert seen.items() <= now.items(), "what was finished is as it was"
        seen = now
    assert process.returncode == 0 and set(seen) == {e.name for e in study}


@pytest.mark.slow
def test_jobs_killed_on_a_cluster_are_sent_again_and_go_on(monkeypatch):
    pytest.importorskip("submitit")
    from everlearn.launchers import slurm

    monkeypatch.setattr(slurm, "LOOK", 0.2)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0.2")
    experiments = [Experiment.of("er", epochs=e, classes=["0", "1"], tasks=1, memory=10) for e in (1, 600)]
    store, killed = Store("runs"), []
    at_work = store.root.resolve() / ".slurm" / "runs" / (experiments[1].name + ".part") / "checkpoint"

    def report(experiment, record):
        """When the short one is done and the long one at work, its process is killed, once."""
        while not killed and not at_work.exists():
            time.sleep(0.01)
        if not killed:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                words = Path(f"/proc/{pid}/cmdline").read_bytes() if Path(f"/proc/{pid}/cmdline").exists() else b""
                if b"submitit.core._submit" in words and str(Path.cwd()).encode() in words:
                    os.kill(int(pid), signal.SIGKILL)
                    killed.append(pid)

    outcomes = launchers.perform(
        experiments, store, on="slurm", device="cpu", jobs=2, options={"cluster": "local"}, report=report
    )
    assert killed and [o["experiment"]["training"]["epochs"] for o in outcomes] == [1, 600]
    assert [o["provenance"]["resumed"] for o in outcomes] == [0, 1], "it went on where it was"
    assert not any(at_work.parents[1].iterdir()), "and nothing is left lying about"
    here = launchers.perform(experiments, Store("here"), device="cpu")
    assert [o["class_il"] for o in outcomes] == [o["class_il"] for o in here]


@pytest.mark.slow
def test_of_a_job_that_is_lost_every_time_its_state_and_its_output_are_named(monkeypatch):
    pytest.importorskip("submitit")
    from everlearn.launchers import slurm

    monkeypatch.setattr(slurm, "AGAIN", 0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    ends = "import os\nfrom everlearn import ER\nclass Ends(ER):\n    def rehearse(self, memory): os._exit(9)\n"
    Path("ends.py").write_text(ends)
    experiment = Experiment.of("ends.py:Ends", epochs=1, memory=10)
    (error,) = launchers.perform([experiment], Store("runs"), on="slurm", device="cpu", options={"cluster": "local"})
    said, log = str(error).split("; what it printed is in ")
    assert said.startswith("its job was lost 1 times, at last in the state ") and Path(log).is_file()


def test_what_is_wrong_with_a_job_s_machine_is_said_and_not_taken_for_a_lost_job():
    experiment = Experiment.of("er", epochs=1, memory=10)
    error = remote.run_there(launchers.Job(Store("runs"), device="cuda"), experiment)
    assert isinstance(error, BadInput) and "torch sees no GPU here" in str(error)


def test_a_run_whose_folder_cannot_be_had_does_not_keep_the_others_from_a_cluster():
    one, other = (Experiment.of("er", epochs=1, memory=10, seed=seed) for seed in (0, 1))
    store = Store("runs")
    store.root.mkdir()
    store.part(one).write_text("a file of somebody else's")
    with remote.claims(launchers.Job(store)) as held:
        assert isinstance(held.take(one), FileExistsError) and held.take(other) is None


def test_a_run_that_another_process_finished_meanwhile_is_no_failure(monkeypatch):
    experiment = Experiment.of("er", epochs=1, memory=10, classes=["0", "1"], tasks=1)
    job = launchers.Job(Store("runs"))
    runs.finish(job.steps(experiment))
    with remote.claims(job) as held:
        refused = held.take(experiment)
    assert type(refused).__name__ == "Done"
    monkeypatch.setattr(local, "launch", lambda todo, job, report: iter([(experiment, refused)]))
    (outcome,) = launchers.perform([experiment], Store("runs"), fresh=True, device="cpu")
    assert outcome["experiment"]["training"]["epochs"] == 1


@pytest.mark.parametrize("launcher, package", [("ray", "ray"), ("slurm", "submitit")])
def test_a_launcher_whose_package_is_missing_says_what_to_install(monkeypatch, launcher, package):
    monkeypatch.setitem(sys.modules, package, None)
    result = call(f"study mine.toml --on {launcher} -q")
    assert result.exit_code == 2 and f"pip install 'everlearn[{launcher}]'" in result.stderr


def test_runs_that_wait_for_a_gpu_that_no_machine_of_the_cluster_has_are_said_to(monkeypatch):
    from everlearn.launchers import ray

    without = SimpleNamespace(cluster_resources=lambda: {"CPU": 1.0}, remote=lambda **share: lambda function: function)
    monkeypatch.setattr(ray, "started", lambda options: without)
    with pytest.warns(Notice, match="no machine of the Ray cluster has a GPU; the runs wait"):
        list(ray.launch([], launchers.Job(Store("runs"), device="cuda"), lambda experiment, record: None))


@pytest.mark.slow
def test_a_ray_cluster_that_loses_a_node_completes_the_study_with_the_same_numbers(monkeypatch):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    experiments = [Experiment.of("er", epochs=20, memory=20, seed=seed) for seed in range(6)]
    lost = []

    def report(experiment, record):
        if not lost:
            lost.append(cluster.remove_node(second, allow_graceful=False))

    try:
        outcomes = launchers.perform(
            experiments, Store("runs"), on="ray", device="cpu", options={"address": cluster.address}, report=report
        )
    finally:
        ray.shutdown()
        cluster.shutdown()
    here = launchers.perform(experiments, Store("here"), device="cpu")
    assert lost and [o["class_il"] for o in outcomes] == [o["class_il"] for o in here]
    assert across(outcomes)["class_il"] == across(here)["class_il"]


# Size -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text, runs",
    [
        ("seeds = 1_000_000_000\n[[grid]]\nmethod = 'er'", "1,000,000,000"),
        (f"seeds = 1\n[[grid]]\nmethod = 'er'\nlr = {[0.1 + n for n in range(100_000)]}", "100,000"),
        (
            "seeds = 1\n[[grid]]\nmethod = 'er'\n"
            + "\n".join(f"{key} = {list(range(1, 1001))}" for key in ("memory", "batch", "epochs")),
            "1,000,000,000",
        ),
    ],
)
def test_a_study_too_large_is_counted_and_refused_before_it_is_written_out(text, runs):
    Path("large.toml").write_text(text)
    started = time.monotonic()
    result = call("study large.toml --dry-run")
    assert result.exit_code == 2 and f"a study of {runs} runs, more than 20,000; --max-runs" in result.stderr
    assert time.monotonic() - started < 20


def test_a_larger_study_is_made_if_that_is_asked_for():
    assert "of 8 runs, more than 5; --max-runs 8 allows it" in call("study mine.toml --dry-run --max-runs 5").stderr
    assert call("study mine.toml --dry-run --max-runs 8").exit_code == 0
    assert "--max-runs" in call("study digits --seeds 1000000000 --dry-run").stderr
    assert "more than 20000" in call("run er --seeds 1000000000").stderr
    (row,) = studies.study("digits", 1500, only=["er"], most=1500).rows.values()
    assert [experiment.seed for experiment in row] == list(range(1500))
    assert row[7] == Experiment.of("er", seed=7) and row[7].hash == Experiment.of("er", seed=7).hash


def test_a_result_changed_by_hand_is_a_failed_run_of_a_study_unless_it_is_accepted():
    assert call("study mine.toml").exit_code == 0
    file = next(Path("runs").glob("*-er-*/result.json"))
    document = json.loads(file.read_text())
    document["class_il"]["acc"] = 83.9
    file.write_text(json.dumps(document))
    told = call("study mine.toml")
    assert told.exit_code == 1 and "result.json is not what was written; remove the folder" in told.stderr
    assert "83.9" not in told.stdout
    assert call("study mine.toml --accept-edited").exit_code == 0
    for command in ("compare runs", "report runs --html page.html"):
        assert call(command).exit_code == 0
    assert "is not what was written" in call("compare runs").stdout
    assert "is not what was written" not in call("compare runs --accept-edited").stdout
    assert "1 of 6 runs have no checksum" in call("compare runs --accept-edited").stdout


@pytest.mark.parametrize(
    ("grids", "words"),
    [
        ('[[grid]]\nmethod = "er"\nlr = [1, 1.0]', "one experiment in two rows, 'er, lr = 1' and 'er, lr = 1.0'"),
        (
            '[[grid]]\nmethod = "er"\nmemory = [20, 50]\n[[grid]]\nmethod = ["er", "der++"]\nmemory = [50]',
            "one experiment in two rows, 'er, M = 50' and 'er'",
        ),
    ],
)
def test_one_experiment_is_one_row_of_a_study(grids, words):
    Path("twice.toml").write_text(grids)
    with pytest.raises(BadInput, match=words):
        studies.study("twice.toml")


def test_a_signal_that_breaks_something_off_is_answered_and_not_what_it_broke_off():
    """A process that ours starts dies of the signal, too, and then cannot be reached."""
    from everlearn.learner import endings

    with pytest.raises(SystemExit) as ended, endings.exits(late=True):
        os.kill(os.getpid(), signal.SIGTERM)
        raise EOFError("unexpected EOF")
    assert ended.value.code == 128 + signal.SIGTERM and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
