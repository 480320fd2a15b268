"""Runs on disk: whole or not there, one folder an experiment."""

import contextlib
import errno
import json
import os
import signal
import socket
import time
from pathlib import Path

import filelock
import pytest
import torch
from safetensors.torch import load_file

import everlearn
from everlearn.errors import BadInput, EverlearnError, Notice, Stopped
from everlearn.experiments import locks
from everlearn.experiments import store as module
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.results import read_lines, read_result
from everlearn.experiments.seals import Damaged, Edited, sealed
from everlearn.experiments.store import Done, Recording, Store

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


# Faults ---------------------------------------------------------------------------------------------------------------


class Faulty:
    """os functions that fail: `rename` from or to a name, so many times."""

    def __init__(self, monkeypatch, error: int, times: int, ends: str, done: bool = False):
        self.left, rename = times, Path.rename

        def failing(path, target):
            if self.left and str(target).endswith(ends):
                self.left -= 1
                if done:  # a network folder may do it and report that it failed
                    rename(path, target)
                raise OSError(error, os.strerror(error))
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", failing)
        monkeypatch.setattr("everlearn.experiments.store.PAUSES", (0.0, 0.0))


@pytest.mark.parametrize("error", (errno.EIO, errno.EBUSY, errno.ESTALE))
@pytest.mark.parametrize("done", (False, True))
def test_a_move_that_fails_once_is_tried_again(store, monkeypatch, error, done):
    Faulty(monkeypatch, error, 1, EXPERIMENT.name, done)
    record(store)
    assert store.result(EXPERIMENT) == RESULT and names(store) == [EXPERIMENT.name]


@pytest.mark.parametrize("old", (False, True))
def test_a_run_that_cannot_be_moved_is_kept_and_comes_to_its_place_later(store, monkeypatch, old):
    if old:
        record(store)
    better = RESULT | {"class_il": MEASURED | {"acc": 70.0}}
    fault = Faulty(monkeypatch, errno.EIO, 3, f"{os.sep}{EXPERIMENT.name}")
    with pytest.raises(Stopped, match=r"is complete and cannot be moved .*Input/output error.*; the same command"):
        record(store, better)
    assert store.result(EXPERIMENT) == (RESULT if old else None)
    assert not fault.left and f"{EXPERIMENT.name}.part" in names(store)
    with pytest.raises(Done), store.recording(EXPERIMENT, fresh=False):
        pytest.fail("it is complete")
    assert names(store) == [EXPERIMENT.name] and store.result(EXPERIMENT) == better


@pytest.mark.parametrize("step", ("seal", "old away", "moved", "cleared"))
def test_killed_anywhere_in_its_end_a_run_is_lost_to_nobody(store, monkeypatch, step):
    """Killed just before each of the steps that make a run complete; the checkpoint is there until the last."""
    record(store)
    better = RESULT | {"class_il": MEASURED | {"acc": 70.0}}
    if not (child := os.fork()):
        from everlearn.experiments import store as module

        kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        move, place = module._move, module._remove
        at = {"old away": ".old", "moved": EXPERIMENT.name}.get(step)
        module._move = lambda source, target: (
            kill() if str(target).endswith(at or "?") else None,
            move(source, target),
        )
        module._remove = lambda path: kill() if step == "cleared" and path.name == "checkpoint" else place(path)
        if step == "seal":
            module._seal = kill
        os.environ["EVERLEARN_CHECKPOINT"] = "0"
        with store.recording(EXPERIMENT) as recording:
            recording.line({"event": "epoch"})
            recording.checkpoint(lambda: {"x": torch.zeros(1)})
            recording.result(better)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if step == "seal":
        assert (store.part(EXPERIMENT) / "checkpoint").exists()
    store.prepare([EXPERIMENT])  # as the next command does
    assert names(store) == [EXPERIMENT.name]
    assert store.result(EXPERIMENT) == (RESULT if step == "seal" else better)


def test_what_killed_processes_left_is_cleared_and_what_others_hold_is_not(store):
    record(store)
    for left in (f".{EXPERIMENT.name}.part.123", f"{EXPERIMENT.name}.old", f"{EXPERIMENT.name}.part"):
        (store.root / left / "inner").mkdir(parents=True)
    (store.root / ".77.probe").touch()
    (store.root / ".mine").touch()
    with store.recording(Experiment.of("er", memory=21, epochs=1)) as other:
        other.result(RESULT)
        store.prepare([EXPERIMENT, Experiment.of("er", memory=21, epochs=1)])
        assert names(store) == sorted([".mine", EXPERIMENT.name, other.folder.name])


@pytest.mark.parametrize("file", ("experiment.json", "metrics.jsonl", "weighting.safetensors"))
@pytest.mark.parametrize("damage", (lambda f: f.unlink(), lambda f: f.write_bytes(f.read_bytes()[:-1] + b"?")))
def test_a_file_that_is_not_what_was_written_is_named(store, file, damage):
    with store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch"})
        recording.tensors("weighting", {"x": torch.zeros(3)})
        recording.result(RESULT)
    damage(store.path(EXPERIMENT) / file)
    with pytest.raises(Edited, match=rf"{file} is not what was written.*; remove the folder .*, or --accept-edited"):
        store.result(EXPERIMENT)
    assert Store(store.root, edited=True).result(EXPERIMENT) == RESULT


def test_a_digit_changed_in_a_result_is_noticed_and_a_result_from_before_checksums_is_read(store):
    file = record(store) / "result.json"
    file.write_text(file.read_text().replace("61.5", "91.5", 1))
    with pytest.raises(Edited, match=r"result\.json is not what was written"):
        store.result(EXPERIMENT)
    file.write_text(json.dumps(RESULT))
    assert store.result(EXPERIMENT) == RESULT


@pytest.mark.parametrize(
    "wrong",
    [
        {"class_il": MEASURED | {"acc": "61.5"}},
        {"class_il": MEASURED | {"matrix": [[1.0], [1.0, 2.0]]}},
        {"task_il": MEASURED | {"bwt": float("nan")}},
        {"experiment": EXPERIMENT.document() | {"seed": "0"}},
        {"provenance": []},
        {"seconds": "long"},
    ],
)
def test_a_sound_seal_on_wrong_contents_is_one_sentence(store, wrong):
    file = record(store) / "result.json"
    file.write_text(json.dumps(sealed(RESULT | wrong)))
    with pytest.raises(Damaged, match=r"not the record of a run; remove the folder"):
        store.result(EXPERIMENT)


def test_nested_json_and_a_pipe_are_no_results(store):
    file = record(store) / "result.json"
    file.write_text("[" * 100_000)
    with pytest.raises(Damaged, match="is incomplete"):
        store.result(EXPERIMENT)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Damaged, match="is incomplete"):
        store.result(EXPERIMENT)


# Locks ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lockless(monkeypatch):
    """A file system without locks."""

    def refuse(descriptor, **_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock, "lock_descriptor", refuse)
    monkeypatch.setattr(locks, "BEAT", 0.05)
    monkeypatch.setattr(locks, "SETTLED", 0.0)


@pytest.mark.filterwarnings("ignore::everlearn.errors.Notice")
def test_without_locks_a_file_that_is_touched_keeps_others_out(store, lockless, monkeypatch):
    with store.recording(EXPERIMENT) as recording:
        holder = recording.folder / "lock.alive"
        assert holder.read_text() == f"{socket.gethostname()} {os.getpid()}"
        with pytest.raises(BadInput, match="another process"), store.recording(EXPERIMENT):
            pass
        before = holder.stat().st_mtime_ns
        while holder.stat().st_mtime_ns == before:  # it is touched
            time.sleep(0.01)
        recording.result(RESULT)
    assert store.result(EXPERIMENT) == RESULT and names(store) == [EXPERIMENT.name]
    assert sorted(path.name for path in store.path(EXPERIMENT).iterdir()) == [
        "experiment.json",
        "metrics.jsonl",
        "result.json",
    ]


@pytest.mark.filterwarnings("ignore::everlearn.errors.Notice")
@pytest.mark.parametrize("holder, age, free", [("elsewhere 7", 61, True), ("elsewhere 7", 30, False), ("", 61, True)])
def test_without_locks_a_holder_that_is_silent_is_dead(store, lockless, holder, age, free):
    part = store.part(EXPERIMENT)
    part.mkdir(parents=True)
    (part / "lock.alive").write_text(holder)
    os.utime(part / "lock.alive", (time.time() - age,) * 2)
    if free:
        record(store)
        assert names(store) == [EXPERIMENT.name]
    else:
        with pytest.raises(BadInput, match="another process"):
            record(store)


@pytest.mark.filterwarnings("ignore::everlearn.errors.Notice")
def test_without_locks_a_process_of_this_machine_that_is_gone_is_not_waited_for(store, lockless):
    if not (child := os.fork()):
        with store.recording(EXPERIMENT):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (store.part(EXPERIMENT) / "lock.alive").exists()
    record(store)
    assert names(store) == [EXPERIMENT.name]


def test_that_there_are_no_locks_is_said(store, lockless):
    with pytest.warns(Notice, match=r"has no locks \(No locks available\)"):
        record(store)


def test_a_lock_is_neither_emptied_nor_a_pipe(store, monkeypatch):
    part = store.part(EXPERIMENT)
    part.mkdir(parents=True)
    (part / "lock").write_text("mine")
    with store.recording(EXPERIMENT) as recording:
        assert (part / "lock").read_text() == "mine"
        recording.result(RESULT)
    store.forget(EXPERIMENT)
    part.mkdir()
    os.mkfifo(part / "lock")
    with pytest.raises(BadInput, match="cannot be locked"):
        record(store)


# Limits ---------------------------------------------------------------------------------------------------------------
OTHER = Experiment.of("er", memory=21, epochs=1)


def test_what_a_store_takes_unless_it_is_told():
    assert (Store().root, Store().edited, Store(edited=True).edited) == (Path("runs"), False, True)
    assert (module.EVERY, module.PAUSES, module.MOVES_OPEN) == (60, (0.05, 0.5, 2.0), True)
    assert module.WORKING == ("lock", "lock.alive", "checkpoint")


def test_where_there_is_no_folder_no_run_is_done_and_a_file_is_no_run(tmp_path):
    (tmp_path / "file").touch()
    for root in (tmp_path / "nowhere", tmp_path / "file"):
        assert Store(root).done([EXPERIMENT]) == [] and Store(root).result(EXPERIMENT) is None
    (tmp_path / EXPERIMENT.name).touch()
    (tmp_path / OTHER.name).mkdir()
    store = Store(tmp_path)
    assert store.done([EXPERIMENT, OTHER]) == [OTHER] and not store.has(EXPERIMENT) and store.has(OTHER)


def test_a_document_is_written_a_value_a_line():
    assert module.spelled({"a": [1, {"b": None}], "c": "ü"}) == (
        b'{\n "a": [\n  1,\n  {\n   "b": null\n  }\n ],\n "c": "\\u00fc"\n}\n'
    )


def test_a_run_that_ends_without_a_result_is_none(store):
    with pytest.raises(EverlearnError, match="ended without a result"), store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch"})
    assert names(store) == []


def test_a_run_that_comes_sealed_is_checked_and_not_sealed_anew(store):
    content = {"file": lambda recording: recording.file("notes", b"some words")}
    with store.recording(OTHER) as recording:
        content["file"](recording)
        recording.result(RESULT | {"experiment": OTHER.document()})
    document = json.loads((store.path(OTHER) / "result.json").read_text())
    assert document["files"].keys() == {"experiment.json", "metrics.jsonl", "notes"}
    ours = sealed(RESULT | {"provenance": {"by": "another"}}, {"notes": document["files"]["notes"]})
    with store.recording(EXPERIMENT) as recording:
        content["file"](recording)
        recording.result(ours)
    assert json.loads((store.path(EXPERIMENT) / "result.json").read_text()) == ours
    with pytest.raises(Edited, match="notes is not what was written"), store.recording(EXPERIMENT) as recording:
        recording.file("notes", b"other words")
        recording.result(ours)
    assert names(store) == sorted([EXPERIMENT.name, OTHER.name])


def test_the_seconds_between_checkpoints_are_a_number(store, monkeypatch):
    for given, seconds in (("2.5", 2.5), ("0", 0.0)):
        monkeypatch.setenv("EVERLEARN_CHECKPOINT", given)
        with pytest.raises(KeyError), store.recording(EXPERIMENT) as recording:
            assert recording._every == seconds
            raise KeyError
    monkeypatch.delenv("EVERLEARN_CHECKPOINT")
    with pytest.raises(KeyError), store.recording(EXPERIMENT) as recording:
        assert recording._every == 60 and not recording.due()
        raise KeyError
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "soon")
    with (
        pytest.raises(BadInput, match="EVERLEARN_CHECKPOINT is 'soon', which is not a number of seconds"),
        store.recording(EXPERIMENT),
    ):
        pass


def test_what_a_run_says_of_its_settings_counts_only_under_its_seal(store, monkeypatch):
    """The hash saves working out whether it is the same experiment; it is no more to be trusted than the rest."""
    mine = RESULT | {"provenance": {"settings": EXPERIMENT.hash}}
    file = record(store, mine) / "result.json"
    with monkeypatch.context() as patched:
        patched.setattr(module, "same", lambda *_: pytest.fail("it is known"))
        assert store.result(EXPERIMENT) == mine
    theirs = mine | {"experiment": OTHER.document()}
    file.write_text(json.dumps(theirs))  # without a seal
    with pytest.raises(Damaged, match="holds the result of another experiment; remove the folder"):
        store.result(EXPERIMENT)
    file.write_text(json.dumps(RESULT | {"provenance": {"settings": "another"}}))
    assert store.result(EXPERIMENT)["provenance"] == {"settings": "another"}


def test_a_move_is_tried_four_times_and_not_where_something_is_in_the_way(tmp_path, monkeypatch):
    slept, tried = [], []

    def failing(path, target):
        tried.append(target)
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(Path, "rename", failing)
    monkeypatch.setattr(module.time, "sleep", slept.append)
    (tmp_path / "source").mkdir()
    with pytest.raises(OSError):
        module._move(tmp_path / "source", tmp_path / "target")
    assert slept == [0.05, 0.5, 2.0] and len(tried) == 4
    (tmp_path / "target").mkdir()
    with pytest.raises(OSError):
        module._move(tmp_path / "source", tmp_path / "target")
    assert len(slept) == 3 and len(tried) == 5
    (tmp_path / "source").rmdir()
    module._move(tmp_path / "source", tmp_path / "target")  # it was done, and said to have failed
    assert len(tried) == 6


@pytest.mark.parametrize("again", ("prepare", "recording", "interrupted"))
def test_a_run_that_had_made_way_for_one_that_never_came_is_back(store, again):
    record(store)
    store.path(EXPERIMENT).rename(old := store.path(EXPERIMENT).with_name(f"{EXPERIMENT.name}.old"))
    if again == "prepare":
        store.prepare([EXPERIMENT])
    elif again == "recording":
        with pytest.raises(Done), store.recording(EXPERIMENT, fresh=False):
            pytest.fail("it is complete")
    else:
        with pytest.raises(KeyboardInterrupt), store.recording(EXPERIMENT):
            assert store.result(EXPERIMENT) == RESULT and not old.exists()
            raise KeyboardInterrupt
    assert names(store) == [EXPERIMENT.name] and store.result(EXPERIMENT) == RESULT


@pytest.mark.parametrize("sealed_", (True, False))
def test_a_part_is_whole_if_its_result_is_sealed_and_this_experiments(store, sealed_):
    for of, whole in ((EXPERIMENT, sealed_), (OTHER, False)):
        part = store.part(EXPERIMENT)
        part.mkdir(parents=True)
        document = RESULT | {"experiment": of.document()}
        (part / "result.json").write_text(json.dumps(sealed(document, {}) if sealed_ else document))
        assert module._whole(part, EXPERIMENT) == whole
        store.prepare([EXPERIMENT])
        module._remove(part)
    part.mkdir()
    assert not module._whole(part, EXPERIMENT)


def test_nothing_is_cleared_unless_runs_are_named_and_only_what_is_theirs(store):
    store.prepare()
    mine = ["7.probe", ".x.probe", ".part.1", f"{EXPERIMENT.name}.part.1", f".{EXPERIMENT.name}.part", ".12.probe.x"]
    left = [f".{EXPERIMENT.name}.part.12", f".{OTHER.name}.part.ab3", ".12.probe"]
    for name in (*mine, *left):
        (store.root / name).touch()
    store.prepare()
    assert names(store) == sorted([*mine, *left])
    store.prepare([EXPERIMENT])
    assert names(store) == sorted(mine)


def test_a_part_alone_is_left_to_its_run(store):
    store.part(EXPERIMENT).mkdir(parents=True)
    (store.part(EXPERIMENT) / "checkpoint").touch()
    store.prepare([EXPERIMENT])
    assert names(store) == [f"{EXPERIMENT.name}.part"]
    record(store)
    store.part(EXPERIMENT).mkdir()
    store.prepare([EXPERIMENT])
    assert names(store) == [EXPERIMENT.name], "beside a run that is whole it is a leftover"


def test_what_is_removed_is_a_link_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("link", "nothing"):
        module._remove(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept" / "file").exists()
    module._empty(tmp_path / "kept", leaving=("file",))
    assert (tmp_path / "kept" / "file").exists()
    module._empty(tmp_path / "kept", leaving=())
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("fresh", (True, False))
def test_a_run_begun_anew_has_no_records_and_no_checkpoint_of_the_one_before(store, fresh):
    with pytest.raises(KeyboardInterrupt), store.recording(EXPERIMENT) as recording:
        recording.line({"event": "epoch"})
        recording.file("other", b"left")
        recording.checkpoint(lambda: pytest.fail("it is not time"))
        recording.checkpoint(lambda: {"x": torch.arange(3.0)[::2]}, now=True)
        assert sorted(path.name for path in recording.folder.iterdir()) == [
            "checkpoint",
            "experiment.json",
            "lock",
            "metrics.jsonl",
            "other",
        ]
        recording.line({"event": "lost"})
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), store.recording(EXPERIMENT, fresh=fresh) as recording:
        assert (recording.resumed is None) == fresh and not (recording.folder / "other").exists()
        assert fresh or (recording.resumed.keys() == {"x"} and recording.resumed["x"].tolist() == [0, 2])
        recording.line({"event": "next"})
        events = [line["event"] for line in read_lines(recording.folder)]
        assert events == (["next"] if fresh else ["epoch", "next"])
        recording.checkpoint(lambda: {"x": torch.ones(1)}, now=True)
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), store.recording(EXPERIMENT, fresh=False) as recording:
        assert recording.resumed["x"].tolist() == [1], "the records' checksum went on where it was left"
        raise KeyboardInterrupt


@pytest.mark.parametrize("content", ["", '{"experiment": {"meth', "{}"])
def test_what_a_killed_process_left_half_written_is_cleared(store, content):
    part = store.part(EXPERIMENT)
    part.mkdir(parents=True)
    for name in ("result.json", "experiment.json", f".checkpoint.{'a' * 16}"):
        (part / name).write_text(content)
    files = {"experiment.json", "metrics.jsonl", "result.json", "weighting.safetensors"}
    assert {path.name for path in record(store).iterdir()} == files and names(store) == [EXPERIMENT.name]
    assert store.result(EXPERIMENT) == RESULT


def test_a_run_in_the_way_of_none_keeps_the_checkpoint_until_it_is_in_its_place(store, monkeypatch):
    moves = []
    move = module._move
    seen = lambda source: sorted(path.name for path in source.iterdir())
    monkeypatch.setattr(module, "_move", lambda source, target: (moves.append(seen(source)), move(source, target)))
    with store.recording(EXPERIMENT) as recording:
        recording.checkpoint(lambda: {"x": torch.zeros(1)}, now=True)
        recording.result(RESULT)
    assert {"checkpoint", "lock"} <= set(moves[0])
    assert seen(store.path(EXPERIMENT)) == ["experiment.json", "metrics.jsonl", "result.json"]


def test_an_old_run_that_is_in_the_way_makes_way_itself(store):
    record(store)
    with store.recording(EXPERIMENT) as recording:
        (store.root / f"{EXPERIMENT.name}.old" / "inner").mkdir(parents=True)
        recording.result(RESULT)
    assert names(store) == [EXPERIMENT.name] and store.result(EXPERIMENT) == RESULT


def test_a_folder_that_is_there_and_takes_no_file_is_refused_before_any_work(store, monkeypatch):
    def refuse(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    store.prepare()
    monkeypatch.setattr(module.tempfile, "TemporaryFile", refuse)
    with pytest.raises(
        BadInput, match=r"cannot write to the folder .*: Read-only file system; choose another with --out"
    ):
        store.prepare()


def test_a_checkpoint_written_before_a_resumed_runs_next_line_is_sound(tmp_path):
    @contextlib.contextmanager
    def recording():
        with open(tmp_path / module.LINES, "a") as metrics:
            yield Recording(tmp_path, metrics, 0, "hash")

    state = lambda: {"a": torch.ones(2)}
    with recording() as first:
        first.line({"n": 0})
        first.checkpoint(state, now=True)
        first.line({"n": 1})  # and then it was killed
    with recording() as second:
        second.checkpoint(state, now=True)
        second.line({"n": 1})
        second.line({"n": 2})
    with recording() as third:
        assert torch.equal(third.resumed["a"], torch.ones(2))
        third.line({"n": 1})
    assert [line["n"] for line in read_lines(tmp_path)] == [0, 1]
