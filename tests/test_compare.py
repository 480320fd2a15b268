"""`everlearn compare`: the leaderboard in every form, and when a second path is worse than a first."""

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from statistics import fmean, stdev

import pytest
from typer.testing import CliRunner

import everlearn
from everlearn.cli import app as cli
from everlearn.collection import collect
from everlearn.report import board, safe

RESULTS = Path(__file__).parents[1] / "results"
NASTY = (
    "<script>alert(1)</script>",
    '=HYPERLINK("http://x")',
    "+1",
    "-1 --- ,, ''",
    "@SUM(A1)",
    "\t=1",
    "\x1b[31mred\x07\x1b]0;title\x07",
    "two\nlines\r\nand\u2028more",
    r"100% & $x_1^2$ ~ {a} \ #1 [b] `c` | \input{/etc/passwd} \\ %",
    "[1] * [/red] :smile:",
    "*starred* _x_ **b** [a](http://b) ![i](j)",
    "é 中 😀 ß ç ï ∑ \u202e backwards",
    '"quoted", comma; semicolon',
    "| pipe || &amp; <b>",
)


def call(*words, width=None):
    env = {} if width is None else {"COLUMNS": str(width)}
    return CliRunner().invoke(cli.app, ["compare", *map(str, words)], prog_name="everlearn", env=env)


def study(path, rows, name="mine", settings={}):
    """A study's document of Class-IL ACCs by label and seed."""
    figures = lambda acc: {"acc": acc, "bwt": -acc / 2, "forgetting": acc / 2, "fwt": 0.0}
    runs = lambda accs: [
        {"seed": seed, "seconds": 10.0 + seed, "class_il": figures(acc), "task_il": figures(99.0)}
        for seed, acc in enumerate(accs)
    ]
    found = {label: {"runs": runs(accs), "settings": settings.get(label)} for label, accs in rows.items()}
    path.write_text(json.dumps({"study": name, "rows": found}))
    return path


# The table ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_leaderboard_has_the_best_first_and_fits(width):
    result = call(RESULTS / "cifar10", "--against", "er", width=width)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= width
    text = " ".join(result.stdout.split())
    best = [json.loads(path.read_text()) for path in (RESULTS / "cifar10").glob("*consolidate-m500*.json")]
    accuracies = [run["class_il"]["acc"] for run in best]
    shown = f"{fmean(accuracies):.2f} ± {stdev(accuracies):.2f}"
    for figure in (shown, "72.11 ± 1.41", "Published: as in table1-cifar10"):
        assert figure in text
    assert result.stdout.index(shown[:5]) < result.stdout.index("73.77") < result.stdout.index("54.56")


def test_every_form_has_the_same_figures():
    found = collect([RESULTS / "cifar10"])
    row = found.row("rder, M = 200")
    gained = board.gains(found, "der++")["rder, M = 200"]
    words = RESULTS / "cifar10", "--against", "der++"
    record = json.loads(call(*words, "--json").stdout)["rows"]["rder, M = 200"]
    assert record["summary"]["class_il"]["acc"] == row.spread() and len(record["runs"]) == 5
    assert record["gain"] == {"on": "der++, M = 200", **gained[1]._asdict()}
    assert record["published"]["class_il"]["acc"] == {"mean": 65.38, "std": 0.42}
    (line,) = [of for of in csv.DictReader(io.StringIO(call(*words, "--csv").stdout)) if of["row"] == "rder, M = 200"]
    assert float(line["class_il acc mean"]) == row.spread()["mean"] and line["published class_il acc std"] == "0.42"
    assert (line["against"], float(line["gain mean"])) == ("der++, M = 200", gained[1].mean)
    assert (line["gain ahead"], line["gain seeds"]) == (str(gained[1].ahead), "3")
    assert call(RESULTS / "cifar10", "--against", "mine.py:der++", "--csv").stdout == call(*words, "--csv").stdout
    assert line["memory"] == "200" and "batch" not in line, "settings that differ, and no others"
    for form in ("--markdown", "--latex"):
        (line,) = [of for of in call(*words, form).stdout.splitlines() if "rder, M = 200" in of]
        assert re.search(r"65\.00 \S+ 0\.79", line) and re.search(r"65\.38 \S+ 0\.42", line)


def test_only_some_rows_are_compared(tmp_path):
    study(tmp_path / "one.json", {"er, M = 20": [50.0], "er, M = 50": [60.0], "gss, M = 50": [55.0]})
    study(tmp_path / "other.json", {"er, M = 20": [40.0], "er, M = 50": [60.0], "gss, M = 50": [55.0]})
    text = call(tmp_path / "one.json", "--only", "M = 50", "--against", "er, M = 50").stdout
    assert "60.00" in text and "55.00" in text and "50.00" not in text and "-5.00" in text
    pair = tmp_path / "one.json", tmp_path / "other.json", "--fail-if-worse", "acc"
    assert call(*pair).exit_code == 1 and call(*pair, "--only", "M = 50").exit_code == 0
    assert "no row has 'M = 7' in its label; the rows: " in call(tmp_path / "one.json", "--only", "M = 7").stderr


def test_only_means_the_same_for_a_study_and_for_what_was_run(tmp_path):
    labels = [f"{method}, M = {m}" for m in (50, 500) for method in ("er", "rer", "er-ace", "er+consolidate")]
    study(tmp_path / "study.json", {label: [50.0] for label in labels})
    kept = lambda *words: list(json.loads(call(tmp_path, *words, "--json").stdout)["rows"])
    assert kept("--only", "er") == kept("--only", "er, M = *") == ["er, M = 50", "er, M = 500"]
    assert kept("--only", "M = 50") == labels[:4] and kept("--only", "er*M = 500") == [*labels[4:5], *labels[6:]]
    assert kept("--only", "ace", "--only", "rer, M = 50") == ["rer, M = 50", "er-ace, M = 50", "er-ace, M = 500"]
    assert "--only needs a part of a row's label; the rows: er, M = 50; " in call(tmp_path, "--only", " ").stderr


def test_two_rows_have_their_settings_side_by_side(tmp_path):
    cifar = RESULTS / "cifar10"
    pair = [next(cifar.glob(f"cifar10-{method}-m200-e50-s0-*")) for method in ("er", "rder")]
    text = call(*pair, width=80).stdout
    assert re.search(r"warmup +25 +–", text) and re.search(r"weights +\[1, 0\.2, 0\.5\] +\[1, 1\]", text)
    assert "batch" not in text


def test_a_row_is_set_against_the_one_most_like_it():
    found = collect([RESULTS / "relation-digits.json"])
    on = {label: base for label, (base, _) in board.gains(found, "er").items()}
    assert on["rer fresh, M = 20"] == "er, M = 20" and on["rder, M = 100"] == "er, M = 100" and "er, M = 50" not in on
    assert {base for base, _ in board.gains(found, "rer fresh, M = 20").values()} == {"rer fresh, M = 20"}
    assert "no row can be compared with 'nothing'" in call(RESULTS / "digits.json", "--against", "nothing").stderr


def test_a_row_equally_like_several_has_no_gain_and_the_others_have_theirs(tmp_path):
    of = lambda method, memory: {"method": method, "stream": "digits", "memory": memory}
    settings = {f"{method}, M = {m}": of(method, m) for m in (20, 50) for method in ("er", "der++")}
    settings["finetune"] = of("finetune", 0)
    study(tmp_path / "study.json", {label: [50.0, 60.0] for label in settings}, settings=settings)
    on = {label: base for label, (base, _) in board.gains(collect([tmp_path]), "er").items()}
    assert on == {"der++, M = 20": "er, M = 20", "der++, M = 50": "er, M = 50"}
    assert call(tmp_path, "--against", "er").exit_code == 0


def test_where_every_row_is_equally_like_several_one_of_them_is_asked_for(tmp_path):
    for options in (dict(), dict(refresh_older=False)):
        everlearn.run("retain", out=tmp_path, epochs=1, tasks=2, **options)
    everlearn.run("er", out=tmp_path, epochs=1, tasks=2)
    refused = call(tmp_path, "--against", "retain")
    assert refused.exit_code == 2 and "'retain' is of several rows; choose: retain, refresh_older = " in refused.stderr
    text = call(tmp_path, "--against", "retain, refresh_older = centred", width=200).stdout
    assert text.splitlines()[-1].endswith("from retain, refresh_older = centred.")


def test_what_is_no_complete_run_is_said_and_kept_out_of_the_table(tmp_path):
    study(tmp_path / "study.json", {"er": [50.0]})
    (tmp_path / "half.part").mkdir()
    (tmp_path / "half.part" / "metrics.jsonl").write_text('{"event": "epoch"}\n')
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "result.json").write_text("{")
    (tmp_path / "torn" / "experiment.json").touch()
    shown, written = call(tmp_path), call(tmp_path, "--csv")
    assert "not complete: half, 1 epoch, last written" in shown.stdout and "damaged: " in shown.stdout
    assert "not complete" in written.stderr and "torn" in written.stderr
    touched = (tmp_path / "half.part" / "metrics.jsonl").stat().st_mtime
    assert "last written 1 second ago" in next(board.remarks(collect([tmp_path]), touched + 1))
    assert len(list(csv.reader(io.StringIO(written.stdout)))) == 2
    page = CliRunner().invoke(cli.app, ["report", str(tmp_path), "--html", str(tmp_path / "page.html")])
    assert page.stderr == written.stderr, "the report says it in the same words"
    told = json.loads(call(tmp_path, "--json").stdout)
    assert told["unfinished"][0]["name"] == "half" and told["problems"][0]["kind"] == "damaged"


def test_words_in_no_label_are_answered_with_the_rows_there_are_and_the_runs_left_out(tmp_path):
    study(tmp_path / "study.json", {f"er, M = {m}": [50.0] for m in range(1, 22)})
    for name, file in (("half.part", "metrics.jsonl"), ("torn", "experiment.json"), ("photos", "notes.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    told = call(tmp_path, "--only", "rer").stderr
    assert "no row has 'rer' in its label; the rows: er, M = 1; er, M = 2; " in told and "; er, M = 20; …; left" in told
    assert told.endswith(f"; left out: {tmp_path / 'half.part'} (not complete); {tmp_path / 'torn'} (damaged)\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "there is no file or folder nowhere"),
        ([], "there is no file or folder runs"),
        (["empty"], "there is no complete run in empty"),
        (["foreign"], "no complete run in foreign; foreign: foreign: there is no run, study or record in it"),
        (["a.json", "--csv", "--json"], "give one of them"),
        (["a.json", "--fail-if-worse", "acc"], "--fail-if-worse compares a second path with a first; 1 are given"),
        (["a.json", "b.json", "--fail-if-worse", "ac"], "unknown metric 'ac'; did you mean 'acc'?"),
        (["a.json", "c.json", "--fail-if-worse", "acc"], "no row of the one can be compared"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("foreign").mkdir()
    Path("foreign", "notes.txt").touch()
    study(Path("a.json"), {"er": [1.0]}), study(Path("b.json"), {"er": [1.0]})
    study(Path("c.json"), {"other": [1.0], "another": [1.0]})
    result = call(*words)
    assert result.exit_code == 2 and sentence in result.stderr and result.stderr.count("\n") == 1


# Worse ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "metric", "worse"),
    [
        ([50, 60, 70], [49, 59, 69], "acc", True),  # by 1 on every seed
        ([50, 60, 70], [50, 60, 70], "acc", False),
        ([50, 60, 70], [51, 61, 71], "acc", False),
        ([50, 60, 70], [40, 60, 75], "acc", False),  # the mean is lower, but not surely
        ([50, 60, 70], [49, 59, 69], "forgetting", False),  # less of it
        ([50, 60, 70], [51, 61, 71], "forgetting", True),
        ([50, 60, 70], [51, 61, 71], "bwt", True),
        ([50, 60, 70], [49, 59, 69], "task_il.acc", False),
        ([50, 60, 70], [49, 59, 69], "seconds", False),
        ([50], [49.9], "acc", True),  # one seed: the mean decides
        ([50], [50.1], "acc", False),
    ],
)
def test_a_second_path_is_worse_if_its_interval_or_of_one_seed_its_mean_is(tmp_path, before, after, metric, worse):
    paths = study(tmp_path / "before.json", {"er": before}), study(tmp_path / "after.json", {"er": after})
    result = call(*paths, "--fail-if-worse", metric)
    assert result.exit_code == (1 if worse else 0), result.output
    assert ("1 row is worse in" in result.stderr) == worse


def test_rows_are_judged_with_their_like_and_a_single_pair_whatever_it_is(tmp_path):
    before = study(tmp_path / "before.json", {"er": [50, 51], "rer": [60, 61], "gone": [1, 2]})
    after = study(tmp_path / "after.json", {"rer": [50, 51], "er": [50, 51], "new": [0, 0]})
    result = call(before, after, "--fail-if-worse", "acc")
    assert result.exit_code == 1 and "rer" in result.stderr and "everlearn: er" not in result.stderr
    assert "gone: no complete run of it in" in result.stderr and "2 rows are worse" in result.stderr
    result = call(before, after, "--fail-if-worse", "acc", "--only", "er")
    assert result.exit_code == 0 and "1 row judged by acc, none is worse in" in result.stderr
    one, other = study(tmp_path / "1.json", {"er": [50]}), study(tmp_path / "2.json", {"rer": [40]})
    assert call(one, other, "--fail-if-worse", "acc").exit_code == 1
    assert call(other, one, "--fail-if-worse", "acc").exit_code == 0


# Foreign words --------------------------------------------------------------------------------------------------------


@pytest.fixture
def nasty(tmp_path):
    return study(tmp_path / "study.json", {label: [50.0 + n] for n, label in enumerate(NASTY)}, "\x1b[2J<i>")


def visible(text):
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("width", [60, 200])
def test_nobodys_names_are_commands_in_the_terminal(nasty, width):
    result = call(nasty, "--against", NASTY[0], width=width)
    assert result.exit_code == 0 and visible(result.stdout) and visible(result.stderr)
    assert max(map(len, result.stdout.splitlines())) <= width
    assert "<script>alert(1)</script>" in result.stdout.replace("\n", "") or width == 60
    assert visible(call(nasty, "--against", "\x1b[31mno").stderr)
    assert visible(
        call(nasty, study(nasty.with_name("b.json"), {l: [0.0] for l in NASTY}), "--fail-if-worse", "acc").stderr
    )


def test_no_cell_of_a_csv_is_a_formula_and_every_row_has_its_columns(nasty):
    text = call(nasty, "--csv", "--against", NASTY[0]).stdout
    rows = list(csv.reader(io.StringIO(text)))
    assert visible(text) and len(rows) == 1 + len(NASTY) and len({*map(len, rows)}) == 1
    labels = {row[0] for row in rows[1:]}
    assert not any(label.lstrip("\ufffd ").startswith(("=", "+", "-", "@")) for label in labels)
    assert {"<script>alert(1)</script>", "'+1", '"quoted", comma; semicolon'} <= labels


def test_markdown_shows_names_as_they_are(nasty):
    lines = call(nasty, "--markdown").stdout.splitlines()
    assert len(lines) == 2 + len(NASTY) and visible("".join(lines))
    assert not any("<" in line or re.search(r"(?<!\\)[\]*_`]", line) for line in lines)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(re.findall(r"\|", lines[0]))}
    assert safe.markdown("*a* | `b` <i> &amp;") == r"\*a\* \| \`b\` &lt;i&gt; &amp;amp\;"


def test_latex_has_no_command_in_a_name(nasty):
    lines = call(nasty, "--latex").stdout.splitlines()
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert len(body) == len(NASTY) and all(line.isascii() and line.endswith(r" \\") for line in body)
    assert len({len(re.findall(r"(?<!\\)&", line)) for line in body}) == 1
    assert safe.latex(r"\input{x}_$^~%&#") == (
        r"\textbackslash{}input\{x\}\_\$\textasciicircum{}\textasciitilde{}\%\&\#"
    )
    assert safe.latex("é 中") == r"\'{e} \texttt{U+4E2D}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_a_latex_table_compiles_as_it_is(nasty, tmp_path):
    tables = [call(nasty, "--latex").stdout, call(RESULTS / "cifar10", "--latex", "--against", "er").stdout]
    for number, table in enumerate(tables):
        file = tmp_path / f"{number}.tex"
        file.write_text(
            f"\\documentclass{{article}}\\usepackage{{booktabs}}\n\\begin{{document}}\n{table}\n\\end{{document}}\n"
        )
        made = subprocess.run(
            ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", file.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0 and "Missing character" not in made.stdout, made.stdout[-2000:]


def test_the_same_is_a_page(tmp_path):
    result = call(RESULTS / "cifar100", "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert result.exit_code == 0 and text.startswith("<!DOCTYPE html>") and "rder" in text and "31.07" in text


MINE = "import everlearn\n\n\nclass Mine(everlearn.ER):\n    pass\n"


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """Runs of two versions of a method of one's own, and of ER; the file has the second, and a network is kept."""
    monkeypatch.chdir(tmp_path)
    for code, names in ((MINE, ("mine.py:Mine", "er")), (f"{MINE}# now\n", ("mine.py:Mine",))):
        Path("mine.py").write_text(code)
        for name in names:
            assert (
                CliRunner().invoke(cli.app, ["run", name, "--epochs", "1", "--memory", "20", "--quiet"]).exit_code == 0
            )


def test_of_two_versions_of_a_file_it_is_set_against_the_files_own(versions):
    found = json.loads(CliRunner().invoke(cli.app, ["compare", "runs", "--against", "Mine", "--json"]).stdout)
    now = {label for label, row in found["rows"].items() if "the file now" in row["settings"].get("method.source", "")}
    earlier = {label for label in found["rows"] if label.startswith("Mine")} - now
    assert len(now) == len(earlier) == 1 and "method.source = " in min(now)
    assert {label: row["gain"]["on"] for label, row in found["rows"].items() if "gain" in row} == {
        label: min(now) for label in ("er", *earlier)
    }
    assert found["differences"]["method.source"].keys() == now | earlier
    Path("mine.py").write_text(f"{MINE}# a third\n")
    refused = CliRunner().invoke(cli.app, ["compare", "runs", "--against", "Mine"])
    assert refused.exit_code == 2 and all(label in " ".join(refused.stderr.split()) for label in now | earlier)


def test_a_network_is_exported_though_its_methods_file_has_changed(versions):
    (run,) = [str(p.parent) for p in Path("runs").glob("*Mine*/learner.safetensors") if _earlier(p.parent)]
    assert CliRunner().invoke(cli.app, ["export", run, "net.pt"]).exit_code == 0 and Path("net.pt").exists()
    told = CliRunner().invoke(cli.app, ["memory", run]).stderr
    assert "put it back as it was, when the hash of its source was " in " ".join(told.split())


def _earlier(run):
    from everlearn import registry

    method = json.loads((run / "experiment.json").read_text())["method"]
    return registry.source_now(method["at"]) != method["source"]


OWN_STREAM = """
import everlearn

def noisy(noise: float = 0.0) -> everlearn.Stream:
    return everlearn.load("digits")
"""


def test_runs_on_other_data_are_told_apart_and_set_against_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN_STREAM)
    run = lambda method, **more: everlearn.run(method, "mine.py:noisy", epochs=1, memory=20, out="runs", **more)
    run("er", noise=0.4)
    run("der++")
    refused = call("runs", "--against", "er")
    assert refused.exit_code and "no other row is on the data of 'er'" in refused.stderr
    assert "stream.noise" in call("runs").stdout
    run("er")
    rows = json.loads(call("runs", "--against", "er", "--json").stdout)["rows"]
    gains = {label.partition(",")[0]: row["gain"]["on"] for label, row in rows.items() if "gain" in row}
    assert len(rows) == 3 and gains.keys() == {"der++"} and "noise = 0.4" not in gains["der++"]
    Path("mine.py").write_text(OWN_STREAM.replace("0.0", "0.00"))
    run("er-ace")
    (changed,) = (row for row in collect([Path("runs")]).rows if row.label.startswith("er-ace"))
    assert "stream.source = " in changed.label


def test_a_training_setting_that_only_one_method_has_is_named_among_many_rows(tmp_path):
    for method, more in (("er", {"average": 0.9}), ("der++", {}), ("finetune", {}), ("er-ace", {}), ("lwf", {})):
        everlearn.run(method, epochs=1, out=tmp_path, **more)
    assert re.search(r"average +(–|0.9) ", call(tmp_path, width=120).stdout)
