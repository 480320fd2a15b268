"""Tuning: what is held out, which trials there are, what becomes of a search that is killed, and what is refused."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import toy
from typer.testing import CliRunner, Result

from everlearn.cli import app as cli
from everlearn.errors import BadInput, EverlearnError
from everlearn.experiments import run as runs
from everlearn.experiments import tune
from everlearn.experiments.experiment import Experiment, load
from everlearn.experiments.locks import alone
from everlearn.experiments.store import Store
from everlearn.launchers import local

optuna = pytest.importorskip("optuna")

SMALL = dict(memory=20, epochs=1, batch=40, classes=("0", "1", "2", "3"), tasks=2)
WORDS = "--memory 20 --epochs 1 --set batch=40 --set classes=0,1,2,3 --set tasks=2"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Every test in a folder of its own, on one core and no GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(local, "cores", lambda: 1)
    return tmp_path


def call(words: str) -> Result:
    return CliRunner().invoke(cli.app, words.split(), prog_name="everlearn")


def small(method: str = "er", seeds: int = 1) -> list[Experiment]:
    return [Experiment.of(method, seed=seed, **SMALL) for seed in range(seeds)]


def states(out: str = "runs") -> list[str]:
    """Of all trials in the folder's one file, in order."""
    (path,) = Path(out).glob("*.sqlite")
    with sqlite3.connect(path) as file:
        return [state for (state,) in file.execute("SELECT state FROM trials ORDER BY number")]


def figures(found: dict) -> list[tuple]:
    return [(trial["weights"], trial["acc"], trial["tasks"]) for trial in found["trials"]]


def forbidden(*_, **__):
    raise AssertionError


# --- what is held out ---


def test_a_tenth_of_each_class_is_held_out_and_no_image_is_in_both_parts(digits):
    rows = lambda x, y: sorted(zip(map(bytes, x.numpy()), y.tolist()))
    for whole, task in zip(digits, tune.held_out(digits)):
        assert task.classes == whole.classes
        assert rows(*whole.train) == sorted(rows(*task.train) + rows(*task.test))
        for label in whole.classes:
            count = int((whole.train[1] == label).sum())
            assert int((task.test[1] == label).sum()) == round(count / 10) > 10


def test_what_is_held_out_depends_on_the_seed_alone(digits):
    held = lambda *given: torch.cat([task.test[0] for task in tune.held_out(digits, *given)])
    assert torch.equal(held(0.1, 3), held(0.1, 3)) and not torch.equal(held(0.1, 3), held(0.1, 4))
    assert len(held(0.5)) > 4 * len(held(0.1))


def test_the_test_images_are_never_looked_at(monkeypatch):
    stream = toy(each=40)
    blind = replace(stream, tasks=tuple(replace(task, test=None) for task in stream))
    monkeypatch.setattr(tune, "load", lambda *_: blind)
    experiment = Experiment.of("er", memory=20, epochs=1, network="mlp")
    assert len(tune.search([experiment], Store(), 2)["trials"]) == 2


def test_a_class_too_small_to_be_divided_is_named():
    with pytest.raises(BadInput, match="holding out 1 of the 1 training images of class 'class 0' leaves none"):
        tune.held_out(toy(each=2))


# --- the trials ---


def test_the_best_weights_are_those_of_the_best_trial():
    lines = []
    found = tune.search(small("der++", seeds=2), Store(), 4, tell=lines.append)
    first, best = found["trials"][0], found["best"]
    assert first["weights"] == (1, 0.2, 0.5) and first["tasks"] == 4, "the default ones, two tasks of two seeds"
    assert best in found["trials"] and best["acc"] == max(t["acc"] for t in found["trials"] if t["acc"] is not None)
    assert all(t["weights"][0] == 1 and all(0.05 <= w <= 5 for w in t["weights"][1:]) for t in found["trials"])
    assert len({t["weights"] for t in found["trials"]}) == len(lines) == 4
    assert found["seconds"] == pytest.approx(sum(t["seconds"] for t in found["trials"]))


def test_a_trials_value_is_the_accuracy_on_the_images_held_out_over_the_seeds():
    experiments = small(seeds=2)
    stream = tune.held_out(load(experiments[0].stream))
    accs = [runs.finish(runs.Run(e, stream, "cpu").steps(lambda _: None, lambda *_: None)) for e in experiments]
    assert tune.search(experiments, Store(), 1)["best"]["acc"] == np.mean([d["class_il"]["acc"] for d in accs])


KILLED = """
import os, signal
from conftest import toy
from everlearn.experiments import tune
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Store

hopeless, asked = tune._hopeless, []
def killed(*given):
    asked.append(given)
    if len(asked) == 3:  # after the first task of the third trial
        os.kill(os.getpid(), signal.SIGKILL)
    return hopeless(*given)

tune._hopeless, tune.load = killed, lambda *_: toy(each=40)
tune.search([Experiment.of("er", memory=20, epochs=1)], Store(), 6)
"""


def test_a_search_that_was_killed_goes_on_to_the_trials_of_one_that_was_not(monkeypatch):
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    assert subprocess.run([sys.executable, "-c", KILLED], env=os.environ | paths).returncode == -signal.SIGKILL
    assert states() == ["COMPLETE", "COMPLETE", "RUNNING"]
    monkeypatch.setattr(tune, "load", lambda *_: toy(each=40))
    experiments = [Experiment.of("er", memory=20, epochs=1)]
    resumed = tune.search(experiments, Store(), 6)
    finished = [state for state in states() if state != "FAIL"]
    assert len(states()) == 7 and states()[2] == "FAIL" and set(finished) <= {"COMPLETE", "PRUNED"}
    assert len({trial["weights"] for trial in resumed["trials"]}) == len(finished) == 6
    assert figures(resumed) == figures(tune.search(experiments, Store("whole"), 6))
    monkeypatch.setattr(tune, "_validate", forbidden)
    assert tune.search(experiments, Store(), 6) == resumed, "nothing is run where all are there"
    assert tune.search(experiments, Store(), 2)["trials"] == resumed["trials"][:2]


def test_more_trials_go_on_and_fresh_begins_again():
    two = tune.search(small(), Store(), 2)
    four = tune.search(small(), Store(), 4)
    assert figures(four)[:2] == figures(two) and four["trials"][:2] == two["trials"]
    assert figures(tune.search(small(), Store(), 3, fresh=True)) == figures(four)[:3] and len(states()) == 3


def test_other_settings_are_other_trials():
    names = {tune.file_of(e, h) for e in (small(), small("er-ace"), small(seeds=2)) for h in (0.1, 0.2)}
    assert len(names) == 6 and tune.file_of(small()).startswith("tune-digits-er-m20-e1-s0-")


def test_one_process_at_a_time():
    tune.search(small(), Store(), 1)
    with (
        alone(Path("runs", f".{tune.file_of(small())}.lock"), "is here"),
        pytest.raises(BadInput, match="another process"),
    ):
        tune.search(small(), Store(), 2)


# --- what is cut short ---


def study_of(*values: float) -> optuna.Study:
    study = optuna.create_study(direction="maximize")
    for value in values:
        study.add_trial(optuna.trial.create_trial(value=value, intermediate_values={1: value}))
    return study


def test_hopeless_is_below_the_median_by_more_than_chance():
    trial = study_of(60, 70, 80, 90, 95).ask()  # two standard errors of 70 % on 100 images: 9.2
    assert tune._hopeless(trial, 70, 1, 100) and not tune._hopeless(trial, 72, 1, 100)
    assert not tune._hopeless(trial, 70, 1, 80), "fewer images, more chance"
    assert not tune._hopeless(trial, 10, 2, 100), "nothing to compare with"
    assert not tune._hopeless(study_of(80, 80, 80, 80).ask(), 10, 1, 100), "too little"


def test_a_pruned_trial_is_finished_and_never_the_best(monkeypatch):
    monkeypatch.setattr(tune, "_hopeless", lambda trial, *_: trial.number == 1)
    found = tune.search(small(), Store(), 3)
    assert states() == ["COMPLETE", "PRUNED", "COMPLETE"] and found["pruned"] == 1
    assert figures(found)[1][1:] == (None, 1) and found["best"]["acc"] is not None


def test_weights_with_which_the_loss_is_no_number_are_out_and_the_search_goes_on(monkeypatch):
    finish, calls = tune.finish, []

    def fails_once(steps):
        calls.append(steps)
        if len(calls) == 2:
            raise EverlearnError("the loss is no longer a finite number")
        return finish(steps)

    monkeypatch.setattr(tune, "finish", fails_once)
    assert tune.search(small(), Store(), 3)["pruned"] == 1
    assert states() == ["COMPLETE", "PRUNED", "COMPLETE"]


# --- the command ---


@pytest.mark.parametrize("method, relational", [("der++", "rder"), ("der", "der+relation"), ("lwf", None)])
def test_it_compares_tuned_default_and_learned_weights_on_the_test_images(method, relational):
    result = call(f"tune {method} {WORDS} --trials 2 --seeds 2 --json")
    it = json.loads(result.stdout)
    rows = [f"{method}, tuned weights", f"{method}, default weights", *([relational] if relational else [])]
    assert list(it["rows"]) == rows and result.stderr.count("trial ") == 2
    tuned, default = (it["rows"][row]["experiment"]["weighting"]["options"]["weights"] for row in rows[:2])
    assert tuned == it["search"]["best"]["weights"] and default == it["search"]["trials"][0]["weights"]
    for row in it["rows"].values():
        assert [run["seed"] for run in row["runs"]] == [0, 1] and all(run["seconds"] > 0 for run in row["runs"])
    shown = call(f"tune {method} {WORDS} --trials 2 --seeds 2 --quiet")
    assert shown.stderr == "" and f"{it['search']['best']['acc']:.2f}" in shown.stdout
    for row in it["rows"].values():
        assert f"{row['summary']['class_il']['acc']['mean']:.2f}" in shown.stdout


def test_where_the_learned_weights_fail_what_was_found_is_shown(tmp_path):
    (tmp_path / "picky.py").write_text(
        "from everlearn import ER, Fixed\n\nclass Picky(ER):\n    def learn(self, new):\n"
        "        assert isinstance(self.weighting, Fixed)\n        return super().learn(new)\n"
    )
    words = f"tune {tmp_path / 'picky.py'}:Picky {WORDS} --trials 2 --quiet"
    shown = call(words)
    assert shown.exit_code == 1
    assert "Picky, tuned weights" in shown.stdout and "Picky, default weights" in shown.stdout
    assert "Picky+relation-m20-e1-s0-" in shown.stderr and "1 of 3 runs failed" in shown.stderr
    it = json.loads(call(f"{words} --json").stdout)
    assert list(it["rows"]) == ["Picky, tuned weights", "Picky, default weights"] and len(it["failed"]) == 1


def test_what_rehearses_has_its_relational_version():
    methods = ("er", "er-ace", "der++", "gss", "lwf")
    relations = {method: list(tune.rivals([{"method": method}]))[1:] for method in methods}
    rehearsing = {"er": ["rer"], "er-ace": ["rer-ace"], "der++": ["rder"], "gss": ["gss+relation"]}
    assert relations == rehearsing | {"lwf": []}, "one that rehearses nothing has nothing to relate"


def test_where_the_default_weights_are_best_they_are_run_once():
    it = json.loads(call(f"tune lwf {WORDS} --trials 1 --json").stdout)
    tuned, default = it["rows"].values()
    assert tuned == default and len(list(Path("runs").glob("*/result.json"))) == 1


@pytest.mark.parametrize(
    "words, expected, code",
    [
        ("rer", "rer weighs its loss terms by relation; tune er,", 2),
        ("er-ace+consolidate", "consolidate; tune er-ace,", 2),
        ("finetune", "one loss term, so no weights to tune; methods with several: lwf, gss, er, er-ace, der, der++", 2),
        ("icarl", "one loss term", 2),
        ("eer", "did you mean 'er'", 2),
        ("er --trails 3", "--trials", 2),
        ("er --trials 0", "--trials", 2),
        ("er --set weights=1,1", "leave out --set weights", 2),
        ("er --seed 1 --seeds 2", "one of the two", 2),
        ("er --holdout 0", "between 0 and 1", 2),
        ("er --holdout 0.999", "leaves none", 2),
        ("er --stream mnist --data nowhere", "everlearn data get mnist", 2),
        ("er --out /dev/null/below", "--out", 2),
        ("er --device cuda", "--device cpu", 2),
        ("er --set precision=bfloat16", "precision bfloat16 is for a GPU", 2),
        (f"er {WORDS} --set lr=1e30 --trials 2 --quiet", "--set lr=1e+29", 1),
    ],
)
def test_what_cannot_be_is_answered_in_one_sentence(words, expected, code):
    result = call(f"tune {words}")
    assert result.exit_code == code and isinstance(result.exception, SystemExit), result.output
    assert result.stderr.startswith("everlearn: ") and result.stderr.count("\n") == 1 and expected in result.stderr
    assert result.stdout == ""


def test_a_damaged_file_of_trials_is_named():
    Path("runs").mkdir()
    Path("runs", tune.file_of(small())).write_text("no database, " * 100)
    result = call(f"tune er {WORDS} --trials 1")
    assert result.exit_code == 1 and result.stderr.count("\n") == 1
    assert tune.file_of(small()) in result.stderr and "remove it" in result.stderr


def test_a_flipped_byte_in_the_file_of_trials_is_one_sentence_or_nothing(tmp_path):
    path = tmp_path / "trials.db"
    study = tune._open(path, False)
    study.enqueue_trial({"memory": 0.5})
    study.tell(study.ask({"memory": optuna.distributions.FloatDistribution(0.1, 1.0)}), 50.0)
    whole, said = path.read_bytes(), []
    for at in range(0, len(whole), len(whole) // 24):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with contextlib.suppress(EverlearnError), tune._in_words(path):
            try:
                tune._open(path, False)
            except EverlearnError as error:
                said.append(str(error))
    assert said and all("remove it to begin again" in sentence for sentence in said)


def test_without_optuna_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = call(f"tune er {WORDS}")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "pip install 'everlearn[tune]'" in result.stderr and not Path("runs").exists()


@pytest.mark.parametrize("weights, told", [((0.25, 1.0), False), ((1.0, 0.0), True), ((1.0, 20.0), True)])
def test_the_new_samples_weight_stays_and_a_default_outside_the_range_is_said(tmp_path, weights, told):
    words: list[str] = []
    found = tune.search([Experiment.of("er", weights=weights, **SMALL)], Store(tmp_path), 1, tell=words.append)
    (tried,) = (trial["weights"] for trial in found["trials"])
    assert tried[0] == weights[0] and (tuple(tried) == weights) != told
    assert any("the default weights lie outside 0.05 to 5 and are no trial" in line for line in words) == told
