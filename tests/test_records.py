"""What a record says of a run is true: which code made it, of what, and whether it comes out the same again."""

import json
import os
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli import QUICK, answer, call, document, folder, kept  # noqa: F401 (folder: each test in one of its own)

import everlearn
from everlearn import Experiment, Fixed, Relation, metrics
from everlearn.collection import collect
from everlearn.collection import rows as rows_of
from everlearn.experiments import provenance, studies
from everlearn.experiments import run as runs
from everlearn.experiments.seals import sealed
from everlearn.experiments.store import Store
from everlearn.report import tables


def by(monkeypatch, commit: str | None) -> None:
    monkeypatch.delenv("EVERLEARN_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "_commit", lambda: commit)


# Which code made it --------------------------------------------------------------------------------------------------
def test_again_repeats_what_another_state_of_the_code_repeated_before(monkeypatch):
    assert call(f"run er {QUICK}").exit_code == 0
    (name,) = kept()
    record = lambda: json.loads(Path("again", name, "result.json").read_text())["provenance"]
    by(monkeypatch, "one")
    told = call(f"again runs/{name}")
    assert told.exit_code == 0 and "already run" not in told.stderr and record()["commit"] == "one"
    assert "already run" in call(f"again runs/{name}").stderr
    for commit in ("two", None, "two+"):
        by(monkeypatch, commit)
        assert "already run" not in call(f"again runs/{name}").stderr and record()["commit"] == commit
    assert "already run" not in call(f"again runs/{name}").stderr, "a changed tree is like no other"
    Path("again", name, "result.json").write_text("{")
    assert call(f"again runs/{name}").exit_code == 2 and call(f"again runs/{name} --fresh").exit_code == 0


def test_again_repeats_every_seed_of_a_document_and_says_what_it_needs_of_another():
    Path("two.json").write_text(call(f"run er {QUICK} --seeds 2 --json -q").stdout)
    told = call("again two.json -q")
    assert told.exit_code == 0 and told.stdout.count("50 of 50") == 2
    told = document("again two.json --dry-run")
    assert [one["seed"] for one in told.values()] == [0, 1]
    for other in ('{"runs": [{}]}', '{"runs": []}', "{}"):
        Path("other.json").write_text(other)
        told = call("again other.json")
        assert told.exit_code == 2 and "give a run's folder, or what `run --json` printed" in told.stderr


def test_the_commit_of_a_source_tree_is_found():
    """The tests run from one; an archive of it has no history."""
    git = lambda *words: subprocess.run(["git", "-C", Path(__file__).parent, *words], capture_output=True, text=True)
    if (head := git("rev-parse", "HEAD")).returncode:
        pytest.skip("no git repository")
    assert provenance._commit().rstrip("+") == head.stdout.strip()


def test_the_commit_is_that_of_the_code_a_run_started_with(monkeypatch):
    by(monkeypatch, "early")
    result = everlearn.run("er", epochs=1, report=lambda record: by(monkeypatch, "late"))
    assert result["provenance"]["commit"] == "early"


def test_a_run_that_other_code_began_says_so(monkeypatch):
    class Killed(BaseException): ...

    def stop(record):
        raise Killed

    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")
    experiment, store = Experiment.of("er", epochs=2, memory=20), Store("runs")
    perform = lambda report=None: runs.finish(runs.recorded(experiment, store, "cpu", report=report))
    by(monkeypatch, "first")
    seen = []
    with pytest.raises(Killed):
        perform(report=lambda record: seen.append(1) or (len(seen) > 2 and stop(0)))  # the start, then two epochs
    by(monkeypatch, "second")
    made = perform()["provenance"]
    assert (made["commit"], made["commits"], made["resumed"]) == ("second", ["first", "second"], 1)
    assert provenance.merged([made])["commit"] == ["first", "second"] and not provenance.same(made, made)


def test_a_study_of_runs_by_several_commits_names_them_all(monkeypatch):
    Path("mine.toml").write_text('seeds = 1\n[[grid]]\nmethod = ["finetune", "er"]\nepochs = 1\n')
    for commit, only in (("one", " --only finetune"), ("two", "")):
        by(monkeypatch, commit)
        made = document(f"study mine.toml{only}")["provenance"]
        assert made["commit"] == ("one" if only else ["one", "two"])
        assert made["versions"] == provenance.here("cpu")["versions"] and "settings" not in made
    assert "Of 2 commits: one, two." in call("study mine.toml").stdout


# Of what -------------------------------------------------------------------------------------------------------------
class Mine(everlearn.ER):
    """A method of one's own."""


def test_methods_of_ones_own_with_other_weightings_are_other_experiments():
    made = [everlearn.run(Mine(w), epochs=1) for w in (None, Fixed((1, 3)), Fixed((1, 2)), Relation(warmup=1))]
    assert len({result["provenance"]["settings"] for result in made}) == 4
    assert [made[1]["experiment"][kind]["name"] for kind in ("method", "weighting")] == ["test_records:Mine", "fixed"]
    assert made[1]["experiment"]["weighting"]["options"] == {"weights": [1.0, 3.0]}
    assert provenance.described(Fixed(torch.tensor([1.0, 3.0]))) == "Fixed(weights=(1.0, 3.0))"
    mine = Mine()
    mine.plan = {1: np.float64(0.5)}
    assert provenance.described(mine) == "Mine(plan={1: 0.5})"


def test_what_has_a_place_in_a_file_can_be_run_again_and_what_has_none_cannot():
    class Here(everlearn.ER):
        """Made inside a function."""

    class Halved(Fixed):
        """The same."""

    made = [everlearn.run(Here(w), epochs=1) for w in (None, Fixed((1, 3)), Fixed((1, 2)), Relation(warmup=1))]
    assert len({result["provenance"]["settings"] for result in made}) == 4
    told = {"method": "Here()", "weighting": "Fixed(weights=(1, 3))"}
    assert {kind: made[1]["experiment"][kind]["options"]["object"] for kind in told} == told
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    of_network = everlearn.run("er", epochs=1, network=network)
    of_weighting = everlearn.run(everlearn.ER(Halved()), epochs=1)
    for result in (made[0], of_network, of_weighting):
        Path("mine.json").write_text(json.dumps(result))
        assert "only the script that made it can run it again" in answer("again mine.json")
    Path("mine.json").write_text(json.dumps(everlearn.run(Mine(), epochs=1)))
    assert "50 of 50" in call("again mine.json").stdout


def test_an_object_is_weighed_by_what_is_given_beside_it():
    class Here(everlearn.ER):
        """Made inside a function."""

    chosen = dict(epochs=2, memory=20, classes=[0, 1, 2, 3], tasks=2)
    rer = everlearn.run("er", weighting="relation", weights=(1, 0.5), **chosen)["class_il"]
    for weighting in ("relation", Relation, Relation(), {"name": "relation", "weights": [1, 0.5]}):
        mine = Here()
        assert everlearn.run(mine, weighting=weighting, **chosen)["class_il"] == rer
        assert type(mine.weighting) is Fixed, "the object is left as it was"


def test_an_experiment_read_from_a_record_is_run_as_it_is():
    first = everlearn.run("rer", epochs=2, memory=20, seed=3, warmup=1)
    experiment = Experiment.read(json.loads(json.dumps(first["experiment"])))
    assert everlearn.run(experiment)["class_il"] == first["class_il"]
    with pytest.raises(everlearn.BadInput, match="has all its settings"):
        everlearn.run(experiment, epochs=3)


def test_a_result_in_the_place_of_another_is_refused():
    for memory in (20, 50):
        assert call(f"run er --epochs 1 --memory {memory}").exit_code == 0
    fifty, twenty = (Path("runs", name, "result.json") for name in sorted(kept(), key=lambda name: "-m20-" in name))
    for content, words in (
        (fifty.read_text(), "is not what was written"),
        (json.dumps(sealed(json.loads(fifty.read_text()))), "the result of another experiment"),
        *((wrong, "not the record of a run") for wrong in ("null", "{}", "[]", "3", '{"class_il": 3}')),
        ("{", "is incomplete"),
    ):
        twenty.write_text(content)
        told = call(f"run er {QUICK}")
        assert told.exit_code == 2 and words in told.stderr
        assert "remove the folder or " in told.stderr and "--fresh" in told.stderr
        assert told.stderr.splitlines()[-1].startswith("everlearn: ")
    assert call(f"run er {QUICK} --fresh").exit_code == 0


def test_a_damaged_run_is_one_failed_run_of_a_study():
    Path("mine.toml").write_text('seeds = 2\n[[grid]]\nmethod = ["finetune", "er"]\nepochs = 1\n')
    assert call("study mine.toml").exit_code == 0
    (Path("runs") / next(name for name in kept() if "-er-" in name) / "result.json").write_text("{")
    assert call("study mine.toml --dry-run").exit_code == 0
    told = call("study mine.toml")
    assert told.exit_code == 1 and "is incomplete" in told.stderr and "1 of 4 runs failed\n" in told.stderr
    assert re.search(r"finetune +2 ", told.stdout) and re.search(r"er +1 ", told.stdout)


def test_one_run_has_no_standard_deviation():
    one = document(f"run er {QUICK} --seeds 1")["summary"]["class_il"]["acc"]
    assert one["std"] is None and tables.cell(one) == f"{one['mean']:.2f}"


def test_what_rounds_to_0_has_no_sign():
    cells = [tables.cell({"mean": mean, "std": std}) for mean, std in ((-0.004, None), (-0.0, 0.3), (-0.006, None))]
    assert cells == ["0.00", "0.00 ± 0.30", "-0.01"] and tables.cell({"mean": -0.04, "std": None}, digits=1) == "0.0"


# The same again ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["er", "rer"])
def test_runs_in_threads_are_the_runs_they_are_alone(name):
    alone = lambda seed: everlearn.run(name, network="cnn", epochs=1, memory=20, seed=seed, classes=[0, 1, 2, 3])
    expected = [alone(seed)["class_il"] for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert [result["class_il"] for result in pool.map(alone, range(4))] == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_forked_while_a_thread_has_a_run_has_runs_of_its_own():
    started, go_on = threading.Event(), threading.Event()
    wait = lambda record: started.set() or go_on.wait(60)
    busy = threading.Thread(target=lambda: everlearn.run("er", epochs=1, report=wait))
    busy.start()
    assert started.wait(60)
    if not (child := os.fork()):
        with runs._turn:
            os._exit(7)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    go_on.set()
    busy.join()
    assert ended == 7


# What a table does not show, its notes say ----------------------------------------------------------------------------
def test_what_differs_between_rows_and_is_not_in_their_labels_is_noted():
    Path("mine.toml").write_text(
        'seeds = 1\n[[grid]]\nmethod = ["er", "finetune"]\nmemory = 20\nepochs = 1\n'
        '[[grid]]\nmethod = "rer"\nmemory = [50, 100]\nepochs = 2\nnetwork = "cnn"\n'
    )
    study = studies.study("mine.toml")
    made = {"provenance": provenance.here("cpu") | {"finished": provenance.now()}}
    documents = {label: [made | {"experiment": e.document()} for e in row] for label, row in study.rows.items()}
    notes = list(tables.study_notes(study, documents))
    assert "Not in all rows: network mlp, but cnn in rer, M = 50; rer, M = 100." in notes
    assert "Not in all rows: epochs 1, but 2 in rer, M = 50; rer, M = 100." in notes
    assert "Not in all rows: memory 20 in er." in notes, "finetune has none, and the other two say it in their labels"
    assert "tasks 5" in notes[1] and "memory" not in notes[1] and "classes" not in notes[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("er+consolidate", "there is no warm-up"),
        ("rer --set relation_from_task=9", "a task that does not come"),
        ("rer --set warmup=1", "the warm-up lasts for all epochs"),
    ],
)
def test_a_schedule_under_which_a_method_is_not_itself_is_noted(words, told):
    assert told in call(f"run {words} --epochs 1 --memory 20").stderr


# What cannot be -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ('method = ["er", "er"]', "method names er twice"),
        ('method = "er"\nlr = [0.1, "0.1"]', "lr names 0.1 twice"),
        ('method = "er"\nweights = [[1, 2], [1, 2]]', "weights names [1, 2] twice"),
        ('method = "er"\nmomentum = 1.5', "momentum 1.5 must be a number below 1"),
    ],
)
def test_a_study_that_cannot_be_is_refused(grid, words):
    Path("mine.toml").write_text(f"[[grid]]\n{grid}\n")
    assert words in answer("study mine.toml")


def test_a_studys_file_is_told_how_to_end():
    Path("mine.txt").write_text("")
    assert "does not end in .toml" in answer("study mine.txt")


def test_mistakes_in_a_method_of_ones_own_are_said_in_a_sentence():
    class Greedy(everlearn.FineTune):
        def rehearse(self, memory):
            return []

    class Bare(everlearn.ER):
        def __init__(self):
            self.mine = 1

    class Rows(everlearn.Weighting):
        def loss(self, method, step, terms):
            return terms.losses.sum(dim=1)

    for method, words in (
        (Greedy(), "Greedy.rehearse should take 0 batches"),
        (Bare(), "Bare has no weighting"),
        (everlearn.ER(Rows()), "it must be one number"),
    ):
        with pytest.raises(everlearn.BadInput, match=re.escape(words)):
            everlearn.run(method, epochs=1)


# What a row gains -----------------------------------------------------------------------------------------------------
def test_a_gain_is_a_mean_of_differences_on_the_same_seeds_with_its_95_percent_interval():
    runs = lambda *accs: [{"class_il": {"acc": acc}, "seed": seed} for seed, acc in enumerate(accs)]
    gain = metrics.gain(runs(52.0, 61.0, 57.0, 99.0), runs(50.0, 60.0, 60.0), lambda run: run["seed"])
    # differences 2, 1, −3: mean 0, standard deviation √7; t of 2 degrees of freedom at 97.5 % is 4.302653
    assert gain["mean"] == 0 and (gain["ahead"], gain["seeds"]) == (2, 3)
    assert gain["half_width"] == pytest.approx(4.302653 * 7**0.5 / 3**0.5, abs=1e-5)
    assert metrics.gain(runs(1.0), runs(2.0), lambda run: run["seed"])["half_width"] is None
    assert metrics.gain(runs(1.0), [], lambda run: run["seed"]) is None


def test_a_study_says_what_its_rows_gain_on_one_of_them():
    Path("mine.toml").write_text(
        'seeds = 2\n[[grid]]\nmethod = ["er", "rer", "finetune"]\nmemory = [20, 50]\nepochs = 1\n'
    )
    rows = document("study mine.toml --against er")["rows"]
    acc = lambda label, seed: rows[label]["runs"][seed]["class_il"]["acc"]
    gain = rows["rer, M = 50"]["gain"]
    assert gain["on"] == "er, M = 50" and gain["seeds"] == 2
    assert gain["mean"] == pytest.approx(sum(acc("rer, M = 50", s) - acc("er, M = 50", s) for s in (0, 1)) / 2)
    assert "gain" not in rows["er, M = 20"] and "gain" not in rows["finetune"]
    bases = lambda against: rows_of.bases(rows_of.planned(studies.study("mine.toml")), against)
    assert {"er, M = 20", "rer, M = 50"} <= bases("finetune").keys()
    told = call("study mine.toml --against finetune")
    assert "of 2" in told.stdout and "95 %" in told.stdout
    assert "can be compared with 'icarl'" in call("study mine.toml --against icarl").stderr
    assert bases("er, M = 20")["er, M = 50"].label == "er, M = 20"


def test_a_study_that_can_set_nothing_against_a_method_of_several_rows_asks_for_one_of_them():
    Path("mine.toml").write_text('[[grid]]\nmethod = ["er", "finetune", "joint"]\nmemory = [20, 50]\n')
    refused = call("study mine.toml --against er --dry-run")
    assert refused.exit_code == 2 and "'er' is of several rows; choose: er, M = 20; er, M = 50" in refused.stderr


def test_a_study_and_its_record_set_the_same_rows_against_each_other():
    planned = rows_of.planned(studies.study("relation-digits"))
    found = collect([Path(__file__).parents[1] / "results" / "relation-digits.json"]).rows
    for against in ("er", "rer", "rer fresh", "der++, M = 50"):
        first, second = (rows_of.bases(rows, against) for rows in (planned, found))
        assert {label: on.label for label, on in first.items()} == {label: on.label for label, on in second.items()}
        assert first["er+split, M = 50"].label == (against if "M" in against else f"{against}, M = 50")


def test_a_studys_record_is_answered_with_the_study(tmp_path):
    from everlearn.experiments.results import read_result

    (tmp_path / "digits.json").write_text(json.dumps({"study": "digits", "rows": {}}))
    with pytest.raises(
        everlearn.BadInput, match="the record of a study, of many runs; `everlearn study digits` runs them"
    ):
        read_result(tmp_path / "digits.json")
