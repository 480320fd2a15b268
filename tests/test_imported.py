"""Others' results beside ours: logs in the shape Mammoth and Avalanche write them."""

import ast
import csv
import io
import json

import pytest
from typer.testing import CliRunner

from everlearn import BadInput
from everlearn.cli import app as cli
from everlearn.collection import avalanche, collect, mammoth

ROWS = [[98.0], [80.0, 90.0], [60.0, 70.0, 95.0]]  # accuracy after each of three tasks on those learned


def call(*words):
    return CliRunner().invoke(cli.app, [*map(str, words)], prog_name="everlearn")


def line(rows=ROWS, seed=0, **more):
    """A run's dictionary as Mammoth writes it, in words."""
    asked = dict(dataset="seq-cifar10", model="der", buffer_size=200, n_epochs=50, batch_size=32, lr=0.03, alpha=0.3)
    known = {
        **asked,
        **dict(seed=seed, notes=None, conf_jobnum=f"job-{seed}", device="cuda:0"),
        **more,
        **{f"accmean_task{n + 1}": sum(row) / len(row) for n, row in enumerate(rows)},
        **{f"accuracy_{j + 1}_task{n + 1}": value for n, row in enumerate(rows) for j, value in enumerate(row)},
        "cpu_memory_usage": [1.0],
        "forward_transfer": None,
    }
    return repr(known)


def log(root, *lines, setting="class-il", model="der"):
    file = root / setting / "seq-cifar10" / model / "logs.pyd"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{words}\n" for words in lines))
    return file


# Mammoth --------------------------------------------------------------------------------------------------------------


def test_mammoths_runs_have_their_figures_and_our_names_for_their_settings(tmp_path):
    log(tmp_path, line(seed=0), line(seed=1, rows=[[96.0], [84.0, 90.0], [66.0, 70.0, 95.0]]))
    log(tmp_path, line(seed=0, rows=[[99.0], [99.0, 98.0], [97.0, 96.0, 98.0]]), setting="task-il")
    (tmp_path / "mammoth.json").write_text(json.dumps(mammoth.read([tmp_path])))
    (row,) = collect([tmp_path / "mammoth.json"]).rows
    first, second = row.runs
    assert row.label == "der (mammoth)" and (first.seed, second.seed) == (0, 1)
    assert first.figures["class_il"] == {"acc": 75.0, "bwt": -29.0, "forgetting": 29.0, "fwt": None}
    assert first.matrices["class_il"] == [[98.0, None, None], [80.0, 90.0, None], [60.0, 70.0, 95.0]]
    assert first.figures["task_il"]["acc"] == 97.0 and second.figures["task_il"]["acc"] is None
    told = {"method": "der", "stream": "cifar10", "memory": 200, "epochs": 50, "batch": 32, "lr": 0.03, "tasks": 3}
    assert row.settings == told | {"alpha": 0.3}


def test_other_arguments_are_other_rows(tmp_path):
    log(tmp_path, line(), line(alpha=0.5), line(buffer_size=500))
    (tmp_path / "m.json").write_text(json.dumps(mammoth.read([tmp_path])))
    labels = [row.label for row in collect([tmp_path / "m.json"]).rows]
    assert labels == [
        "der (mammoth), M = 200, alpha = 0.3",
        "der (mammoth), M = 200, alpha = 0.5",
        "der (mammoth), M = 500",
    ]


@pytest.mark.parametrize(
    "words",
    [
        line().replace("98.0", "np.float64(98.0)").replace("'cuda:0'", "device(type='cuda', index=0)"),
        line().replace("'cuda:0'", "<some.Thing object at 0x7f00>"),
        "dict(" + ", ".join(f"{k}={v!r}" for k, v in ast.literal_eval(line()).items()) + ")",
        "Namespace(" + ", ".join(f"{k}={v!r}" for k, v in ast.literal_eval(line()).items()) + ")",
        line(rows=[[98.0, 0.0, 0.0], [80.0, 90.0, 0.0], [60.0, 70.0, 95.0]]),  # filled up when forgetting was measured
        line(rows=[[50.0], [98.0], [70.0, 70.0], [80.0, 90.0], [60.0, 70.0, 95.0]]),  # measured within tasks, too
        line().replace("'forward_transfer': None", "'forward_transfer': nan"),
    ],
)
def test_every_way_a_line_is_written_gives_the_same_figures(tmp_path, words):
    (run,) = mammoth.read([log(tmp_path, words)])["runs"]
    assert (run["class_il"]["acc"], run["class_il"]["bwt"], run["class_il"]["fwt"]) == (75.0, -29.0, None)


def test_without_accuracies_of_tasks_their_means_and_what_mammoth_says_itself_count(tmp_path):
    words = "{'model': 'er', 'dataset': 'seq-mnist', 'accmean_task1': 90.0, 'accmean_task2': 80.0, 'forgetting': 12.5}"
    (run,) = mammoth.read([log(tmp_path, words)])["runs"]
    assert run["class_il"] == {"acc": 80.0, "fwt": None, "bwt": None, "forgetting": 12.5} and run["seed"] is None


def test_lines_are_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ("__import__('os').system('touch run')", "{'a': __import__('os').system('touch run')}", "{'a': 1"):
        result = call("import", "mammoth", log(tmp_path, words))
        assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists() and not (tmp_path / "mammoth.json").exists()
    with pytest.raises(BadInput, match=r"line 2 of .* is not a dictionary"):
        mammoth.read([log(tmp_path, line(), "[" * 100_000)])


# Avalanche ------------------------------------------------------------------------------------------------------------


def table(folder, rows, untrained=None):
    """What a CSVLogger writes of accuracies after each experience on all of them."""
    folder.mkdir(parents=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["eval_exp", "training_exp", "eval_accuracy", "eval_loss", "forgetting"])
    for after, row in enumerate([untrained, *rows] if untrained else rows, start=-1 if untrained else 0):
        for on, value in enumerate(row):
            writer.writerow([on, after if after >= 0 else "None", f"{value:.4f}", "1.0", 0])
    (folder / "eval_results.csv").write_text(text.getvalue())
    return folder


def test_avalanches_runs_are_named_by_their_folders_and_have_the_figures_of_their_accuracies(tmp_path):
    square = [[0.9, 0.1], [0.5, 0.8]]
    table(tmp_path / "logs" / "replay-seed0", square, untrained=[0.05, 0.05])
    table(tmp_path / "logs" / "replay-seed1", [[0.8, 0.0], [0.6, 0.8]])
    table(tmp_path / "logs" / "naive", [[0.9], [0.1, 0.8]])
    (tmp_path / "a.json").write_text(json.dumps(avalanche.read([tmp_path / "logs"])))
    naive, replay = sorted(collect([tmp_path / "a.json"]).rows, key=lambda row: row.label)
    assert (naive.label, replay.label) == ("naive (avalanche)", "replay (avalanche)")
    assert [run.seed for run in replay.runs] == [0, 1] and naive.runs[0].seed is None
    first = replay.runs[0].figures["class_il"]
    assert (first["acc"], first["bwt"], first["fwt"]) == pytest.approx((65.0, -40.0, 5.0))
    assert naive.runs[0].matrices["class_il"] == [[90.0, None], [10.0, 80.0]]
    assert replay.runs[0].figures["task_il"]["acc"] is None
    own = avalanche.read([tmp_path / "logs" / "naive"], "task_il")["runs"][0]
    assert own["task_il"]["acc"] == 45.0 and "class_il" not in own


# What Avalanche 0.6.0 wrote of a run of ours: Replay on six digits in three experiences, two epochs each.
WRITTEN = """eval_exp,training_exp,eval_accuracy,eval_loss,forgetting
0,0,1.0000,0.0440,0
1,0,0.0000,5.5103,0
2,0,0.0000,5.9450,0
0,1,0.9889,0.1631,0
1,1,0.8889,0.6037,0
2,1,0.0000,5.4983,0
0,2,0.9556,0.2881,0
1,2,0.9333,0.5561,0
2,2,0.9231,0.5050,0
"""


def test_a_log_avalanche_wrote_is_read(tmp_path):
    (tmp_path / "er-seed0").mkdir()
    (tmp_path / "er-seed0" / "eval_results.csv").write_text(WRITTEN)
    (tmp_path / "er-seed0" / "training_results.csv").write_text("training_exp,epoch,training_accuracy\n0,0,0.8185\n")
    (run,) = avalanche.read([tmp_path])["runs"]
    assert (run["seed"], run["settings"]) == (0, {"method": "er", "tasks": 3})
    assert run["class_il"]["matrix"][1] == pytest.approx([98.89, 88.89, 0.0])
    figures = [run["class_il"][metric] for metric in ("acc", "bwt", "forgetting", "fwt")]
    assert figures[:3] == pytest.approx([93.7333, 0.0, 2.22], abs=1e-3) and figures[3] is None


@pytest.mark.parametrize("being_written", [False, True])
def test_of_an_avalanche_run_that_was_stopped_what_it_never_learned_does_not_count(tmp_path, being_written):
    rows = [[0.9, 0.1, 0.0, 0.0], [0.5, 0.7, 0.0, 0.0], *([[0.3]] if being_written else [])]
    table(tmp_path / "er-seed0", rows, untrained=[0.2, 0.0, 0.1, 0.3])
    (run,) = avalanche.read([tmp_path])["runs"]
    assert run["settings"]["tasks"] == 2, "so it is not in the row of those that came to their end"
    figures = [run["class_il"][metric] for metric in ("acc", "bwt", "fwt")]
    assert figures == pytest.approx([60.0, -40.0, 10.0])


def test_after_joint_training_avalanche_has_one_row_and_all_of_it_counts(tmp_path):
    table(tmp_path / "joint-seed0", [[0.9, 0.8, 0.7, 0.6]])
    (run,) = avalanche.read([tmp_path])["runs"]
    assert run["class_il"]["acc"] == pytest.approx(75.0) and run["settings"]["tasks"] == 4


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no columns"),
        ("a,b\n1,2\n", "has no columns eval_exp, training_exp, eval_accuracy"),
        ("eval_exp,training_exp,eval_accuracy\n0,0,tensor(1)\n", "line 2 of"),
        ("eval_exp,training_exp,eval_accuracy\n0,0,97.5\n", "line 2 of"),
        ("eval_exp,training_exp,eval_accuracy\n0,0\n", "line 2 of"),
        ("eval_exp,training_exp,eval_accuracy\n", "there is no result of avalanche"),
    ],
)
def test_what_is_no_log_is_one_sentence(tmp_path, content, sentence):
    (tmp_path / "eval_results.csv").write_text(content)
    result = call("import", "avalanche", tmp_path, "--out", tmp_path / "out.json")
    assert result.exit_code == 2 and sentence in result.stderr and result.stderr.count("\n") == 1


# The command ----------------------------------------------------------------------------------------------------------


def test_imported_rows_stand_beside_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "theirs", line())
    result = call("import", "mammoth", "theirs")
    assert result.exit_code == 0 and "1 run written to mammoth.json" in result.stdout and "75.00" in result.stdout
    ours = {"study": "mine", "rows": {"er, M = 200": {"runs": [{"seed": 0, "class_il": {"acc": 80.0}}]}}}
    (tmp_path / "ours.json").write_text(json.dumps(ours))
    found = json.loads(call("compare", "ours.json", "mammoth.json", "--against", "der (mammoth)", "--json").stdout)
    assert found["rows"]["er, M = 200"]["gain"]["mean"] == 5.0
    assert call("import", "mammoth", "theirs").exit_code == 0, "an import may be written again"
    refused = call("import", "mammoth", "theirs", "--out", "ours.json")
    assert refused.exit_code == 2 and "not an import; choose another --out" in refused.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nobody", "."], "'nobody' is not one of"),
        (["mammoth", "nowhere"], "there is no file or folder nowhere"),
        (["mammoth", "."], "there is no logs.pyd in ."),
        (["mammoth", ".", "--setting", "task_il"], "--setting is for avalanche"),
        (["avalanche", ".", "--setting", "x"], "unknown setting 'x'"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    result = call("import", *words)
    assert result.exit_code == 2 and sentence in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("folder", "method", "seed"),
    [
        ("er-epochs5", "er-epochs5", None),
        ("gss2", "gss2", None),
        ("classes100", "classes100", None),
        ("replay-seed3", "replay", 3),
        ("replay_s4", "replay", 4),
        ("replay seed=5", "replay", 5),
        ("seed6", "seed6", 6),
    ],
)
def test_the_end_of_a_word_is_no_seed(tmp_path, folder, method, seed):
    table(tmp_path / folder, [[0.9, 0.1], [0.5, 0.8]])
    (run,) = avalanche.read([tmp_path / folder])["runs"]
    assert (run["settings"]["method"], run["seed"]) == (method, seed)
