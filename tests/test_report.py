"""The page about many runs: its data are the records', and what a browser shows of them."""

import json
import math
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import HOSTILE, RESULTS, Visit, browser, dangerous, make  # noqa: F401
from typer.testing import CliRunner

import everlearn
from everlearn.cli.app import app
from everlearn.collection import collect
from everlearn.report import explain
from everlearn.report.web import figures
from everlearn.report.web import page as web
from everlearn.report.web.data import block

NEEDED = pytest.mark.skipif(not web.charts(), reason="needs everlearn[report]")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "runs")


def written(paths, file):
    file.write_text(web.page([str(path) for path in paths]), encoding="utf-8")
    return file.as_uri()


def read(html):
    """The data block of a page."""
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])


# Data -----------------------------------------------------------------------------------------------------------------


def test_the_data_block_is_what_the_records_say():
    found = collect([RESULTS / "cifar10", RESULTS / "again"], index=False)
    data = block(found, ["results"])
    assert len(data["rows"]) == len(found.rows)
    for of in data["rows"]:
        row = found.row(of["full"])
        assert [run["seed"] for run in of["runs"]] == [run.seed for run in row.runs] and of["again"] == [*row.repeated]
        for setting in ("class_il", "task_il"):
            for metric in ("acc", "forgetting"):
                ours, theirs = of["figures"][setting][metric], row.spread(metric, setting)
                assert (ours is None) == (theirs is None)
                assert ours is None or math.isclose(ours["mean"], theirs["mean"], abs_tol=1e-6)
        if row.published:
            assert of["published"]["class_il"]["acc"] == list(row.published["class_il"]["acc"])
    for record in data["sets"]["matrix"]:
        full = next(row["full"] for row in data["rows"] if row["id"] == record["row"])
        matrices = [run.matrices[record["setting"]] for run in found.row(full).runs]
        mean = [[sum(cells) / len(matrices) for cells in zip(*rows)] for rows in zip(*matrices)]
        assert record["mean"] == [[pytest.approx(value, abs=0.005) for value in row] for row in mean]
    assert [data_label(data, name).split(",")[0] for name in pair_of(data, "rer, ")] == ["er", "rer"]


def data_label(data, name):
    return next(row["label"] for row in data["rows"] if row["id"] == name)


def pair_of(data, label):
    return next(pair for pair in data["pairs"] if data_label(data, pair[1]).startswith(label))


def test_a_row_is_beside_the_baseline_as_it_is_by_default_where_several_are_equally_near(tmp_path):
    small = dict(out=tmp_path, epochs=2, classes=["0", "1", "2", "3"], tasks=2, memory=20)
    for method, options in (("er", {}), ("er", {"weights": (1, 4.42)}), ("er", {"weights": (1, 0.1)}), ("rer", {})):
        everlearn.run(method, **small | options)
    data = block(collect([tmp_path]), [])
    ((base, _),) = data["pairs"]
    assert data_label(data, base) == "er, weights = [1, 1]"


def dense(confusion, classes: int = 4) -> list[list[int]]:
    """A row per true class, a column per predicted one."""
    matrix = [[0] * classes for _ in range(classes)]
    for true, predicted, count in zip(*confusion):
        matrix[true][predicted] = count
    return matrix


def test_what_classes_lost_is_what_the_confusions_say(made):
    found = collect([made])
    for record in block(found, [])["sets"]["classes"]:
        runs = found.row(record["label"]).runs
        for end, key in ((-1, "last"),):
            sums = [[sum(of) for of in zip(*rows)] for rows in zip(*(dense(r.ends[end].confusion) for r in runs))]
            right = [100 * row[i] / sum(row) for i, row in enumerate(sums)]
            assert record[key] == [pytest.approx(value, abs=0.005) for value in right]
        assert all(best >= last for best, last in zip(record["best"], record["last"]))
        assert all(points > 0 for to in record["to"] for _, points in to)


def test_the_response_and_the_weights_at_the_end_are_those_of_the_explained_run(made):
    sets = block(collect([made]), [])["sets"]
    folders = sorted(made.glob("*-rer-*"))
    explained = explain.read(folders[0]).surface
    assert [record["term"] for record in sets["surface"]] == [*explained.weights] == ["new", "memory"]
    for record in sets["surface"]:
        assert record["label"] == "rer" and record["seed"] == 0 and record["top"] == explained.top
        assert record["x"] == record["y"] == pytest.approx(explained.losses, abs=1e-4)
        for ours, theirs in zip(record["weight"], explained.weights[record["term"]], strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)
    ends = [of for of in sets["runs"] if of["setting"] == "class_il" and "to_new" in of]
    weights = [explain.read(folder).tasks[-1].validation for folder in folders]
    assert [(of["to_new"], of["to_old"]) for of in ends] == [
        (pytest.approx(of["new"], abs=1e-4), pytest.approx(of["memory"], abs=1e-4)) for of in weights
    ]
    assert {of["full"] for of in ends} == {"rer"}


def test_a_net_that_is_damaged_or_gone_leaves_its_chart_out_and_the_rest_in(made, tmp_path):
    root = shutil.copytree(made, tmp_path / "runs")
    for folder, harm in zip(sorted(root.glob("*-rer-*")), (lambda f: f.write_bytes(b"no net"), lambda f: f.unlink())):
        harm(folder / "weighting.safetensors")
    assert len(collect([root]).problems) == 2, "such runs are not believed"
    sets = block(collect([root], edited=True), [])["sets"]
    assert not sets["surface"] and sets["weights"], "unless told to"


@NEEDED
def test_the_weights_in_a_studys_document_are_the_points_of_its_figure():
    file = RESULTS / "similarity-digits.json"
    runs = [
        run for label, row in json.loads(file.read_text())["rows"].items() if "rer, " in label for run in row["runs"]
    ]
    spec = dict(figures.figures(web.of_paths([str(file)], ["rer"])))["similarity"]
    points = [(of["to_new"], of["to_old"]) for of in spec["datasets"]["runs"]]
    assert sorted(points) == sorted(
        (round(r["validation"]["new"], 4), round(r["validation"]["memory"], 4)) for r in runs
    )
    assert len({of["full"] for of in spec["datasets"]["runs"]}) == 2


def test_accuracies_that_others_did_not_measure_are_left_out(made):
    found = collect([made])
    run = replace(found.rows[0].runs[0], matrices={"class_il": [[90.0, None], [80.0, 70.0]]})
    sets = block(replace(found, rows=(replace(found.rows[0], runs=(run,)),)), [])["sets"]
    assert sets["matrix"][0]["mean"] == [[90, None], [80, 70]] and sets["average"][0]["mean"] == [90, 75]
    assert (sets["runs"][0]["learned"], sets["runs"][0]["kept"]) == (90, 80)


def test_names_made_of_html_and_scripts_stay_inside_the_data_block(made, tmp_path):
    html = web.page([str(dangerous(made, tmp_path))])
    data = read(html)
    assert HOSTILE in {row["label"] for row in data["rows"]} and "<img src=x" not in html
    assert any(HOSTILE in problem["why"] for problem in data["problems"])


def test_without_the_extra_the_page_has_tables_and_says_what_is_missing(made, monkeypatch):
    monkeypatch.setattr(web, "charts", lambda: False)
    html = web.page([str(made)])
    assert "pip install &#39;everlearn[report]&#39;" in html or "pip install 'everlearn[report]'" in html
    assert len(html) < 100_000 and len(read(html)["rows"]) == 2


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_page_without_charts_is_said_to_be_one_on_stderr(command, made, tmp_path, monkeypatch):
    given = [command, str(made), "--html", str(tmp_path / "page.html")]
    with monkeypatch.context() as patched:
        patched.setattr(web, "charts", lambda: False)
        done = CliRunner().invoke(app, given)
    assert done.exit_code == 0 and "no charts" in done.stderr and "pip install 'everlearn[report]'" in done.stderr
    monkeypatch.setattr(web, "charts", lambda: True)
    monkeypatch.setattr(web, "rendered", lambda data: "page")
    assert "no charts" not in CliRunner().invoke(app, given).stderr


@NEEDED
def test_a_page_of_200_runs_of_ten_tasks_has_at_most_two_megabytes(tmp_path):
    matrix = [[(7 * i + 3 * j) % 100 + 0.125 for j in range(10)] for i in range(10)]
    of = {"acc": 50.123, "bwt": -1.25, "forgetting": 1.5, "fwt": 0.5, "matrix": matrix}
    rows = {
        f"row {n}": {"runs": [{"seed": seed, "class_il": of, "task_il": of, "seconds": 9.5} for seed in range(2)]}
        for n in range(100)
    }
    (tmp_path / "study.json").write_text(json.dumps({"study": "large", "rows": rows}))
    begun = time.monotonic()
    html = web.page([str(tmp_path)])
    assert len(html.encode()) <= 2_000_000 and time.monotonic() - begun < 60
    assert len(read(html)["sets"]["matrix"]) == 200


def test_the_command_writes_the_page_and_answers_wrong_input_in_a_sentence(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = lambda *words: CliRunner().invoke(app, ["report", *map(str, words)])
    done = call(made, "--html", "page.html", "--only", "rer")
    assert done.exit_code == 0 and "written to page.html" in done.stdout
    assert [row["label"] for row in read(Path("page.html").read_text())["rows"]] == ["rer"]
    for form in ("--csv", "--markdown", "--latex"):
        table = call(made, form)
        assert table.stdout == CliRunner().invoke(app, ["compare", str(made), form]).stdout and "rer" in table.stdout
    both = call(made, "--markdown", "--html", "again.html")
    assert both.stdout.startswith("|") and "written to again.html" in both.stderr
    Path("empty").mkdir()
    nothing = call("empty", "--html", "none.html")
    assert nothing.exit_code == 0 and "`everlearn run er --out empty` makes one" in nothing.stderr
    for words, sentence in (
        ((), "there is no file or folder runs"),
        ((made, "--csv", "--latex"), "one table each"),
        ((made, "--only", "nothing"), "no row has 'nothing' in its label; the rows: er; rer"),
        ((made, "--html", "no/where.html"), "No such file or directory"),
    ):
        failed = call(*words)
        assert failed.exit_code in (1, 2) and sentence in failed.stderr and failed.stderr.count("\n") == 1


@NEEDED
def test_the_published_page_is_of_the_records_in_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(RESULTS.parent / "docs")
    import publish

    data = read(publish.publish(Path("site")).read_text())
    assert (tmp_path / "site" / "report.html").stat().st_size < 2_000_000 and not data["problems"]
    rows = collect([RESULTS / "cifar10", RESULTS / "cifar100"], index=False).rows
    assert {row["stream"].split(",")[0] for row in data["rows"]} == {"cifar10", "cifar100"}
    means = {round(row["figures"]["class_il"]["acc"]["mean"], 4) for row in data["rows"]}
    assert {round(row.spread()["mean"], 4) for row in rows} <= means


@NEEDED
def test_figures_are_the_same_charts_as_svg_and_pdf(made, tmp_path):
    (tmp_path / "runs").mkdir()
    data = web.of_paths([str(dangerous(made, tmp_path / "runs"))])
    names = dict(figures.figures(data))
    assert {name.split("-")[0] for name in names} == {*figures.SOME, *figures.ONE, "pair", "similarity"}
    assert all(re.fullmatch(r"[a-z0-9+._-]+", name) for name in names)
    keep = {"average", "confusion", "classes", "runs"}
    data["sets"] = {name: records if name in keep else [] for name, records in data["sets"].items()}
    data["rows"] = data["rows"][:2]
    written = figures.write(data | {"pairs": []}, tmp_path / "figures")
    assert len(written) == 2 * len(list(figures.figures(data | {"pairs": []}))) >= 12
    for file in (tmp_path / "figures").iterdir():
        if file.suffix == ".svg":
            root = ElementTree.fromstring(file.read_text())
            assert root.tag.endswith("svg") and not [e for e in root.iter() if e.tag.endswith(("img", "script"))]
        else:
            assert file.read_bytes().startswith(b"%PDF")


def test_figures_without_the_extra_are_refused_in_a_sentence(made, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "charts", lambda: False)
    failed = CliRunner().invoke(app, ["report", str(made), "--figures", str(tmp_path / "f")])
    assert failed.exit_code == 2 and "pip install 'everlearn[report]'" in failed.stderr


# In a browser ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def visit(browser, made, tmp_path_factory):  # noqa: F811
    if not web.charts():
        pytest.skip("needs everlearn[report]")
    opened = Visit(browser, written([made], tmp_path_factory.mktemp("page") / "page.html"))
    yield opened
    opened.close()


def test_a_page_without_charts_has_no_headings_with_nothing_under_them(browser, made, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(web, "charts", lambda: False)
    page = browser.new_page()
    page.goto(written([made], tmp_path / "page.html"))
    shown = page.locator("h2:visible").all_text_contents()
    assert "What did it cost?" in shown and "What is in the memory?" not in shown
    assert not page.locator("[data-with]:visible").count()
    page.close()


def test_the_page_is_quiet_and_asks_for_nothing(visit):
    assert not visit.said and all(url.startswith(("file:", "data:")) for url in visit.asked)
    assert len([url for url in visit.asked if url.startswith("file:")]) == 1


def test_values_read_back_from_the_page_are_the_records(visit, made):
    found = collect([made])
    shown = dict(zip(visit.page.locator("#leaderboard .pick").all_text_contents(), visit.column("acc.class_il")))
    told = {row.label: row.spread() for row in found.rows}
    assert shown == {label: f"{of['mean']:.2f} ± {of['std']:.2f}" for label, of in told.items()}
    for gain in [g for g in visit.column("gain") if g != "measured on this"]:
        ours = found.row("rer").gain(found.row("er"))
        sign = "+" if ours.mean > 0 else ""
        expected = f"{sign}{ours.mean:.2f} ± {ours.half_width:.2f} ({ours.ahead} of {ours.seeds})"
        assert gain == expected.replace("-", "−")
    cells = {(c["task"], c["after"]): c["mean"] for c in visit.shown("matrix-base")}
    runs = found.row("er").runs
    for (task, after), mean in cells.items():
        values = [run.matrices["class_il"][after - 1][task - 1] for run in runs]
        assert mean == pytest.approx(sum(values) / len(values), abs=0.005)
    assert len(cells) == 4
    memory = {(c["after"], c["place"]): c["count"] for c in visit.shown("memory-other")}
    ends = [run.ends for run in found.row("rer").runs]
    for (after, place), count in memory.items():
        assert count == pytest.approx(sum(of[after - 1].memory[place] for of in ends) / 2, abs=0.005)
    assert {c["term"] for c in visit.shown("weights-other")} == {"new", "memory"}
    for number, term in enumerate(("new", "memory")):
        cells = [c for c in visit.shown(f"surface-other-{number}") if "left" in c]
        explained = explain.read(next(made.glob("*-rer-*-s0-*"))).surface
        assert {c["term"] for c in cells} == {term} and len(cells) == len(explained.losses) ** 2
        assert min(c["weight"] for c in cells) == pytest.approx(explained.spans[term][0], abs=1e-4)
    assert len(visit.shown("similarity")) == 2 and {c["full"] for c in visit.shown("similarity")} == {"rer"}


def test_sorting_toggles_and_links_work_with_the_keyboard_too(visit):
    start = visit.page.url
    names = lambda: visit.page.locator("#leaderboard .pick").all_text_contents()
    visit.act('[data-key="sort label"]', "press", "Enter")
    assert names() == ["er", "rer"]
    visit.act('[data-key="sort label"]', "press", "Enter")
    assert names() == ["rer", "er"] and "sort=-label" in visit.page.url
    assert visit.page.evaluate("document.activeElement.dataset.key") == "sort label", "the focus stays"
    visit.act('#leaderboard input[aria-label="draw er"]', "press", "Space")
    assert {record["label"] for record in visit.shown("average")} == {"rer"}
    visit.act('.pick:has(> .part:text-is("rer"))')
    visit.act("#task_il", "check")
    link, seen = visit.page.url, (names(), visit.column("gain"), visit.shown("average"))
    assert {record["setting"] for record in seen[2]} == {"task_il"}
    visit.go(start)
    visit.go(link)
    assert (names(), visit.column("gain"), visit.shown("average")) == seen
    assert visit.page.locator("tr.base .pick").text_content() == "rer" and visit.page.locator("#task_il").is_checked()
    visit.go(start.split("#")[0])


def test_rows_of_one_size_of_memory_are_set_against_each_other(browser, made, tmp_path):  # noqa: F811
    runs = shutil.copytree(made, tmp_path / "runs")
    make(make(runs, memory=40), ("finetune",))
    other = Visit(browser, written([runs], tmp_path / "page.html"))
    labels = lambda: sorted(other.page.locator("#leaderboard .pick").all_text_contents())
    everything = ["er, M = 20", "er, M = 40", "finetune", "rer, M = 20", "rer, M = 40"]
    assert labels() == everything
    other.act("#memory", "select_option", "40")
    seen = [label for label in everything if "20" not in label]  # what has no memory stands beside each size
    assert labels() == seen and {record["label"] for record in other.shown("average")} == {*seen}
    assert other.page.locator("tr.base .pick").text_content() == "er, M = 40"
    other.act('#leaderboard input[aria-label="draw finetune"]', "press", "Space")
    link = other.page.url
    other.act("#memory", "select_option", "")
    assert labels() == everything and "memory" not in other.page.url
    again = Visit(browser, link)
    assert again.page.locator("#memory").input_value() == "40" and {r["label"] for r in again.shown("average")} == {
        *seen[::2]
    }
    assert not other.said + again.said
    again.close()
    other.close()


def test_a_link_to_one_size_of_memory_leads_to_the_rows_that_were_compared(browser, made, tmp_path):  # noqa: F811
    runs = shutil.copytree(made, tmp_path / "runs", ignore=shutil.ignore_patterns("*-rer-*"))
    make(runs, ("er", "finetune"), memory=40)
    page = Visit(browser, written([runs], tmp_path / "page.html"))
    for size in ("20", "40"):
        page.act("#memory", "select_option", size)
        chosen = f"er, M = {size}", "finetune"
        for key, label in zip(("base", "other"), chosen):
            page.page.locator(f"#{key}").select_option(label=label)
            page.settled()
        again = Visit(browser, page.page.url)
        assert again.page.locator("#base option:checked, #other option:checked").all_text_contents() == [*chosen]
        again.close()
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_what_one_of_two_rows_has_fills_the_page(browser, visit, width):  # noqa: F811
    other = Visit(browser, visit.page.url, viewport={"width": width, "height": 900})
    spans = lambda seen: other.page.locator(f"{seen}:visible").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect()).map((at) => [at.left, at.right])"
    )
    edges = lambda seen: (min(left for left, _ in spans(seen)), max(right for _, right in spans(seen)))
    whole = edges("#average svg")
    for base, row, count in (("er", "rer", 1), ("rer", "rer", 2), ("rer", "er", 1)):  # `er` has learned no weights
        for select, label in (("#base", base), ("#other", row)):
            other.page.locator(select).select_option(label=label)
        other.settled()
        assert len(spans(".pair [id^=weights] svg")) == count and len(spans(".maps svg")) == 2 * count
        for seen in (".pair [id^=weights] svg", ".maps svg"):
            assert edges(seen) == pytest.approx(whole, abs=2), "from edge to edge, and no further"
    other.close()


QUICK = {("light", 1280), ("dark", 400)}
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 768, 400)]


@pytest.mark.parametrize(
    ("scheme", "width"), [look if look in QUICK else pytest.param(*look, marks=pytest.mark.slow) for look in LOOKS]
)
def test_axe_finds_nothing_wrong(browser, visit, scheme, width):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    other = Visit(browser, visit.page.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    wrong = axe.run(other.page).response["violations"]
    assert not wrong, [(v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in wrong]
    assert other.page.evaluate("document.documentElement.scrollWidth") <= width, "nothing hangs over the edge"
    says = other.page.locator('[role="img"]:visible').evaluate_all("all => all.map((e) => e.ariaLabel)")
    assert len(says) > 8 and all(len(sentence) > 30 for sentence in says)
    other.close()


def test_every_control_is_reached_with_tab_and_seen_there(visit):
    page = visit.page
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    seen = []
    for _ in range(100):
        page.keyboard.press("Tab")
        at = page.evaluate(
            "[...document.querySelectorAll('*')].indexOf(document.activeElement) + ' ' + "
            "getComputedStyle(document.activeElement).outlineWidth"
        )
        if at in seen or page.evaluate("document.activeElement === document.body"):
            break
        seen.append(at)
    reached, outlines = zip(*(word.split() for word in seen))
    assert {*outlines} == {"2px"}
    controls = page.evaluate(
        "[...document.querySelectorAll('button, select, summary, input, [tabindex]')]"
        ".filter((e) => e.checkVisibility() && e.getClientRects().length && (e.type !== 'radio' || e.checked))"
        ".map((e) => String([...document.querySelectorAll('*')].indexOf(e)))"
    )
    assert len(controls) > 15 and {*controls} <= {*reached}
    numbers = page.locator("section:has(#average) details")
    numbers.locator("summary").press("Enter")
    assert numbers.evaluate("e => e.open")
    numbers.locator("summary").press("Space")
    assert not numbers.evaluate("e => e.open")


def test_on_paper_the_page_is_light_has_no_controls_and_cuts_no_chart(browser, visit):  # noqa: F811
    other = Visit(browser, visit.page.url, color_scheme="dark")
    shade = "document.querySelector('#matrix-base .mark-rect path').getAttribute('fill')"
    other.page.evaluate(
        f"addEventListener('beforeprint', () => {{ window.printed = {shade} }})"
    )  # after the page's own
    on_screen = other.page.evaluate(shade)
    assert other.page.pdf(format="A4").startswith(b"%PDF")
    other.settled()
    light = visit.page.evaluate(shade)
    assert other.page.evaluate("window.printed") == light != on_screen == other.page.evaluate(shade)
    other.page.emulate_media(media="print")
    other.page.evaluate("document.documentElement.style.width = '690px'")  # as wide as a sheet of A4
    assert other.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not other.page.locator("select:visible, input:visible, summary:visible, #all:visible").count()
    edges = other.page.locator(".chart svg:visible, table:visible").evaluate_all(
        "all => all.map((e) => [e.tagName, e.closest('[id]').id, e.getBoundingClientRect().right])"
    )
    assert len(edges) > 15 and not [edge for edge in edges if edge[2] > 691]
    other.close()


@NEEDED
def test_dangerous_names_are_text(browser, made, tmp_path):  # noqa: F811
    (tmp_path / "runs").mkdir()
    other = Visit(browser, written([dangerous(made, tmp_path / "runs")], tmp_path / "page.html"))
    other.act("#stream", "select_option", "not known")
    assert HOSTILE in other.page.locator("#leaderboard .pick").all_text_contents()
    assert any(HOSTILE in cell for cell in other.page.locator("#problems td").all_text_contents())
    other.act("#stream", "select_option", "digits")
    assert any(c["this"].startswith(HOSTILE) for c in other.shown("confusion-base"))
    assert not other.said and other.page.title() == "everlearn: Results" and not other.page.locator("img").count()
    other.close()
