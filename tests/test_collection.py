"""Many runs read as one collection: rows, histories, repetitions, what is no run, and the index beside them."""

import json
import os
import random
import shutil
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

import everlearn
from everlearn import BadInput, Experiment
from everlearn.collection import collect, documents, folders, index, rows
from everlearn.experiments import records, seals
from everlearn.experiments.published import published
from everlearn.experiments.results import read_lines
from everlearn.experiments.store import Store
from everlearn.experiments.studies import Study
from everlearn.report import board

RESULTS = Path(__file__).parents[1] / "results"
SMALL = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=2, batch=32, memory=20)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of small real runs: two methods, two seeds."""
    root = tmp_path_factory.mktemp("made")
    for method in ("er", "rer"):
        for seed in (0, 1):
            everlearn.run(method, out=root, seed=seed, keep=False, **SMALL)
    return root


def result_of(made, method="er"):
    return json.loads(next(made.glob(f"*-{method}-*-s0-*/result.json")).read_text())


def write(root, document, acc=None, old=True, **changes):
    """A run's folder with this result, of another experiment if something is changed."""
    experiment = Experiment.parse(document["experiment"])
    training = replace(experiment.training, **{k: v for k, v in changes.items() if k not in ("seed", "memory")})
    own = {key: changes[key] for key in ("seed", "memory") if key in changes}
    experiment = replace(experiment, training=training, **own)
    result = document | {"experiment": experiment.document()}
    if acc is not None:
        result["class_il"] = {**result["class_il"], "acc": acc, "matrix": [[acc, 0.0], [acc, acc]]}
    folder = root / experiment.name
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(seals.sealed(result)))
    if old:
        os.utime(folder / "result.json", (time.time() - 60,) * 2)
    return folder


def plain(collection):
    return [asdict(row) for row in collection.rows]


# Rows -----------------------------------------------------------------------------------------------------------------


def test_run_folders_are_rows_by_method_and_weighting_with_a_run_per_seed(made):
    found = collect([made])
    assert [(row.label, [run.seed for run in row.runs]) for row in found.rows] == [("er", [0, 1]), ("rer", [0, 1])]
    assert not found.unfinished and not found.problems
    for run in (run for row in found.rows for run in row.runs):
        result = json.loads((run.place / "result.json").read_text())
        for setting in ("class_il", "task_il"):
            untrained = result[setting]["untrained"]
            assert {**run.figures[setting], "matrix": run.matrices[setting], "untrained": untrained} == result[setting]
        assert (run.seconds, list(run.classes)) == (result["seconds"], result["classes"])
        assert run.provenance == result["provenance"] and run.name == run.place.name
        assert run.settings["batch"] == 32 and "seed" not in run.settings


def test_a_history_is_what_the_run_wrote_down(made):
    for row in collect([made]).rows:
        for run in row.runs:
            lines = read_lines(run.place)
            tasks, epochs = ([line for line in lines if line["event"] == event] for event in ("task", "epoch"))
            assert run.ends == run.history.tasks and len(run.history.epochs) == len(epochs) == 4
            for end, line in zip(run.ends, tasks, strict=True):
                assert end.confusion._asdict() == {key: tuple(values) for key, values in line["confusion"].items()}
                assert end.memory == tuple(line["memory"]) and list(end.class_il) == line["class_il"]
                assert end.classes == tuple(range(2 * end.task, 2 * end.task + 2))
            assert [epoch.loss for epoch in run.history.epochs] == [line["loss"] for line in epochs]
            assert bool(run.history.epochs[-1].weights) == (row.label == "rer")


def test_runs_from_before_confusions_were_written_down_are_read(made, tmp_path):
    folder = write(tmp_path, result_of(made))
    lines = read_lines(next(made.glob("*-er-*-s0-*")))
    for line in lines:
        for key in ("confusion", "memory", "classes"):
            line.pop(key, None)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = collect([folder]).rows
    assert [(end.confusion, end.memory) for end in row.runs[0].history.tasks] == [(None, None)] * 2


def test_a_label_has_the_settings_that_tell_a_row_from_the_others_and_no_more(made, tmp_path):
    document = result_of(made)
    for changes in ({}, dict(memory=50), dict(memory=50, lr=0.5), dict(memory=50, lr=0.5, seed=1)):
        write(tmp_path, document, **changes)
    write(tmp_path, result_of(made, "rer"), lr=0.7)
    found = collect([tmp_path])
    assert sorted(row.label for row in found.rows) == [
        "er, M = 20",
        "er, M = 50, lr = 0.1",
        "er, M = 50, lr = 0.5",
        "rer, M = 20",
    ]
    told = found.differences()
    assert told["memory"]["er, M = 20"] == 20 and told["lr"]["rer, M = 20"] == 0.7 and "batch" not in told


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ([{}, {"classes": ["1", "2"]}], ["er", "er, classes = [1, 2]"]),
        ([{}, {"classes": ["1", "2"]}, {"tasks": 2}], ["er, tasks = 5", "er, classes = [1, 2]", "er, tasks = 2"]),
        ([{}, {"average": "task"}], ["er", "er, average = task"]),
        ([{"weights": (1, 2)}, {"average": "task"}], ["er, weights = [1, 2]", "er, weights = [1, 1], average = task"]),
        (
            [{"average": 0.9}, {"lr": 0.5, "weights": (1, 2)}],
            ["er, lr = 0.1, average = 0.9", "er, lr = 0.5, weights = [1, 2]"],
        ),
    ],
)
def test_a_label_without_a_setting_is_of_the_row_with_the_default_ones(settings, labels):
    planned = rows.planned(Study("mine", "", {str(n): [Experiment.of("er", **of)] for n, of in enumerate(settings)}))
    assert rows.labels([row.runs for row in planned]) == labels


def test_a_difference_is_told_on_the_same_seeds(made, tmp_path):
    for seed, (ours, theirs) in enumerate([(70.0, 60.0), (72.0, 60.0), (74.0, 60.0)]):
        write(tmp_path, result_of(made), acc=ours, seed=seed, lr=0.5)
        write(tmp_path, result_of(made), acc=theirs, seed=seed)
    write(tmp_path, result_of(made), acc=0.0, seed=9)
    found = {row.label: row for row in collect([tmp_path]).rows}
    gain = found["er, lr = 0.5"].gain(found["er, lr = 0.1"])
    assert (gain.mean, gain.ahead, gain.seeds) == (12.0, 3, 3)
    assert gain.half_width == pytest.approx(4.302653 * 2 / 3**0.5, abs=1e-4)
    assert found["er, lr = 0.5"].spread() == {"mean": 72.0, "std": 2.0}


# Documents ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_document_is_read(made, tmp_path):
    runs = [json.loads(file.read_text()) for file in sorted(made.glob("*/result.json"))]
    seeds = [run for run in runs if run["experiment"]["weighting"]["name"] == "fixed"]
    figures = lambda run: {"seed": run["experiment"]["seed"], "seconds": 1.0, "class_il": run["class_il"]}
    experiment = {**seeds[0]["experiment"], "seed": None}
    written = {
        "one": seeds[0],
        "seeds": records.several(seeds),
        "demo": {"er": records.several(seeds)},
        "study": {"study": "mine", "rows": {"er": {"experiment": experiment, "runs": list(map(figures, seeds))}}},
        "again": {"er": {"then": seeds[0], "now": seeds[0], "same": True}},
    }
    for name, document in written.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(document))
        (row,) = collect([file]).rows
        wanted = seeds[:1] if name in ("one", "again") else seeds
        assert row.label == "er" and [run.figures["class_il"]["acc"] for run in row.runs] == [
            run["class_il"]["acc"] for run in wanted
        ]
        assert row.runs[0].key == collect([made]).rows[0].runs[0].key
        assert row.repeated == ((1, 1) if name == "again" else (0, 0))


def test_every_committed_record_is_read_and_the_published_figure_stands_beside_it():
    found = collect([RESULTS / "cifar10"])
    assert sum(len(row.runs) for row in found.rows) == len(list((RESULTS / "cifar10").glob("*.json")))
    rows = {row.label: row for row in found.rows}
    assert rows["rder, M = 200"].published == published("table1-cifar10", "rder, M = 200")
    assert rows["rer, M = 200, weights = [1, 0.5]"].published_in == "table1-cifar10"
    assert rows["rer, M = 200, weights = [1, 1]"].published is None, "other settings than the paper's"
    relational = rows["rder, M = 200"].runs[0].history
    assert len(relational.epochs) == 250 and relational.epochs[-1].weights.keys() == {"new", "dark", "memory"}


def test_all_records_at_once_are_read_with_no_label_twice():
    found = collect([RESULTS])
    labels = [row.label for row in found.rows]
    assert len(labels) == len({*labels}) > 200
    assert {(problem.kind, problem.place.name) for problem in found.problems} == {
        ("foreign", path.name) for path in RESULTS.glob("*-weights.json")
    }


def test_a_study_has_its_own_labels_and_published_figures():
    found = collect([RESULTS / "relation-digits.json"])
    document = json.loads((RESULTS / "relation-digits.json").read_text())
    assert [row.label for row in found.rows] == list(document["rows"])
    likeness = collect([RESULTS / "similarity-cifar10-cnn.json"]).rows[0]
    assert likeness.published["class_il"]["acc"].mean > 0 and likeness.published_in == "similarity"


# Once and again -------------------------------------------------------------------------------------------------------


def test_a_record_that_was_run_again_says_so_and_whether_it_came_out_the_same():
    found = collect([RESULTS / "cifar10", RESULTS / "again"])
    (run,) = [
        run for row in found.rows for run in row.runs if run.repeats and "resnet18" in row.label and run.seed == 0
    ]
    assert run.place.parent.name == "cifar10" and [repeat.same for repeat in run.repeats] == [False]
    alone = collect([RESULTS / "again" / "cpu.json"])
    assert [row.repeated for row in alone.rows] == [(1, 1), (1, 1)]


def test_a_copy_is_no_repetition_and_what_was_run_twice_is_in_rows_of_its_own(made, tmp_path):
    document = result_of(made)
    copied, repeated = tmp_path / "copied.json", tmp_path / "later"
    copied.write_text(json.dumps(document))
    (folder,) = made.glob("*-er-*-s0-*")
    (row,) = collect([folder, copied]).rows
    assert len(row.runs) == 1 and not row.runs[0].repeats
    later = document | {"provenance": document["provenance"] | {"finished": "2030-01-01T00:00:00Z"}}
    write(repeated, later, acc=50.0)
    assert sorted(row.label for row in collect([folder, repeated]).rows) == [
        f"er ({name})" for name in sorted([folder.name, "later"])
    ]
    both = tmp_path / "both"
    write(both, later)
    (both / "first.json").write_text(json.dumps(document))
    (row,) = collect([both]).rows
    assert row.repeated == (1, 1), "in one folder it is the same row, run again"


def test_seeds_from_several_folders_are_one_row(made, tmp_path):
    for number in (0, 1):
        write(tmp_path / str(number), result_of(made), seed=number)
    (row,) = collect([tmp_path / "0", tmp_path / "1"]).rows
    assert row.label == "er" and [run.seed for run in row.runs] == [0, 1]


# What is no complete run ----------------------------------------------------------------------------------------------


def test_an_unfinished_run_shows_how_far_it_is(made, tmp_path, monkeypatch):
    experiment = Experiment.parse(result_of(made)["experiment"])
    part = Store(tmp_path).part(experiment)
    part.mkdir()
    (part / "experiment.json").write_text(json.dumps(experiment.document()))
    lines = (next(made.glob("*-er-*-s0-*")) / "metrics.jsonl").read_text().splitlines(keepends=True)
    (part / "metrics.jsonl").write_text("".join(lines[:4]) + lines[4][:20])
    found = collect([tmp_path])
    (run,) = found.unfinished
    assert (run.title, run.seed, run.tasks_done, run.done, run.epochs) == ("er", 0, 1, 3, 4)
    assert not run.resumable and len(run.history.epochs) == 3 and run.history.damage is None
    (part / "checkpoint").touch()
    assert collect([part]).unfinished[0].resumable
    monkeypatch.chdir(part)
    assert collect(["."]).unfinished[0].name == experiment.name
    assert not found.rows and not found.problems


def test_a_run_completed_between_two_looks_is_complete(made, tmp_path, monkeypatch):
    folder = write(tmp_path, result_of(made))
    part = folder.rename(folder.with_name(f"{folder.name}.part"))
    look = folders.Look._unfinished

    def late(self, path):
        part.rename(folder)
        return look(self, path)

    monkeypatch.setattr(folders.Look, "_unfinished", late)
    assert [row.label for row in collect([tmp_path]).rows] == ["er"]


def test_damaged_and_foreign_folders_are_named_and_the_rest_is_read(made, tmp_path):
    write(tmp_path, result_of(made))
    for name, content in {"cut": '{"experiment": {', "empty": "", "list": "[1]", "text": "\x00", "other": "{}"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(content)
        (tmp_path / name / "experiment.json").touch()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "result.json").write_text('{"score": 3}')
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "experiment.json").touch()
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "photos" / "cats" / "1.jpg").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "notes.json").write_text('{"mine": 1}')
    (tmp_path / "torn.json").write_text('{"mine": ')
    (tmp_path / "study.json").write_text(json.dumps({"study": "s", "rows": {}, "failed": {"er-s3": "out of luck"}}))
    found = collect([tmp_path])
    assert len(found.rows) == 1
    assert {(problem.kind, problem.place.name) for problem in found.problems} == {
        *(("damaged", name) for name in ("cut", "empty", "list", "text", "other", "begun", "torn.json")),
        *(("foreign", name) for name in ("photos", "notes.json", "theirs", "gone.json")),
        ("failed", "er-s3"),
    }
    assert all("\n" not in problem.why for problem in found.problems)
    assert not any("remove" in problem.why for problem in found.problems if problem.kind == "foreign")
    assert [problem.kind for problem in collect([tmp_path / "photos"]).problems] == ["foreign"]


def test_a_saved_learner_beside_the_run_it_comes_from_is_passed_over_in_silence(made, tmp_path):
    run = shutil.copytree(next(made.glob("*-er-*-s0-*")), tmp_path / "run")
    everlearn.Learner(torch.nn.Linear(4, 2), "er").save(f"{run}-taught")
    found = collect([tmp_path])
    assert len(found.rows) == 1 and not found.problems
    assert [problem.kind for problem in collect([f"{run}-taught"]).problems] == ["foreign"], "unless it is asked for"


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"there is no .*nowhere"):
        collect([tmp_path / "nowhere"])


def test_no_damage_to_a_record_ends_the_reading(made, tmp_path):
    rng = random.Random(0)
    text = next(made.glob("*-rer-*-s0-*/result.json")).read_text()
    strange = ("null", "-1", "[]", "{}", '"x"', "NaN", "1e999", "true", "[[1]]")
    for number in range(300):
        broken = list(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(broken))
            broken[at : at + rng.randint(0, 30)] = rng.choice(strange) if rng.random() < 0.7 else ""
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "result.json").write_text("".join(broken))
    document = json.loads(text)
    for key in ("experiment", "class_il", "seconds", "classes", "provenance"):
        for value in (None, 1, "x", [1], {"a": 1}, float("nan")):
            folder = tmp_path / f"{key} {value}".replace("/", "")
            folder.mkdir()
            (folder / "result.json").write_text(json.dumps(document | {key: value}))
    found = collect([tmp_path])
    assert found.problems and all(run.history is not None for row in found.rows for run in row.runs)


# The index ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(made, tmp_path):
    document = result_of(made)
    for number in range(index.LEAST):
        write(tmp_path, document, acc=float(number), seed=number)
    return tmp_path


def unread(monkeypatch):
    """From now on no result is read: what is known is in the index."""

    def refuse(path, edited):
        raise AssertionError(f"{path} was read")

    monkeypatch.setattr(folders, "read_opened", refuse)


def test_a_second_reading_reads_the_index_alone(many, monkeypatch):
    first = collect([many])
    assert (many / index.NAME).exists()
    unread(monkeypatch)
    assert plain(collect([many])) == plain(first)


def test_a_changed_new_or_removed_run_is_seen_whatever_the_index_says(many, made):
    (row,) = collect([many]).rows
    changed = row.runs[0].place / "result.json"
    document = json.loads(changed.read_text())
    document["class_il"]["acc"] = 99.0
    changed.write_text(json.dumps(seals.sealed(document)))
    write(many, result_of(made), acc=55.0, seed=1000)
    (row.runs[1].place / "result.json").unlink()
    row.runs[1].place.rmdir()
    (now,) = collect([many]).rows
    assert [run.seed for run in now.runs] == [0, *range(2, index.LEAST), 1000]
    assert now.runs[0].figures["class_il"]["acc"] == 99.0
    assert plain(collect([many])) == plain(collect([many], index=False))


def test_a_run_changed_beside_its_result_is_seen_whatever_the_index_says(many, made, monkeypatch):
    lines = (next(made.glob("*-er-*-s0-*")) / "metrics.jsonl").read_bytes()
    for folder in (places := sorted(path.parent for path in many.glob("*/result.json"))):
        (folder / "metrics.jsonl").write_bytes(lines)
        os.utime(folder / "metrics.jsonl", (time.time() - 60,) * 2)
        result = seals.sealed(json.loads((folder / "result.json").read_text()), seals.sums(folder, ("result.json",)))
        (folder / "result.json").write_text(json.dumps(result))
        os.utime(folder / "result.json", (time.time() - 60,) * 2)
    whole = plain(collect([many]))
    assert (many / index.NAME).exists() and all(run["sealed"] for run in whole[0]["runs"])
    (places[3] / "metrics.jsonl").write_bytes(lines.replace(b"1", b"2", 1))
    (problem,) = collect([many]).problems
    assert problem.kind == "damaged" and problem.place == places[3]
    assert "metrics.jsonl is not what was written; remove the folder" in problem.why
    assert not collect([many], edited=True).problems
    unread(monkeypatch)
    with pytest.raises(AssertionError, match=places[3].name):  # and what was accepted is not in the index
        collect([many])


def test_every_committed_record_has_a_checksum_and_a_change_of_a_digit_is_noticed(tmp_path):
    for file in sorted(RESULTS.rglob("*.json")):
        assert seals.opened(json.loads(file.read_text()), of=file).sealed
    for name in ("digits.json", "demo.json", "again/cpu.json"):
        copy = tmp_path / Path(name).name
        copy.write_text((RESULTS / name).read_text().replace('"acc": 9', '"acc": 8', 1))
        (problem,) = collect([copy]).problems
        assert problem.why.startswith("it is not what was written; --accept-edited")
        assert collect([copy], edited=True).rows and not collect([copy], edited=True).rows[0].runs[0].sealed


def test_a_file_that_was_just_written_is_not_trusted_to_the_index(many, made, monkeypatch):
    write(many, result_of(made), seed=1000, old=False)
    collect([many])
    unread(monkeypatch)
    with pytest.raises(AssertionError, match="s1000"):
        collect([many])


WRONG = {
    "empty": b"",
    "noise": b"\x00\xff" * 99,
    "cut": lambda good: good[: len(good) // 2],
    "other": index.zlib.compress(b'{"format": 1, "version": "?", "files": {}}'),
    "list": index.zlib.compress(b"[1, 2]"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_index_is_made_anew(many, wrong, monkeypatch):
    good = plain(collect([many]))
    file, content = many / index.NAME, WRONG[wrong]
    file.write_bytes(content(file.read_bytes()) if callable(content) else content)
    assert plain(collect([many])) == good
    unread(monkeypatch)
    assert plain(collect([many])) == good


def test_entries_that_are_none_are_read_anew(many):
    good = plain(collect([many]))
    file = many / index.NAME
    document = json.loads(index.zlib.decompress(file.read_bytes()))
    changes = [
        lambda digest: digest.pop("name"),
        lambda digest: digest.update(figures={"class_il": "x"}),
        lambda digest: digest["figures"]["class_il"].update(acc="1"),
        lambda digest: digest.update(seed="0"),
        lambda digest: digest.update(more=1),
        lambda digest: digest.update(settings=[]),
        lambda digest: digest.update(classes=[[]]),
    ]
    for entry, change in zip(document["files"].values(), changes):
        change(entry[1][0])
    file.write_bytes(index.zlib.compress(json.dumps(document).encode()))
    assert plain(collect([many])) == good


def test_readers_side_by_side_find_a_whole_index_or_none(many):
    good, wrong = plain(collect([many])), []

    def read():
        for _ in range(4):
            (many / index.NAME).unlink(missing_ok=True)
            if plain(collect([many])) != good:
                wrong.append(1)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and [path.name for path in many.glob(f"*{index.NAME}*")] == [index.NAME]


def test_a_few_runs_need_no_index_and_a_folder_that_cannot_be_written_to_has_none(
    many, made, tmp_path_factory, monkeypatch
):
    few = tmp_path_factory.mktemp("few")
    write(few, result_of(made))
    collect([few])
    assert not (few / index.NAME).exists()

    def refuse(*paths):
        raise PermissionError(13, "no")

    monkeypatch.setattr("os.replace", refuse)
    assert len(collect([many]).rows[0].runs) == index.LEAST and not list(many.glob(f"*{index.NAME}*"))


def test_a_digest_survives_json(made):
    (digest,) = documents.digests(seals.opened(result_of(made, "rer")), "name", "place")
    assert json.loads(json.dumps(digest)) == digest


def test_a_setting_that_only_some_rows_of_a_method_have_is_told_of_many_rows(made, tmp_path):
    for changes in (*(dict(lr=lr) for lr in (0.1, 0.2, 0.3, 0.4)), dict(lr=0.1, average=0.9)):
        write(tmp_path, result_of(made), **changes)
    write(tmp_path, result_of(made, "rer"), lr=0.1)
    table = board.differences(collect([tmp_path]))
    assert table is not None
    told = [[str(cell) for cell in row] for row in table.rows]
    (at,) = [number for number, row in enumerate(told) if row[0] == "average"]
    assert {row[1] for row in told[at : at + 2]} == {"–", "0.9"}
    assert "interval" not in {row[0] for row in told}, "only the relation has one, and all of its rows the same"


def test_what_may_not_be_looked_into_is_passed_over(made, tmp_path, monkeypatch):
    write(tmp_path / "runs", result_of(made))
    (tmp_path / "runs" / "locked").mkdir()
    scandir = os.scandir

    class Locked:
        name, path = "locked", str(tmp_path / "runs" / "locked")

        def is_dir(self):
            raise PermissionError(13, "Permission denied", self.path)

    class Entries(list):
        __enter__ = lambda self: self
        __exit__ = lambda self, *error: None

    def entries(folder):
        with scandir(folder) as found:
            return Entries(Locked() if entry.name == "locked" else entry for entry in found)

    monkeypatch.setattr(folders.os, "scandir", entries)
    assert [row.label for row in collect([tmp_path / "runs"]).rows] == ["er"]
