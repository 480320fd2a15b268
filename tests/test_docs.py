"""What the pages say is what the records and the code say."""

import ast
import importlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from typer.testing import CliRunner

from everlearn import ER
from everlearn.cli.app import app
from everlearn.collection import collect
from everlearn.experiments import legacy
from everlearn.experiments.experiment import Experiment
from everlearn.experiments.published import Figure
from everlearn.experiments.store import CHECKPOINT, Store
from everlearn.launchers import Job, local, perform

ROOT = Path(__file__).parents[1]
RECORDS = [
    path for of in ("cifar10", "cifar100", "similarity") for path in sorted((ROOT / "results" / of).glob("*.json"))
]
SCHEDULE = {"warmup": 25, "interval": 5}  # of 50 epochs


def test_every_table_is_what_its_record_says():
    check = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


def test_every_record_of_a_run_can_be_run_again_from_its_own_settings():
    for path in RECORDS:
        document = json.loads(path.read_text())["experiment"]
        experiment = Experiment.read(document)
        if not legacy.is_old(document):
            assert experiment.document() == document and experiment.name == path.stem
            continue
        told = {key: document[key] for key in document.keys() - {"options", "content"}} | document["options"]
        # An early record may leave its schedule open.
        told |= {key: value for key, value in SCHEDULE.items() if told.get(key, value) is None}
        told |= {"weighting": experiment.weighting.name, "width": 64}  # of which the first format does not speak
        assert json.loads(json.dumps(experiment.settings() | {"method": experiment.label})) == told, path.name


def test_the_command_line_reads_every_record_of_a_run():
    result = CliRunner().invoke(app, ["again", "--dry-run", "--json", *map(str, RECORDS)])
    assert result.exit_code == 0, result.stderr
    read = json.loads(result.stdout)
    written = [json.loads(path.read_text())["experiment"] for path in RECORDS]
    assert len(read) == len(written) >= 50
    assert [(e["memory"], e["seed"]) for e in read.values()] == [(e["memory"], e["seed"]) for e in written]
    listed = CliRunner().invoke(app, ["again", "--dry-run", *map(str, RECORDS)])
    assert listed.exit_code == 0 and all(name in listed.stdout for name in read)


def test_what_the_reproduction_lacks_is_run_and_then_on_record(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reproduce

    monkeypatch.setattr(reproduce, "RESULTS", tmp_path)
    monkeypatch.setattr(reproduce, "FOLDERS", ("digits",))
    records, epochs = tmp_path / "digits", tmp_path / "digits-epochs"
    (tmp_path / "mine.toml").write_text(
        "seeds = 1\n[[grid]]\nmethod = ['er', 'rer', 'er+consolidate']\nstream = 'digits'\nepochs = 2\nmemory = 20\n"
    )
    wanted = [
        ("both", str(tmp_path / "mine.toml"), "r?er", 1),
        ("one of them again", str(tmp_path / "mine.toml"), "rer", 2),
    ]
    for name, value in (("PLAN", wanted), ("DEVICE", "cpu"), ("PRECISION", "float32")):
        monkeypatch.setattr(reproduce, name, value)
    monkeypatch.setattr(reproduce, "UNKNOWN", 10.0)

    def told(*words):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", "--out", str(tmp_path / "runs"), *words])
        reproduce.main()
        return capsys.readouterr().out

    assert "both: 0 on record, 2 to run, about 20 minutes\none of them again: 0 on record, 1 to run" in told()
    told("--data", str(tmp_path), "--minutes", "12")
    assert [path.name[:9] for path in records.iterdir()] == ["digits-er"]  # the second does not fit
    told("--data", str(tmp_path))
    assert {e.label: e.seed for e in reproduce.recorded()} == {"er": 0, "rer": 1} and len(reproduce.recorded()) == 3
    curves = [json.loads(path.read_text()) for path in epochs.iterdir()]
    assert [len(curve["task"]) for curve in curves] == [10, 10] and all(curve["phase"].count("r") for curve in curves)
    weighed = {row.runs[0].title: {*row.runs[0].validated} for row in collect([records]).rows}
    assert weighed == {"er": set(), "rer": {"new", "memory"}}, "the points of Fig. 5 are on record"
    assert "both: 2 on record, 0 to run" in told()
    for path in records.iterdir():
        path.unlink()
    assert "both: 2 on record, 0 to run" in told()  # the runs themselves are still there


def test_candidates_are_chosen_on_held_out_images_and_the_chosen_one_goes_to_the_test(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import flagship

    def each(rows, stream="digits", **settings):
        return (Experiment.of(stream="digits", network="mlp", **row | settings) for row in rows.values())

    monkeypatch.setattr(flagship, "each", each)
    monkeypatch.setattr(flagship, "STREAMS", ("digits",))

    def told(*words):
        places = ["--out", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
        monkeypatch.setattr(sys, "argv", ["flagship.py", *words, *places])
        flagship.main()
        return capsys.readouterr().out

    settings = ["--device", "cpu", "--epochs", "1", "--memory", "20", "--seeds", "3"]
    assert "3 to run now" in told("final", "ablation", *settings, "--only", "retain|without the average")
    on = lambda where: {json.loads(path.read_text())["experiment"]["stream"]["name"] for path in where.iterdir()}
    assert on(tmp_path / "records" / "digits") == {"digits"}
    assert on(tmp_path / "records" / "flagship" / "ablation") == {"everlearn.experiments.tune:validation"}
    rows = [line.partition(":")[0] + line.split(",")[0].partition(":")[2] for line in told("show").splitlines()]
    assert sorted(rows) == ["ablation retain", "ablation without the average", "digits retain"]
    assert "0 to run now" in told("final", *settings)
    small = ["--stream", "digits", "--memory", "20", "--seeds", "100", "--only", "(retain|without the rule), M = .*"]
    told("small", "--on", "ablation", *small)
    document = json.loads((tmp_path / "records" / "flagship" / "digits-ablation.json").read_text())
    assert list(document["rows"]) == ["retain, M = 20", "without the rule, M = 20"]


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [((0.4, 0, 0.4, 0.8), "other"), ((0.2, 0.2, 0.2, 0.2), "retain"), ((0, -1.1, 0.5, 5), "retain")],
)
def test_a_candidate_becomes_the_default_if_it_gains_on_average_and_loses_little_anywhere(gains, chosen, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import flagship

    streams = ("digits", "fashion-mnist", "cifar10", "cifar100")
    default = dict(zip(streams, (94.0, 77.0, 76.0, 44.0)))
    other = {stream: default[stream] + gain for stream, gain in zip(streams, gains)}
    rows = {"retain": default, "other": other, "not run everywhere": {"digits": 99.0}}
    assert flagship.choice(rows, "retain") == chosen
    assert flagship.choice(flagship.standing(), "retain, second form") == "retain", "as the records have it"


def test_one_training_of_a_candidate_is_tested_as_several_averages(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import candidates

    monkeypatch.setattr(candidates, "FOLDER", tmp_path)
    words = "--stream digits --network mlp --epochs 1 --device cpu --precision float32 --pack 2 --seeds 100"
    only = ["--only", "digits: retain(, own samples refreshed)?"]
    for said in ("2 to run", "0 to run"):
        monkeypatch.setattr(sys, "argv", ["candidates.py", *words.split(), *only])
        candidates.main()
        assert said in capsys.readouterr().out
    found = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert {candidates.label(Experiment.parse(run["experiment"])) for run in found} == {
        "retain",
        "retain, own samples refreshed",
    }
    for run in found:
        averages = run["averages"]
        assert {*averages} == {"none", "0.999", "quarter", "half", "whole"} and len(averages["none"]["means"]) == 5
        assert fmean(averages["half"]["head"]) == pytest.approx(run["class_il"]["acc"]), "which is the one tested"


def test_a_run_the_time_cut_off_goes_on_elsewhere(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reproduce

    monkeypatch.setattr(reproduce, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(reproduce, "FOLDERS", ("digits",))
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "0")
    (tmp_path / "mine.toml").write_text("[[grid]]\nmethod = 'er'\nstream = 'digits'\nepochs = 2\nmemory = 20\n")
    plan = [("one", str(tmp_path / "mine.toml"), "er", 1)]
    for name, value in (("PLAN", plan), ("DEVICE", "cpu"), ("PRECISION", "float32")):
        monkeypatch.setattr(reproduce, name, value)
    words, perform = ["--data", str(tmp_path), "--carry", str(tmp_path / "carried")], reproduce.perform
    monkeypatch.setattr(reproduce, "PIECE", 20_000)

    def run(out: str) -> None:
        monkeypatch.setattr(sys, "argv", ["reproduce.py", "--out", str(tmp_path / out), *words])
        reproduce.main()

    def cut_off(todo, store, report, **more):
        lines = []
        tell = lambda e, line: (report(e, line), lines.append(line), len(lines) > 4 and sys.exit("the time is up"))
        return perform(todo, store, report=tell, **more)

    monkeypatch.setattr(reproduce, "perform", cut_off)
    with pytest.raises(SystemExit, match="the time is up"):
        run("here")
    assert not (tmp_path / "results").exists() and not (tmp_path / "there").exists()
    sizes = [piece.stat().st_size for piece in reproduce.pieces(tmp_path / "carried")]
    assert len(sizes) > 2 and set(sizes[:-1]) == {20_000} and 0 < sizes[-1] <= 20_000
    monkeypatch.setattr(reproduce, "perform", perform)
    run("there")
    (record,) = (json.loads(path.read_text()) for path in (tmp_path / "results" / "digits").iterdir())
    assert record["provenance"]["resumed"] == 1
    assert not list(tmp_path.glob("carried.*")), "nothing is left unfinished"


def test_the_end_of_the_time_ends_what_is_under_way(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reproduce

    with pytest.raises(SystemExit, match="the time is up"), reproduce.ending(0.001):
        signal.pause()
    with reproduce.ending(0.001):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_at_the_end_of_the_time_every_run_under_way_leaves_the_step_it_is_at(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setenv("EVERLEARN_CHECKPOINT", "1000")
    import reproduce

    def up(method, step, terms):
        remember(method, step, terms)
        if step.number == 5:
            signal.raise_signal(signal.SIGALRM)  # in the middle of a step

    remember, todo = ER.remember, [Experiment.of("er", epochs=2, memory=20, seed=seed) for seed in range(3)]
    job = Job(Store(tmp_path / "runs"))
    monkeypatch.setattr(ER, "remember", up)
    with pytest.raises(SystemExit, match="the time is up"), reproduce.ending(1):
        list(local.pack_up(todo, job, lambda experiment, record: None, pack=3))
    monkeypatch.setattr(ER, "remember", remember)
    lines = []
    results = perform(todo, job.store, jobs=1, report=lambda experiment, line: lines.append(line))
    assert [line["step"] for line in lines if line["event"] == "resumed"] == [6, 4, 3]
    assert [r["class_il"] for r in results] == [r["class_il"] for r in perform(todo, Store(tmp_path / "whole"), jobs=1)]


def test_begun_runs_go_first_then_long_ones(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reproduce

    one, two, three, four = (Experiment.of("er", epochs=1, seed=seed) for seed in range(4))
    plan = [("", 0, {one: 2.0, two: 5.0}), ("", 0, {three: 4.0, four: 3.0})]
    monkeypatch.setattr(reproduce, "progress", lambda: iter(plan))
    store = Store(tmp_path)
    assert reproduce.chosen(11, store) == [two, three, one], "by value: 2 + 5 + 4, and the last does not fit"
    store.part(four).mkdir()
    (store.part(four) / CHECKPOINT).touch()
    (store.part(four) / "metrics.jsonl").write_text('{"event": "epoch"}\n' * 3)  # of five: 1.2 of 3 minutes are left
    assert reproduce.chosen(8.3, store) == [four, two, one]
    assert reproduce.chosen(1.5, store) == [four]


def test_a_run_no_time_is_long_enough_for_is_begun_if_it_can_be_carried(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reproduce

    one, two, three = (Experiment.of("er", epochs=1, seed=seed) for seed in range(3))
    monkeypatch.setattr(reproduce, "progress", lambda: iter([("", 0, {one: 4.0, two: 50.0, three: 50.0})]))
    store = Store(tmp_path)
    assert reproduce.chosen(10, store) == [one]
    assert reproduce.chosen(10, store, carried=True) == [two, one]
    assert reproduce.chosen(7, store, carried=True) == [one], "less than half of the time is left"


def test_what_is_taken_up_does_not_replace_what_has_got_further(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reproduce

    store, (one, two) = Store(tmp_path / "out"), (Experiment.of("er", epochs=1, seed=seed) for seed in range(2))
    for experiment, epochs in ((one, 1), (two, 3)):
        store.part(experiment).mkdir(parents=True)
        (store.part(experiment) / CHECKPOINT).write_text("older")
        (store.part(experiment) / "metrics.jsonl").write_text('{"event": "epoch"}\n' * epochs)
    reproduce.pack_up(tmp_path / "carried", [one], store, 2**20)
    (store.part(one) / CHECKPOINT).write_text("newer")
    reproduce.unpack(tmp_path / "carried", store.root)
    assert (store.part(one) / CHECKPOINT).read_text() == "newer"
    reproduce.unpack(tmp_path / "carried", tmp_path / "elsewhere")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [store.part(one).name], "two is not wanted"
    reproduce.pack_up(tmp_path / "carried", [one, two], store, room=70)  # bytes: for one of them
    reproduce.unpack(tmp_path / "carried", tmp_path / "third")
    assert [path.name for path in (tmp_path / "third").iterdir()] == [store.part(two).name], "which got further"


def first(curves, epochs: int):
    """The first epochs of a record's curves."""
    return {k: first(v, epochs) for k, v in curves.items()} if isinstance(curves, dict) else curves[:epochs]


def test_the_page_can_be_made_of_every_record_that_is_planned(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import generate
    import reproduce

    (some, *_), bound = (ROOT / "results" / "cifar10").glob("*er-m200*"), dict(bwt=None, forgetting=None, fwt=None)
    document = json.loads(some.read_text())
    (weighed, *_) = (ROOT / "results" / "cifar100-epochs").glob("*-rder-*")
    curves = json.loads(weighed.read_text())
    curves.pop("seal")
    wanted = {e for _, *of in reproduce.PLAN for row in reproduce.rows(*of).values() for e in row}
    for experiment in wanted:
        of = {key: document[key] | (bound if experiment.label == "joint" else {}) for key in ("class_il", "task_il")}
        record = document | of | {"experiment": experiment.document()}
        record.pop("seal")
        reproduce.write(experiment, tmp_path / reproduce.folder(experiment), record, 1)
        if experiment.weighting.get("warmup") is not None:
            passed = sum(task < experiment.stream["tasks"] for task in curves["task"])
            reproduce.write(
                experiment, tmp_path / f"{reproduce.folder(experiment)}-epochs", first(curves, passed), None
            )
    monkeypatch.setattr(reproduce, "RESULTS", tmp_path)
    page = generate.filled((ROOT / "docs" / "reproduction.md").read_text())
    assert page.count("| 65.38 ± 0.42 |") >= 1 and "`rder`, warmup 17" in page and "`der+++vanilla`" in page
    assert not any(lacking for _, _, lacking in reproduce.progress())
    tables = [line.split(" | ") for line in generate.TABLES["reproduction-tables"]().splitlines()[2:]]
    assert len(tables) == len(reproduce.TABLES)
    planned = {table[0].strip("| "): table[1].split(" / ") for table in tables}
    assert planned.pop("I, Tiny-ImageNet") == ["3", "29"], "of these three methods at one memory size"
    assert all(run == every for run, every in planned.values()), "the plan leaves no other cell of the paper out"
    assert all(table[-1] == "0 |" for table in tables)


def test_what_a_page_explains_is_what_it_lists(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    from tables import reproduction

    beyond = {(cell.study, cell.label) for cell in reproduction.rows_run().values() if abs(cell.apart) > 2}
    assert reproduction.WHY.keys() <= beyond, "an explanation of a row that is no longer beyond two deviations"


@pytest.mark.parametrize("seeds", [1, 3, 5])
def test_how_often_a_row_is_beyond_by_chance_is_what_a_simulation_says(seeds, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    from tables.reproduction import Cell

    rng = np.random.default_rng(0)
    theirs, ours = rng.normal(size=(200_000, 5)), rng.normal(size=(200_000, seeds)).mean(axis=1)
    beyond = abs(ours - theirs.mean(axis=1)) > 2 * theirs.std(axis=1, ddof=1)
    cell = Cell("", "", "", Figure(0, 1), [{"class_il": {"acc": 0.0}}] * seeds)
    assert cell.by_chance == pytest.approx(beyond.mean(), abs=0.003)


SCRIPTS = {path.stem for path in (ROOT / "docs").glob("*.py")} - {"conf"}  # which is Sphinx's


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_every_script_of_the_docs_can_be_started(script, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    importlib.import_module(script)


def test_the_readmes_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, names)
    assert names["learner"].tasks == 2 and names["learner"].classes_.tolist() == ["down", "up", "far"]
    assert names["learner"].score(names["x"], names["y"]) > 0.85, "what it says is still there"
    assert names["later"].prequential.samples == 32 and (tmp_path / "model" / "learner.safetensors").exists()


def lines(file: str) -> int:
    """Lines of a source file, blank ones, imports and `@checked` not counted."""
    text = (ROOT / "src" / "everlearn" / file).read_text()
    checked = lambda node: isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    found = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom) or checked(n)]
    imports = {number for node in found for number in range(node.lineno, node.end_lineno + 1)}
    counted = (line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in imports)
    return sum(line not in ("", "@checked") for line in counted)


def test_the_files_named_for_one_step_have_the_lines_the_page_says():
    text = (ROOT / "docs" / "design.md").read_text()
    sentence = re.search(r"To know one DER\+\+ step, read (.*?): (\d+) lines", text, flags=re.DOTALL)
    files = re.findall(r"`([\w/]+\.py)`", sentence[1])
    assert sum(map(lines, files)) == int(sentence[2]) < 300


def test_every_line_of_code_fits_its_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    import build_site

    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("[!_]*.md"), *(ROOT / "docs").glob("[!_]*/*.md")]
    text = "\n".join(page.read_text() for page in pages)
    blocks = re.findall(r"^```.*?^```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) > 50
    assert not [line for block in blocks for line in block.splitlines() if len(line) > build_site.WIDTH]


def test_every_command_in_the_readme_exists():
    shell = "".join(re.findall(r"```\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL))
    words = set(re.findall(r"^everlearn (\w+)", shell, flags=re.MULTILINE))
    assert words >= {"run", "compare"}
    for word in words:
        assert CliRunner().invoke(app, [word, "--help"]).exit_code == 0, word


def test_the_readme_is_short_and_its_lines_are_wrapped():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150 and all(len(line) <= 130 for line in text.splitlines() if line[:1] != "|")
