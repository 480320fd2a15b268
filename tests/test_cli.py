"""The command line: what it prints where, what it leaves on disk, and how it answers what cannot be."""

import contextlib
import errno
import glob
import importlib
import io
import json
import multiprocessing
import os
import re
import runpy
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import forked, interruptible
from typer.testing import CliRunner, Result

import everlearn
from everlearn import __version__, launchers, metrics, registry
from everlearn.cli import app as cli
from everlearn.data.streams import STREAMS
from everlearn.experiments import failures, results, store, studies
from everlearn.experiments.experiment import Experiment, load, settable
from everlearn.experiments.seals import opened, sealed
from everlearn.launchers import local
from everlearn.spec import options_of

QUICK = "--memory 20 --epochs 1"
CORES = local.cores()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Every test in a folder of its own, with no data sets, no GPU and, unless it says otherwise, one core."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("EVERLEARN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(local, "cores", lambda: 1)
    return tmp_path


def call(words: str) -> Result:
    return CliRunner().invoke(cli.app, words.split(), prog_name="everlearn")


def answer(words: str, code: int = 2) -> str:
    """The one sentence on stderr of a command that fails, and leaves no run behind."""
    result = call(words)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith("everlearn: ") and result.stderr.count("\n") == 1, result.stderr
    assert result.stdout == "" and not (kept() if code == 1 else list(Path("runs").glob("*")))  # a note at most
    return result.stderr


def write_own(file: str = "own.npz", **changes) -> str:
    """A stream of 40 images of 4 classes, which needs no scikit-learn and so starts sooner."""
    x, y = np.random.default_rng(0).integers(0, 256, (40, 6, 6), np.uint8), np.arange(40) % 4
    np.savez(file, **{"x_train": x, "y_train": y, "x_test": x, "y_test": y} | changes)
    return f"--stream npz:{file} --network mlp"


def kept(folder: str = "runs") -> list[str]:
    return sorted(path.name for path in Path(folder).glob("*") if not path.name.endswith(failures.SUFFIX))


def document(words: str) -> dict:
    result = call(f"{words} --json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# --- what it prints ---


def test_json_is_one_document_on_stdout():
    result = call(f"run er {QUICK} --seed 3 --json")
    it = json.loads(result.stdout)
    assert result.stderr == ""
    assert {"experiment", "class_il", "task_il", "seconds", "provenance"} <= set(it)
    assert (it["experiment"]["method"]["name"], it["experiment"]["memory"], it["experiment"]["seed"]) == ("er", 20, 3)
    assert {"commit", "versions", "device"} <= set(it["provenance"])
    assert it["provenance"]["versions"]["torch"] == torch.__version__ and it["provenance"]["device"].startswith("cpu")
    for setting in ("class_il", "task_il"):
        assert set(it[setting]) == {"acc", "bwt", "forgetting", "fwt", "untrained", "matrix"}
        assert np.shape(it[setting]["matrix"]) == (5, 5) and it[setting]["matrix"][0][0] > 90  # percent
        assert it[setting]["acc"] == pytest.approx(np.mean(it[setting]["matrix"][-1]))
        assert metrics.summary(it[setting]["matrix"], it[setting]["untrained"]) == it[setting], (
            "all can be computed anew"
        )


def test_json_of_several_seeds_has_every_run_and_their_mean_and_deviation():
    it = document(f"run er {QUICK} --seeds 3")
    assert [run["experiment"]["seed"] for run in it["runs"]] == [0, 1, 2]
    for setting in ("class_il", "task_il"):
        for metric in ("acc", "bwt", "forgetting", "fwt"):
            values = [run[setting][metric] for run in it["runs"]]
            assert it["summary"][setting][metric] == pytest.approx(
                {"mean": statistics.mean(values), "std": statistics.stdev(values)}
            )


def test_a_run_prints_its_matrix_its_metrics_and_its_folder():
    result = call(f"run er {QUICK}")
    it = document(f"run er {QUICK}")
    for number in [f"{value:.1f}" for row in it["class_il"]["matrix"] for value in row] + [
        f"{it['task_il']['acc']:.2f}"
    ]:
        assert number in result.stdout
    assert f"runs/{kept()[0]}" in result.stdout


def test_quiet_prints_the_result_alone():
    result = call(f"run er {QUICK} --quiet")
    assert result.stderr == "" and "Task-IL" in result.stdout and "runs" not in result.stdout
    assert call(f"run er {QUICK} --quiet").stderr == ""


def test_worker_processes_give_the_bits_of_one_process(monkeypatch):
    words = f"run er {write_own()} {QUICK} --seeds 2"
    alone = document(f"{words} --out alone")
    monkeypatch.setattr(local, "cores", lambda: 2)
    monkeypatch.setattr(local, "each", None)  # here; the workers have their own
    assert document(f"{words} --out spread")["summary"] == alone["summary"]
    assert kept("spread") == kept("alone")


@pytest.mark.parametrize("width", (40, 60, 80))
def test_a_narrow_terminal_loses_no_number_and_no_word(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    result = call(f"run er {QUICK} --set tasks=10")
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    for task, row in enumerate(json.loads(next(Path("runs").glob("*/result.json")).read_text())["class_il"]["matrix"]):
        found = [figure for first, *figures in lines if first == str(task + 1) for figure in figures]
        assert found == [f"{value:.1f}" for value in row]
    assert "…" not in result.stdout + call("methods der++").stdout + call("streams").stdout
    assert "\ufffd" not in call("methods rder").stdout + call("weightings relation").stdout


def test_the_demo_compares_its_methods_and_says_where_the_runs_are(monkeypatch):
    few = ("finetune", "joint")
    monkeypatch.setattr(studies, "demo", lambda seeds: studies.with_seeds(studies.grid(method=few, epochs=1), seeds))
    shown = call("demo --seeds 1").stdout
    it = document("demo --seeds 1")
    for method in few:
        assert f"{it[method]['summary']['class_il']['acc']['mean']:.1f}" in next(
            line for line in shown.splitlines() if method in line
        )
        assert it[method]["runs"][0]["experiment"]["method"]["name"] == method
    assert all(f"runs/{name}" in shown for name in kept())


def test_what_a_method_of_ones_own_is_said_to_be_is_its_own_words_and_never_its_parents():
    kind = "import everlearn\n\n\nclass Mine(everlearn.ER):\n    "
    Path("silent.py").write_text(kind + "pass\n")
    Path("filed.py").write_text('"""What the file says."""\n' + kind + "pass\n")
    Path("said.py").write_text('"""A file."""\n' + kind + '"""What the class says."""\n')
    first = lambda name: call(f"methods {name}.py:Mine").stdout.splitlines()[0]
    assert [first(name) for name in ("silent", "filed", "said")] == [
        "Mine",
        "What the file says.",
        "What the class says.",
    ]


def test_methods_weightings_and_streams_are_all_listed():
    assert all(f" {name} " in call("methods").stdout for name in (*registry.METHODS, *registry.ALIASES))
    described = [call("methods der++").stdout, call("weightings relation").stdout]
    assert all("\n\nDeparts: " in text and "\ufffd" not in text for text in described), "paragraphs are paragraphs"
    assert all(f" {name} " in call("weightings").stdout for name in registry.WEIGHTINGS)
    assert all(f" {name} " in call("streams").stdout for name in (*STREAMS, "npz:FILE", "folder:DIR"))


def test_a_method_shows_its_equation_and_every_setting_that_can_be_set():
    for words, settings in (("der++", settable("der++")), ("er --weighting relation", settable("er", "relation"))):
        shown = call(f"methods {words}").stdout
        plain = {key for key in settings if "." not in key} - {"seed", "weighting"}  # these have a place of their own
        assert "CE(new)" in shown and "lr" in plain and all(f" {key} " in shown for key in plain)
        assert "On a GPU precision is bfloat16 on cifar10, cifar100, tinyimagenet." in shown


def test_a_weighting_shows_what_it_does_and_every_option():
    for name in registry.WEIGHTINGS:
        shown = call(f"weightings {name}").stdout
        options = options_of("weighting", registry.find("weighting", name))
        assert len(shown.splitlines()[0]) > 20 and options and all(f" {key} " in shown for key in options)


def test_help_names_every_option_and_gives_examples():
    shown = call("run --help").stdout
    options = "weighting stream network memory epochs seed seeds set device out data json quiet fresh debug"
    assert all(f"--{option} " in shown for option in options.split())
    assert "Examples" in shown and "everlearn run der++ --memory 50 --seeds 5" in shown
    assert all(f"{command} " in call("--help").stdout for command in cli.COMMANDS)


def test_no_command_prints_the_help():
    assert call("").stdout.strip() == call("--help").stdout.strip()


def test_the_module_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["everlearn", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("everlearn", run_name="__main__")
    assert not end.value.code and capsys.readouterr().out == f"everlearn {__version__}\n"


# --- what it keeps ---


def test_a_run_that_is_there_is_said_to_be_and_not_run_again():
    first = document(f"run er {QUICK}")
    again = call(f"run er {QUICK} --json")
    assert json.loads(again.stdout) == first
    assert again.stderr == f"already run, see runs/{kept()[0]} (--fresh runs it again)\n"


def test_fresh_runs_it_again():
    first = document(f"run er {QUICK}")
    mark = Path("runs", *kept(), "mark")
    mark.touch()
    assert document(f"run er {QUICK} --fresh")["class_il"] == first["class_il"]
    assert mark.parent.is_dir() and not mark.exists() and len(kept()) == 1


def test_again_runs_a_record_from_its_own_settings_and_counts_what_comes_out_the_same():
    for words in (f"{QUICK} --seed 3", f"{QUICK} --set weights=1,0.2"):
        assert call(f"run rer {words} --set interval=2").exit_code == 0
    folders = [Path("runs", name) for name in kept()]
    result = call(f"again {folders[0]} {folders[1] / 'result.json'} --quiet")
    assert result.stdout.count("50 of 50") == 2 and kept() == kept("again") == [folder.name for folder in folders]
    record = json.loads((folders[0] / "result.json").read_text())
    record["class_il"]["matrix"][4][2] += 1.0
    Path("other.json").write_text(json.dumps(sealed(record)))
    differs = call("again other.json --out new --quiet")
    assert "49 of 50" in differs.stdout and kept("new") == [folders[0].name]
    assert differs.exit_code == 1 and differs.stderr == "everlearn: 1 of 1 run came out otherwise\n"
    told = json.loads(call("again other.json --out new --quiet --json").stdout)[folders[0].name]
    assert (
        not told["same"]
        and told["then"] == opened(record, edited=True).document
        and told["now"]["class_il"]["acc"] == record["class_il"]["acc"]
    )
    told = document(f"again {folders[0]} --quiet --fresh")[folders[0].name]
    assert told["same"] and told["now"]["provenance"]["settings"] == Experiment.read(record["experiment"]).hash


def test_again_refuses_what_would_be_no_repetition():
    own = write_own()
    assert call(f"run er {own} {QUICK}").exit_code == 0
    (name,) = kept()

    def refused(words: str) -> str:
        result = call(f"again {words}")
        assert result.exit_code == 2 and result.stderr.count("\n") == 1 and not kept("again")
        return result.stderr

    assert "choose another folder" in refused(f"runs/{name} --out runs")
    assert "choose another folder" in refused(f"runs/{name}/result.json --out runs")
    assert "a second record" in refused(f"runs/{name} runs/{name}/result.json")
    assert "no result.json" in refused("runs")
    record = json.loads(Path("runs", name, "result.json").read_text())
    for damage in (
        {"experiment": {}},
        {"experiment": "er"},
        {"class_il": {"acc": 1.0, "bwt": 0.0}},
        *({"experiment": {**record["experiment"], part: None}} for part in ("method", "weighting", "training")),
        {"experiment": {**record["experiment"], "stream": None}},
        {"experiment": {**record["experiment"], "weighting": {"name": "fixed", "options": None}}},
    ):
        Path("bad.json").write_text(json.dumps(sealed(record | damage)))
        assert re.search("not the record of a run|must be a mapping, not None", refused("bad.json"))
    Path("bad.json").write_text("{")
    assert "give a run's folder" in refused("bad.json")
    record["experiment"]["training"]["precision"] = "bfloat16"
    Path("bad.json").write_text(json.dumps(record))
    assert "is not what was written; get it again from where it came, or --accept-edited" in refused("bad.json")
    assert "needs a GPU" in refused("bad.json --accept-edited")
    Path("bad.json").write_text(json.dumps(sealed(record)))
    assert "needs a GPU" in refused("bad.json")
    write_own(y_train=np.arange(40)[::-1] % 4)
    assert "has changed since" in refused(f"runs/{name}")
    Path("own.npz").unlink()
    assert "is not there" in refused(f"runs/{name}")


def test_again_shows_what_came_out_when_another_run_failed():
    for words in ("--seed 1", "--seed 2"):
        assert call(f"run er {QUICK} {words}").exit_code == 0
    first, second = (Path("runs", name, "result.json") for name in kept())
    record = json.loads(second.read_text())
    record["experiment"]["training"]["lr"] = 1e30
    Path("wild.json").write_text(json.dumps(sealed(record)))
    result = call(f"again {first} wild.json --quiet")
    assert result.exit_code == 1 and "50 of 50" in result.stdout and "1 of 2 runs failed" in result.stderr


def test_a_resumed_run_says_so_and_a_warm_up_without_end_is_pointed_out(monkeypatch):
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")
    store_ = store.Store("runs")
    experiment = Experiment.of("er", memory=20, epochs=2)
    with contextlib.suppress(KeyboardInterrupt), store_.recording(experiment) as recording:
        run = everlearn.experiments.run.Run(experiment, load(experiment.stream), "cpu")
        for _ in run.steps(recording.line, save=recording.checkpoint):
            if (run.learner.epoch, run.learner.step) == (1, 3):
                raise KeyboardInterrupt
    assert "continues with task 1 after 1 of its 2 epochs and 3 steps" in call("run er --memory 20 --epochs 2").stderr
    said = call("run rer --memory 20 --epochs 1 --set warmup=1").stderr
    assert "rer will use the preset weights throughout" in said
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "soon")
    assert "not a number of seconds" in call("run er --memory 20 --epochs 2 --seed 9").stderr
    part = Path("runs", Experiment.of("er", memory=20, epochs=2, seed=9).name + ".part")
    part.mkdir()
    (part / "checkpoint").write_bytes(b"hours of work")
    assert "not a number of seconds" in call("run er --memory 20 --epochs 2 --seed 9").stderr
    assert (part / "checkpoint").exists(), "a slip of the pen costs no checkpoint"


def test_many_runs_are_counted_and_a_dry_run_can_be_json():
    assert "12 runs kept in runs" in call(f"run er {QUICK} --seeds 12").stdout
    planned = document("study digits --seeds 2 --only er --dry-run")
    assert planned["rows"] == {"er": {"runs": 2, "done": 0}}


def test_a_method_of_ones_own_is_measured_like_any_other():
    class Brier(everlearn.ER):
        pass

    mine, er = everlearn.run(Brier(), epochs=1, memory=20), everlearn.run("er", epochs=1, memory=20)
    assert mine["class_il"] == er["class_il"] and mine["experiment"]["method"]["name"] == "Brier"

    class Both(everlearn.OEWC):
        names, draws, remembers = ("new", "memory"), 1, True
        rehearse = everlearn.ER.rehearse

    assert everlearn.run(Both(), epochs=1, memory=20)["experiment"]["memory"] == 20
    assert everlearn.run(everlearn.ER, epochs=1, memory=20)["experiment"] == er["experiment"]
    with pytest.raises(everlearn.BadInput, match="is not a method"):
        everlearn.run(3)
    with pytest.raises(everlearn.BadInput, match="is not a stream"):
        everlearn.run("er", everlearn.load("digits"))
    with pytest.raises(everlearn.BadInput, match="weights is an option of the method object"):
        everlearn.run(Brier(), weights=(1, 2))
    with pytest.raises(everlearn.BadInput, match="omit `out`"):
        everlearn.run(Brier(), out="runs")


def test_a_network_of_ones_own_is_not_taken_for_the_usual_one():
    class Mine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.layer(x.flatten(1))

    it = everlearn.run("er", epochs=1, network=Mine())
    assert it["experiment"]["network"]["name"].startswith("Mine ")
    assert it["provenance"]["settings"] != Experiment.of("er", epochs=1).hash
    assert it["provenance"]["settings"] != everlearn.run("er", epochs=1, network=Mine())["provenance"]["settings"]


def test_a_memory_asked_of_a_method_that_keeps_none_is_said_to_change_nothing():
    said = lambda words: call(f"run {words} --epochs 1 -q").stderr
    assert (
        said("finetune --memory 30 --seeds 2") == "everlearn: finetune keeps no memory; --memory 30 changes nothing\n"
    )
    assert said("finetune") == said("finetune --memory 0") == said("er --memory 30") == ""


def test_another_setting_is_another_run():
    for words in ("", "--seed 1", "--set lr=0.2"):
        assert call(f"run er {QUICK} {words}").exit_code == 0
    assert len(kept()) == 3


def test_a_run_that_was_killed_is_run_again_from_the_start():
    part = Path("runs", Experiment.of("er", memory=20, epochs=1).name + ".part")
    part.mkdir(parents=True)
    (part / "metrics.jsonl").write_text('{"event": "epoch", "ta')
    (part / "lock").touch()
    assert call(f"run er {QUICK}").exit_code == 0
    assert kept() == [part.stem] and results.read_lines(part.with_suffix(""))[-1]["event"] == "task"


def test_two_processes_share_the_work_and_neither_does_what_the_other_does():
    experiments, files = [Experiment.of("er", memory=20, epochs=1, seed=seed) for seed in range(4)], ("one", "other")
    perform = lambda: launchers.perform(experiments, store.Store(), device="cpu", jobs=1)
    children = [forked(lambda file=file: Path(file).write_text(json.dumps(perform()))) for file in files]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    one, other = (json.loads(Path(file).read_text()) for file in files)
    assert one == other and len(kept()) == 4, "seconds and all: the very same runs"


def test_a_run_that_another_process_is_at_is_waited_for_and_taken_over_if_it_dies(monkeypatch):
    experiment = Experiment.of("er", memory=20, epochs=1)
    monkeypatch.setattr(launchers, "PATIENCE", 0.05)
    holder = os.fork()
    if not holder:
        with store.Store().recording(experiment):
            time.sleep(1.5)
            os.kill(os.getpid(), signal.SIGKILL)
    while not glob.glob("runs/*.part/lock"):
        time.sleep(0.01)
    result = call(f"run er {QUICK}")
    os.waitpid(holder, 0)
    assert result.exit_code == 0 and "another process is running digits-er" in result.stderr
    assert kept() == [experiment.name]


# --- what it refuses ---


@pytest.mark.parametrize(
    "words, expected",
    [
        ("frobnicate", "frobnicate"),
        ("rnu er", "run"),
        ("run", "method"),
        ("run eer", "did you mean 'er'"),
        ("methods der+", "did you mean 'der++'"),
        ("run er --memory", "option '--memory' requires an argument; see everlearn run --help"),
        ("report runs --html", "option '--html' requires an argument; see everlearn report --help"),
        ("run er --memmory 3", "--memory"),
        ("run er --stream digit", "did you mean 'digits'"),
        ("run er --stream zzz", "known: cifar10"),
        ("run er --stream .", "did you mean 'folder:.'"),
        ("run er --stream mine.npz", "did you mean 'npz:mine.npz'"),
        ("run er --stream npz:.", "is a folder; folder:"),
        ("run er --stream foldr:.", "unknown kind of data 'foldr': data are npz:FILE or folder:DIR"),
        ("run er --stream csv:.", "unknown kind of data 'csv': data are npz:FILE or folder:DIR"),
        ("run er --stream csv:nowhere.csv", "and a stream of your own is module:attr or file.py:attr"),
        ("run er --stream parquet:nowhere", "unknown kind of data 'parquet'"),
        ("run er --stream torch:.", "unknown kind of data 'torch'"),
        ("run er --stream torch.nowhere:.", "there is no module torch.nowhere"),
        ("run er --stream torch:nowhere", "unknown name in torch 'nowhere'"),
        ("run er --stream mine.csv", "folder:DIR"),
        ("run er --network net.py", "did you mean 'net.py:NAME'"),
        ("run derpp", "did you mean 'der++'"),
        ("run er --set lrr=1", "did you mean 'lr'"),
        ("run er --set lr", "KEY=VALUE"),
        ("run er --set cls=1", "did you mean 'classes'"),
        ("run er --set lr=abc", "not a number"),
        ("run er --set lr=0", "greater than 0"),
        ("run er --set lr=nan", "greater than 0"),
        ("run er --set momentum=-1", "must be a number from 0 up"),
        ("run er --set shuffle=-1", "must be a number from 0 up"),
        ("run er --set epochs=2.5", "not a whole number"),
        ("run er --set weights=1", "2 loss terms"),
        ("run er --set weights=a,b", "numbers with commas"),
        ("run er --set weights=-1,1", "from 0 up"),
        ("run er --set classes=cat", "known: 0, 1"),
        ("run er --set classes=1,1", "twice"),
        ("run er --set network=resnet", "did you mean 'resnet18'"),
        ("run er --network resnet", "did you mean 'resnet18'"),
        ("run er --weighting relations", "did you mean 'relation'"),
        ("run rer --weighting split", "rer is er weighed by relation; to weigh it by split, say er"),
        ("run finetune --weighting relation", "FineTune rehearses none"),
        ("run er --lr 0.1", "--lr is a setting; give it as --set lr="),
        ("run er --weight-decay 0.1", "give it as --set weight_decay="),
        ("weightings relatoin", "did you mean 'relation'"),
        ("methods er --weighting relatoin", "did you mean 'relation'"),
        ("study digits --on slrum", "did you mean 'slurm'"),
        ("run er --set forward=both", "'joint'"),
        ("run er --set tasks=11", "11 tasks need as many classes, and there are 10"),
        ("run er --set tasks=0", "at least 1"),
        ("run er --set classes=1 --set tasks=2", "and there are 1"),
        ("run er --set method=der", "its own place"),
        ("run er --set stream=mnist", "its own place"),
        ("run er --memory 20 --set memory=30", "its own place"),
        ("run er --seeds 2 --set seed=3", "its own place"),
        ("run er --set lr=1 --set lr=2", "--set lr is given 2 times"),
        ("run er --memory 0", "at least 1"),
        ("run er --memory -5", "at least 1"),
        ("run er --memory many", "neither a whole number of rows nor"),
        ("run er --epochs 0", "greater than 0"),
        ("run er --seed -1", "must be a number from 0 up"),
        ("run er --seeds 0", "at least 1"),
        ("run er --seed 1 --seeds 2", "one of the two"),
        ("run er --device gpu", "cuda"),
        ("run er --device cuda", "--device cpu"),
        ("run er --stream npz:", "after the colon"),
        ("run er --stream mnist", "everlearn data get mnist"),
        ("run er --out /proc/nope", "--out"),
        ("demo --seeds 0", "--seeds"),
        ("demo --out /dev/null/below", "--out"),
        ("again", "RECORD"),
        ("again nowhere", "there is no file or folder nowhere"),
        ("bench joint", "all tasks at once"),
        ("run er --set lr=1e300", "below 1e38"),
        ("run er --memory 1000000000000000000000", "below 2⁶³"),
        ("run lwf --set temperature=inf", "below 1e38"),
        ("run er --set network=resnet18 --set batch=1", "a batch of one is too small"),
        ("data get digts", "did you mean 'digits'"),
        ("data get npz:mine.npz", "nothing to get"),
        ("data check cifar11", "did you mean 'cifar10'"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence_with_the_way_out(words, expected):
    assert expected in answer(words)


def test_data_of_ones_own_that_are_not_there_are_named():
    assert f"no file {Path.cwd()}/missing.npz" in answer("run er --stream npz:missing.npz")
    assert f"no folder {Path.cwd()}/missing" in answer("run er --stream folder:missing")


def test_a_warm_up_without_an_end_is_pointed_out_once():
    note = "preset weights throughout"
    assert call(f"run rer {write_own()} {QUICK} --set warmup=9").stderr.count(note) == 1
    assert note not in call(f"run rer {write_own()} {QUICK}").stderr


def test_no_advice_loses_runs():
    assert call(f"run er {write_own()} {QUICK}").exit_code == 0
    Path("half.part").mkdir()
    Path("half.part", "experiment.json").touch()
    for folder, way_out in {"runs": "name one of a run", "half.part": "continues it"}.items():
        for command in ("explain", "again"):
            result = call(f"{command} {folder}")
            assert result.exit_code == 2 and way_out in result.stderr and "remove" not in result.stderr


def test_a_figure_that_differs_from_its_record_is_a_difference():
    assert call(f"run er {write_own()} {QUICK}").exit_code == 0
    (path,) = Path("runs").glob("*/result.json")
    document = json.loads(path.read_text())
    document["class_il"]["acc"] += 1
    path.write_text(json.dumps(document))
    assert "result.json is not what was written; remove the folder" in call(f"again {path.parent}").stderr
    result = call(f"again {path.parent} --accept-edited")
    assert result.exit_code == 1 and "came out otherwise" in result.stderr


def test_an_empty_part_of_a_label_chooses_nothing():
    result = CliRunner().invoke(cli.app, ["study", "digits", "--only", ""])
    assert result.exit_code == 2 and "a part of a row's label" in result.stderr


def test_a_file_in_the_place_of_the_folder_is_left_alone():
    Path("file").write_text("mine")
    for out in ("file", "file/below"):
        assert f"cannot write to the folder {out}" in answer(f"run er --out {out}")
    assert Path("file").read_text() == "mine"


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"y_train": np.array([0, 1, 3, 4] * 10)}, "without a gap"),
        ({"y_test": np.arange(40) % 8}, "the label 7, outside 0..3"),
    ],
)
def test_labels_of_ones_own_that_do_not_fit_are_named(changes, expected):
    assert expected in answer(f"run er {write_own(**changes)}")


def test_a_truncated_file_of_ones_own_is_named():
    assert call(f"run er {write_own()} {QUICK} --out elsewhere").exit_code == 0
    Path("cut.npz").write_bytes(Path("own.npz").read_bytes()[:-100])
    assert "cut.npz" in answer("run er --stream npz:cut.npz")


@pytest.mark.parametrize(
    "cut, high, expected", [(7, 10, "train-images"), (0, 12, "train-labels")], ids=("truncated", "label 11")
)
def test_a_damaged_data_set_is_named_by_run_and_by_check(cut, high, expected, monkeypatch):
    idx = lambda array: struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
    Path("data/mnist").mkdir(parents=True)
    for half in ("train", "t10k"):
        whole = idx(np.zeros((24, 8, 8), np.uint8))
        Path(f"data/mnist/{half}-images-idx3-ubyte").write_bytes(whole[: len(whole) - cut])
        Path(f"data/mnist/{half}-labels-idx1-ubyte").write_bytes(idx((np.arange(24) % high).astype(np.uint8)))
    assert "train-images-idx3-ubyte is not MNIST as published" in answer("run er --stream mnist")
    monkeypatch.setenv("EVERLEARN_UNVERIFIED", "1")
    notice, sentence = call("run er --stream mnist").stderr.splitlines()
    assert "is not MNIST as published" in notice and "its runs are kept apart" in notice
    assert expected in sentence and "everlearn data get mnist" in sentence
    checked = call("data check mnist")
    assert (
        checked.exit_code == 2 and "wrong checksum" in checked.stdout and "everlearn data get mnist" in checked.stderr
    )


def test_check_and_get_tell_what_is_there(monkeypatch):
    assert "scikit-learn" in call("data check digits").stdout and "scikit-learn" in call("data get digits").stdout
    missing = call("data check npz:missing.npz")
    assert missing.exit_code == 2 and "missing" in missing.stdout and "data get" not in missing.stderr
    monkeypatch.setattr("everlearn.data.download.get", lambda name, root, progress: progress(1, 2) or root / name)
    assert call("data get mnist --data there").stdout == "mnist: here and verified, in there/mnist\n"


# --- what goes wrong on the way ---


def test_a_loss_that_is_no_number_ends_the_run():
    sentence = answer(f"run er {QUICK} --set lr=1e30", code=1)
    assert "(first in step 2: new, memory)" in sentence and "a learning rate as large as 1e+30" in sentence


def test_a_failed_second_try_leaves_the_first(monkeypatch):
    first = document(f"run er {QUICK}")
    with monkeypatch.context() as patch:
        patch.setattr(store.Recording, "result", full)
        assert call(f"run er {QUICK} --fresh").exit_code == 1
    assert document(f"run er {QUICK}") == first and len(kept()) == 1


def full(*_) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("write", ("line", "result", "tensors"))
def test_a_full_disk_is_said_to_be_full(monkeypatch, write):
    monkeypatch.setattr(store.Recording, write, full)
    assert "free some space" in answer(f"run rer {QUICK} --set classes=0,1,2,3 --set tasks=2", code=1)


def test_a_memory_beyond_the_machine_is_said_to_be():
    assert "smaller --memory" in answer("run er --memory 99999999999999 --epochs 1", code=1)


def test_a_killed_worker_is_said_to_be(monkeypatch):
    def killed(*_):
        raise BrokenProcessPool

    monkeypatch.setattr(local, "cores", lambda: 2)
    monkeypatch.setattr(local.ProcessPoolExecutor, "submit", killed)
    assert "a worker process was killed" in answer(f"run er {QUICK} --seeds 2", code=1)


def test_a_run_is_given_up_when_its_own_worker_died_too_often_and_it_got_no_further(monkeypatch):
    deadly, long, *others = (Experiment.of("er", epochs=1, seed=seed) for seed in range(5))
    pools = 0

    def pool(todo, job, report, workers):
        """Each time a run ends, and then a worker dies: that of one run which is always at the same place, or, of
        another one that goes further each time, every second time."""
        nonlocal pools
        pools += 1
        report(long, {"event": "epoch", "task": 0, "epoch": pools})
        report(deadly, {"event": "epoch", "task": 0, "epoch": 3})
        yield from ((experiment, None) for experiment in todo if experiment in others[pools - 1 : pools])
        if pools < 11:
            raise local.Lost([deadly] if pools % 2 and deadly in todo else [long])
        yield long, None

    monkeypatch.setattr(local, "_pool", pool)
    outcomes = dict(local.spread([deadly, long, *others], launchers.Job(store.Store()), lambda *_: None, 2))
    assert pools == 11 and "worker process was killed" in str(outcomes.pop(deadly))
    assert outcomes == dict.fromkeys([long, *others])


def test_a_worker_that_dies_is_told_from_those_that_are_ended_for_it(monkeypatch, tmp_path):
    Path("deadly.py").write_text(DEADLY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    experiments = [Experiment.of("deadly.py:Deadly", epochs=40, memory=20, seed=seed) for seed in range(4)]
    outcomes = dict(local.spread(experiments, launchers.Job(store.Store()), lambda *_: None, 2))
    assert "worker process was killed" in str(outcomes.pop(experiments[1]))
    assert outcomes == dict.fromkeys([experiments[0], *experiments[2:]]), "and nobody else is blamed for it"


UNGUARDED = """
from everlearn import Experiment
from everlearn.experiments.store import Store
from everlearn.launchers import perform

perform([Experiment.of(seed=seed, epochs=1, memory=20) for seed in range(2)], Store("runs"), device="cpu", jobs=2)
"""


def test_a_script_that_its_workers_import_is_told_to_say_main():
    Path("script.py").write_text(UNGUARDED)
    ended = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=120)
    assert ended.returncode and "under `if __name__ == '__main__':`" in ended.stderr


DEADLY = """
import os, signal
from everlearn import ER

class Deadly(ER):
    def remember(self, step, terms):
        super().remember(step, terms)
        if self.learner.seed == 1 and self.learner.epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_two_workers_do_with_a_long_name_for_the_folder_of_passing_files(monkeypatch, tmp_path):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    asked = []
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: asked.append(kind) or [][0])
    with pytest.raises(IndexError):
        list(local._pool([Experiment.of("er")], launchers.Job(store.Store()), lambda *_: None, 2))
    assert asked == ["spawn"], "which needs no socket with a name"


def test_a_word_where_a_number_belongs_is_named():
    number = importlib.import_module("everlearn.cli.app")._number
    theirs = "Invalid value for '{}': Input should be a valid {}, unable to parse string as a number"
    for words, said in {
        "run er --seeds=x": "--seeds x is no whole number",
        "run er --seeds x": "--seeds x is no whole number",
        "run er --seeds 3 --seeds y": "--seeds y is no whole number",
        "run er --seeds=": "--seeds '' is no whole number",
        "run er": None,
    }.items():
        assert number(theirs.format("--seeds", "integer"), words.split()) == said
    assert number(theirs.format("--holdout", "number"), ["--holdout", "a b"]) == "--holdout a b is no number"
    assert number("No such option: --seedz", ["run", "--seedz", "x"]) is None


@pytest.mark.parametrize(
    "environment, words",
    [
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR, MASTER_PORT, LOCAL_RANK are not set; use torchrun"),
        ({"WORLD_SIZE": "two", "RANK": "0"}, "WORLD_SIZE is 'two', which is not a number of processes"),
    ],
)
def test_ranks_without_a_master_are_refused(monkeypatch, environment, words):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert words in answer(f"run er {QUICK}")


def test_of_runs_that_share_a_gpu_one_that_fails_does_not_stop_the_others():
    good, wrong = Experiment.of("er", epochs=1), Experiment.of("er", epochs=1, lr=1e30)
    outcomes = dict(local.pack_up([wrong, good], launchers.Job(store.Store()), lambda *_: None, pack=2))
    assert outcomes[good] is None and "finite" in str(outcomes[wrong])
    assert kept() == [good.name]


def test_runs_that_are_left_are_each_closed_on_their_own_stream_whatever_another_does(monkeypatch):
    within, closed = [], []

    class Stream(contextlib.AbstractContextManager):
        def __init__(self, number: int):
            self.number = number

        def __enter__(self):
            within.append(self.number)

        def __exit__(self, *_):
            within.pop()

    def steps(run: int, _):
        try:
            while run < 2:
                yield
            raise KeyboardInterrupt
        finally:
            closed.append((run, *within))
            if run == 1:
                raise OSError("no space left on device")

    given = iter(range(3))
    monkeypatch.setattr(local, "own_stream", lambda: Stream(next(given)))
    with pytest.raises(OSError):
        list(local.pack_up(range(3), SimpleNamespace(steps=steps), lambda *_: None, pack=3))
    assert sorted(closed) == [(0, 0), (1, 1), (2, 2)]


def test_a_mistake_in_the_code_is_not_taken_for_one_of_the_user(monkeypatch):
    ours = {"__name__": "everlearn.ours"}
    exec("def wrong(*_, **__):\n    raise RuntimeError('shapes differ')", ours)
    monkeypatch.setattr(launchers, "perform", ours["wrong"])
    assert answer("run er", code=1) == "everlearn: RuntimeError: shapes differ; --debug shows where\n"
    for words, variable in (("run er --debug", ""), ("run er", "1")):
        monkeypatch.setenv("EVERLEARN_DEBUG", variable)
        result = call(words)
        assert result.exit_code == 1 and result.stderr.startswith("Traceback") and "in wrong\n" in result.stderr


def test_where_ones_own_method_failed_is_said_by_every_command_that_teaches_it():
    Path("mine.py").write_text(
        "import everlearn\n\n\nclass Mine(everlearn.ER):\n    last: int = 1\n\n"
        "    def end_task(self, learner, task):\n        1 / (self.last - learner.tasks)\n"
    )
    said = "everlearn: ZeroDivisionError: division by zero (mine.py, line 8)\n"
    assert call("tune mine.py:Mine --epochs 1 --trials 1 --out tuned --quiet").stderr == said
    assert call("run mine.py:Mine --set tasks=1 --epochs 1 --quiet").exit_code == 0
    (run,) = Path("runs").iterdir()
    np.savez("new.npz", x=np.zeros((20, 1, 8, 8), np.uint8), y=np.array(["new"] * 20))
    assert call(f"teach {run} new.npz --quiet").stderr.endswith(said)


@contextlib.contextmanager
def started(words: str, **streams) -> Iterator[subprocess.Popen]:
    """The command as a group of processes, none of which outlives the test."""
    command, paths = [sys.executable, "-m", "everlearn", *words.split()], os.pathsep.join(sys.path)
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=interruptible,
        env=os.environ | {"PYTHONPATH": paths},
        **streams,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def learning(process: subprocess.Popen, runs: int) -> None:
    """Wait until so many runs are under way."""
    while process.poll() is None and sum(
        os.path.getsize(path) > 0 for path in glob.glob("runs/*.part/metrics.jsonl")
    ) < min(runs, CORES):
        time.sleep(0.05)


@pytest.mark.parametrize("words, runs", [("", 1), ("--seeds 4", 2)], ids=("one run", "workers"))
def test_ctrl_c_is_one_sentence_and_leaves_what_it_takes_to_go_on(words, runs):
    with started(f"run er {write_own()} --epochs 100000 {words}", stdout=subprocess.PIPE) as process:
        learning(process, runs)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all processes at once
        stdout, stderr = process.communicate(timeout=20)  # ends when the last worker has let go of its stderr
    assert (process.returncode, stdout) == (130, "")
    assert stderr.startswith("everlearn: stopped") and stderr.count("\n") == 1
    assert len(kept()) == min(runs, CORES) and all(Path("runs", name, "checkpoint").exists() for name in kept())


def test_ctrl_c_while_it_imports_is_one_sentence_too():
    """From the first line of ours on; before it there is Python alone."""
    words = "from everlearn import cli; cli.hasty(True); print(flush=True); cli.main()"
    command = [sys.executable, "-c", words, "run", "er", *QUICK.split(), "--seeds", "2"]
    own = dict(env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, preexec_fn=interruptible)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    started = [subprocess.Popen(command, **pipes, **own) for _ in range(4)]
    for process, pause in zip(started, (0, 0.2, 0.4, 0.8)):
        process.stdout.readline()
        time.sleep(pause)
        os.killpg(process.pid, signal.SIGINT)
    for process in started:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 130 and re.fullmatch(r"everlearn: stopped.*\n", stderr), stderr


TOLD = """# It says when it begins to start workers.
import sys

from everlearn import cli
from everlearn.launchers import local

if __name__ == "__main__":
    pool, local.cores = local._pool, lambda: 2

    def telling(*of):
        print(file=sys.__stdout__, flush=True)
        yield from pool(*of)

    local._pool = telling
    cli.main()
"""


@pytest.mark.parametrize(("ended", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_it_is_one_sentence_even_while_workers_are_started(ended, code):
    """Sent to the command alone, which ends its workers."""
    Path("told.py").write_text(TOLD)
    words = ["run", "er", *QUICK.split(), "--epochs", "100000", "--seeds", "2"]
    command = [sys.executable, "told.py", *words]
    own = dict(env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, preexec_fn=interruptible)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    pauses = (0.05, 0.5, 1.0)
    started = [subprocess.Popen([*command, "--out", str(pause)], **pipes, **own) for pause in pauses]
    for process, pause in zip(started, pauses):
        process.stdout.readline()
        time.sleep(pause)
        process.send_signal(ended)
    for process in started:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == code and re.fullmatch(r"everlearn: stopped.*\n", stderr), stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_a_terminal_has_no_letter_for_is_replaced(monkeypatch, encoding):
    """± in a table, … in a sentence, a name of a class."""
    short = dict(epochs=1, memory=20, classes=["0", "1", "2", "3"], tasks=2)
    everlearn.run("rer", out="runs", **short)
    Path("mine.toml").write_text('# ± …\nseeds = 2\n[[grid]]\nmethod = ["er"]\nepochs = 1\nmemory = 20\n', "utf-8")
    commands = "--help|methods|weightings relation|streams|data --help|compare runs|explain runs/*"
    for words in (*commands.split("|"), "study mine.toml -q", "run er --stream Größe…"):
        stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        given = [part for word in words.split() for part in (glob.glob(word) if "*" in word else [word])]
        monkeypatch.setattr(sys, "argv", ["everlearn", *given])
        with pytest.raises(SystemExit) as end:
            cli.main()
        stdout.flush()
        stderr.flush()
        said = stderr.buffer.getvalue().decode(encoding)
        assert (end.value.code or 0) == (2 if "Größe" in words else 0) and "codec" not in said, words


@pytest.mark.slow
def test_workers_do_not_outlive_a_parent_that_is_killed():
    with started(f"run er {write_own()} --epochs 100000 --seeds 4") as process:
        learning(process, 2)
        process.kill()
        process.communicate(timeout=20)
    assert all(Path("runs", name, "checkpoint").exists() for name in kept())


def test_a_reader_that_leaves_early_is_no_error_to_talk_about():
    reader, writer = os.pipe()
    os.close(reader)
    with started("methods", stdout=writer) as process:
        os.close(writer)
        assert process.communicate(timeout=20)[1] == ""
