"""Runs on disk: whole or not there, one folder an experiment."""

import json
import os
import signal
from pathlib import Path

import filelock
import pytest
import torch
from safetensors.torch import load_file

import everlearn
from everlearn.errors import BadInput, EverlearnError, Stopped
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.store import Recording, Store, read_lines, read_result

EXPERIMENT = Experiment.of("er", memory=20, epochs=1)
MEASURED = {"acc": 61.5, "bwt": None, "forgetting": None, "fwt": None, "matrix": [[61.5]]}
RESULT = {"experiment": EXPERIMENT.document(), "class_il": MEASURED, "task_il": MEASURED}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "some" / "runs")


def record(store: Store, result: dict = RESULT) -> Path:
    with store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch", "epoch": 0})
        recording.line({"event": "task", "task": 0})
        recording.tensors("weighting", {"w": torch.arange(6.0).reshape(2, 3).T})
        recording.result(result)
    return store.path(EXPERIMENT)


def names(store: Store) -> list[str]:
    return sorted(path.name for path in store.root.iterdir())


def test_a_run_is_a_folder_of_settings_records_result_and_tensors(store):
    folder = record(store)
    assert sorted(path.name for path in folder.iterdir()) == [
        "experiment.json",
        "metrics.jsonl",
        "result.json",
        "weighting.safetensors",
    ]
    assert json.loads((folder / "experiment.json").read_text()) == json.loads(json.dumps(EXPERIMENT.document()))
    assert [line["event"] for line in read_lines(folder)] == ["epoch", "task"]
    assert store.result(EXPERIMENT) == read_result(folder) == RESULT
    assert load_file(folder / "weighting.safetensors")["w"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_what_is_in_progress_is_a_part_and_has_no_result_yet(store):
    with store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch"})
        assert names(store) == [f"{EXPERIMENT.name}.part"] and store.result(EXPERIMENT) is None
        assert read_lines(recording.folder) == [{"event": "epoch"}]  # there to be watched
        recording.result(RESULT)
    assert names(store) == [EXPERIMENT.name]


@pytest.mark.parametrize("trouble", (OSError, KeyboardInterrupt, SystemExit))
def test_what_goes_wrong_leaves_nothing(store, trouble):
    with pytest.raises(trouble), store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch"})
        raise trouble
    assert names(store) == []


def test_an_old_run_stays_until_the_new_one_is_whole(store):
    record(store)
    with pytest.raises(KeyboardInterrupt), store.recording(EXPERIMENT):
        raise KeyboardInterrupt
    assert store.result(EXPERIMENT) == RESULT
    record(store, better := RESULT | {"class_il": MEASURED | {"acc": 70.0}})
    assert store.result(EXPERIMENT) == better and names(store) == [EXPERIMENT.name]


def test_a_run_that_makes_way_is_never_half_there(store, monkeypatch):
    def interrupted(folder, **_):
        Path(folder, "result.json").unlink(missing_ok=True)
        raise KeyboardInterrupt

    record(store)
    monkeypatch.setattr("shutil.rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        record(store)
    assert store.result(EXPERIMENT) == RESULT


def test_an_experiment_has_one_writer_at_a_time(store):
    with store.recording(EXPERIMENT) as recording:
        with pytest.raises(BadInput, match="another process"), store.recording(EXPERIMENT):
            pass
        recording.line({"event": "epoch"})
        recording.result(RESULT)
    assert read_lines(store.path(EXPERIMENT)) == [{"event": "epoch"}]


def test_a_writer_that_was_killed_keeps_nobody_out(store):
    if not (child := os.fork()):
        with store.recording(EXPERIMENT) as recording:
            recording.line({"event": "half"})
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert names(store) == [f"{EXPERIMENT.name}.part"]
    assert [line["event"] for line in read_lines(record(store))] == ["epoch", "task"]
    assert names(store) == [EXPERIMENT.name]


def test_a_lock_is_not_sought_behind_a_link(store, tmp_path):
    (tmp_path / "elsewhere").touch()
    store.part(EXPERIMENT).mkdir(parents=True)
    (store.part(EXPERIMENT) / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match=r"lock cannot be locked: .*; remove it or choose another --out"):
        record(store)


def test_a_lock_renamed_away_before_it_was_locked_is_not_taken_for_ones_own(store, monkeypatch):
    part, opened = store.part(EXPERIMENT), []
    lock = filelock.lock_descriptor

    def late(descriptor, **options):
        if not opened:  # the run that was here is finished, and the next one begins
            opened.append(part.rename(store.root / "finished"))
            part.mkdir()
        return lock(descriptor, **options)

    monkeypatch.setattr(filelock, "lock_descriptor", late)
    record(store)
    assert store.result(EXPERIMENT) == RESULT and (store.root / "finished" / "lock").exists()


def test_where_no_folder_with_an_open_file_can_be_moved_the_lock_is_closed_before(store, monkeypatch):
    rename, held = Path.rename, []

    def watched(path, target):
        held.append(os.path.exists(path / "lock") and _held(path / "lock"))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)
    record(store)
    with pytest.raises(KeyboardInterrupt), store.recording(EXPERIMENT):
        raise KeyboardInterrupt
    assert held == [True, True]
    monkeypatch.setattr("everlearn.experiments.store.MOVES_OPEN", False)
    with pytest.raises(KeyboardInterrupt), store.recording(EXPERIMENT):
        raise KeyboardInterrupt
    store.forget(EXPERIMENT)
    record(store)
    assert held == [True, True, False, False] and names(store) == [EXPERIMENT.name]
    assert store.result(EXPERIMENT) == RESULT


def _held(lock: Path) -> bool:
    with open(lock) as file:
        return not filelock.lock_descriptor(file.fileno(), blocking=False)


@pytest.mark.parametrize("content, words", [(None, "not a run's folder"), ("{", "remove the folder")])
def test_a_folder_that_is_no_run_is_named(store, content, words):
    folder = store.path(EXPERIMENT)
    folder.mkdir(parents=True)
    if content:
        (folder / "result.json").write_text(content)
    with pytest.raises(BadInput, match=words) as error:
        store.result(EXPERIMENT)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize(
    "error, kept",
    [
        (Stopped("a rank ended"), True),
        (BadInput("no quadprog"), True),
        (OSError(), True),
        (EverlearnError("nan"), False),
    ],
)
def test_only_a_run_that_fails_of_itself_loses_its_checkpoint(store, monkeypatch, error, kept):
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")
    with pytest.raises(type(error)), store.recording(EXPERIMENT) as recording:
        recording.checkpoint(lambda: {"x": torch.zeros(1)})
        raise error
    assert (store.part(EXPERIMENT) / "checkpoint").exists() == kept


def test_the_folder_is_tried_before_any_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="--out"):
        Store(tmp_path / "file" / "runs").prepare()
    Store(tmp_path / "runs").prepare()
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    "change", ({"seed": 1}, {"memory": 21}, {"lr": 0.2}, {"weights": (1, 2)}, {"classes": "0,1"}, {"shuffle": 0})
)
def test_the_folder_is_named_after_every_setting(change):
    assert Experiment.of("er", **{"memory": 20, "epochs": 1} | change).name != EXPERIMENT.name


def test_defaults_written_out_are_the_same_experiment():
    written = Experiment.of(
        "er", "digits", memory="20", epochs="1", seed="0", batch="10", lr="0.1", tasks="5", weights="1,1"
    )
    assert written.name == EXPERIMENT.name


def test_the_library_keeps_its_runs_and_reads_them_back(tmp_path, monkeypatch):
    first = json.loads(json.dumps(everlearn.run("er", memory=20, epochs=1, device="cpu", out=tmp_path)))
    monkeypatch.setattr(Recording, "line", lambda *_: pytest.fail("run again"))
    assert (
        everlearn.run("er", memory=20, epochs=1, device="cpu", out=tmp_path)
        == first
        == Store(tmp_path).result(EXPERIMENT)
    )
    lines = read_lines(Store(tmp_path).path(EXPERIMENT))
    assert [line["event"] for line in lines] == ["epoch", "task"] * 5
    assert [line["class_il"] for line in lines if line["event"] == "task"] == first["class_il"]["matrix"]
