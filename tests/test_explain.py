"""What `everlearn explain` reads out of a run's folder, and the two forms it is shown in."""

import io
import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from safetensors.torch import load_file

import everlearn
from everlearn.collection import collect
from everlearn.collection.history import PHASES, Confusion, TaskEnd
from everlearn.core.state import part
from everlearn.errors import BadInput
from everlearn.experiments.results import validation
from everlearn.experiments.seals import sealed
from everlearn.report import console, explain, svg
from everlearn.report.classes import Lost, classes
from everlearn.report.page import page as html
from everlearn.report.rounding import ticks
from everlearn.report.terminal import show
from everlearn.report.web import relation
from everlearn.weightings.net import RelationReplayNet

SMALL = {"memory": 20, "epochs": 2, "batch": 32, "classes": ["0", "1", "2", "3"], "tasks": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of small real runs by name; a method's name, or what is special about the run."""
    root = tmp_path_factory.mktemp("runs")
    wanted = {
        "rer": ("rer", {}),
        "rder": ("rder", {}),
        "er": ("er", {"epochs": 1}),
        "finetune": ("finetune", {"epochs": 1, "memory": None}),
        "joint": ("joint", {"epochs": 1, "memory": None}),
        "icarl": ("icarl", {"epochs": 1}),
        "one task": ("rer", {"tasks": 1, "epochs": 1}),
        "never active": ("rer", {"relation_from_task": 3, "epochs": 1}),
        "never in use": ("rer", {"warmup": 1, "epochs": 1}),
        "vanilla": ("er+vanilla", {}),
        "normalised": ("er+normalised", {"weights": (1, 2)}),
        "new alone": ("rder", {"learned": "new"}),
        "the memory's": ("rder", {"learned": ("dark", "memory")}),
    }
    for name, (method, settings) in wanted.items():
        everlearn.run(method, out=root / name, **SMALL | settings)
    return {name: next((root / name).iterdir()) for name in wanted}


@pytest.fixture
def copy(runs, tmp_path):
    """A run's folder to be spoiled."""
    return lambda name: shutil.copytree(runs[name], tmp_path / runs[name].name)


def records(folder, event):
    return [
        record
        for line in (folder / "metrics.jsonl").read_text().splitlines()
        if (record := json.loads(line))["event"] == event
    ]


def rewrite(folder, change):
    """The folder's result with something changed."""
    result = json.loads((folder / "result.json").read_text())
    change(result)
    (folder / "result.json").write_text(json.dumps(sealed(result)))


def shown(folder, width=80):
    screen = console(file=io.StringIO(), width=width)
    show(folder, screen)
    return screen.file.getvalue()


def elements(folder):
    """The page as a tree; it is written so that an XML parser can read it too."""
    return ET.fromstring(html(folder).removeprefix("<!DOCTYPE html>"))


# The data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rer", "rder"])
def test_every_epoch_has_the_means_and_quartiles_of_its_record(runs, name):
    found = explain.read(runs[name])
    written = records(runs[name], "epoch")
    assert [(e.task, e.number, e.phase, e.loss) for e in found.epochs] == [
        (r["task"], r["epoch"], r["phase"], r["loss"]) for r in written
    ]
    for epoch, record in zip(found.epochs, written):
        for key in ("weights", "proposed"):
            assert getattr(epoch, key) == {
                t: (of["mean"], of["quantiles"][1], of["quantiles"][3]) for t, of in record.get(key, {}).items()
            }
    assert found.terms == (("new", "memory") if name == "rer" else ("new", "dark", "memory"))


def test_lines_tell_preset_from_proposed_from_learned_weights(runs):
    found = explain.read(runs["rer"])
    assert found.stretches == [("preset", 0, 2, True), ("warm-up", 2, 3, True), ("relation", 3, 4, False)]
    new = {(line.kind, line.start): [value.mean for value in line.values] for line in found.lines if line.term == "new"}
    written = records(runs["rer"], "epoch")
    assert new == {
        ("preset", 0): [1.0, 1.0],
        ("preset", 2): [1.0],
        ("proposed", 2): [written[2]["proposed"]["new"]["mean"]],
        ("learned", 3): [written[3]["weights"]["new"]["mean"]],
    }


def test_tasks_have_the_similarities_and_validation_weights_of_their_reviews(runs):
    first, second = explain.read(runs["rer"]).tasks
    (review,) = records(runs["rer"], "review")
    assert first.similarity is None and not first.validation
    assert second.validation == review["validation"]["weights"]
    assert [list(row) for row in second.similarity.G] == review["similarity"]["G"]
    assert (list(second.similarity.classes), list(second.similarity.new)) == (
        review["similarity"]["classes"],
        review["similarity"]["new"],
    )


def test_a_review_shows_the_weights_in_use_and_none_where_the_relation_slept(runs):
    assert sum(explain.read(runs["normalised"]).tasks[1].validation.values()) == pytest.approx(3.0, abs=1e-4)
    (review,) = records(runs["never active"], "review")
    assert review["validation"] is None and review["similarity"]["G"]


def test_no_weight_is_drawn_outside_the_figure(runs):
    found = explain.read(runs["normalised"])
    assert 1 < max(spread.high for line in found.lines for spread in line.values) <= found.ceiling
    figure = ET.fromstring(svg.weights(found))
    axis, *_ = [path.get("d") for path in figure.iter("path") if path.get("class") == "axis"]
    heights = lambda d: [float(point.split()[1]) for point in re.split("[ML]", d.rstrip("Z"))[1:]]
    drawn = [
        y
        for path in figure.iter("path")
        if re.search("line|band", path.get("class", ""))
        for y in heights(path.get("d"))
    ]
    top, bottom = heights(axis)
    assert len(drawn) > 10 and top <= min(drawn) <= max(drawn) <= bottom


def test_weights_by_class_are_those_of_a_tasks_last_epoch(runs):
    task = explain.read(runs["rer"]).tasks[1]
    last = records(runs["rer"], "epoch")[-1]["weights"]
    assert not task.proposed
    assert {(label, term): spread.mean for label, of in task.by_class.items() for term, spread in of.items()} == {
        (int(label), term): of["mean"] for term in last for label, of in last[term]["classes"].items()
    }


def test_harm_is_a_negative_similarity_of_an_old_class_worst_first():
    similarity = explain.Similarity(
        classes=(0, 1, 2, 3), new=(2, 3), G=((-1.0, 2.0), (0.5, -3.0), (-9.0, 4.0), (4.0, -9.0))
    )
    assert similarity.harms() == [(-3.0, 1, 3), (-1.0, 0, 2)]
    assert similarity.scale == 3.0


@pytest.mark.parametrize("name", ["rer", "rder"])
def test_response_surface_is_what_the_net_answers(runs, name):
    found = explain.read(runs[name])
    s, last = found.surface, records(runs[name], "epoch")[-1]
    net = RelationReplayNet(len(found.terms))
    net.load_state_dict(part(load_file(runs[name] / "weighting.safetensors"), "rrn"))
    for row, column in [(0, 0), (3, 17), (19, 0), (19, 19)]:
        losses = {**last["loss"], "new": s.losses[column], "memory": s.losses[row]}
        answer = net(*(torch.tensor([[of[term] for term in found.terms]]) for of in (losses, last["norms"])))[0]
        assert torch.allclose(answer, torch.tensor([s.weights[term][row][column] for term in found.terms]), atol=1e-6)


@pytest.mark.parametrize("name, learned", [("new alone", ["new"]), ("the memory's", ["dark", "memory"])])
def test_response_surface_is_of_the_terms_whose_weights_are_learned(runs, name, learned):
    found = explain.read(runs[name])
    assert [*found.surface.weights] == learned
    for page in (html(runs[name]), shown(runs[name])):
        assert [term for term in found.terms if f"weight of {term}" in page] == learned
    (row,) = collect([runs[name]]).rows
    assert [of["term"] for of in relation.tables(row, 1)["surface"]] == learned


def test_response_surface_covers_the_mean_losses_seen(runs):
    found = explain.read(runs["rder"])
    highest = max(epoch.loss[term] for epoch in found.epochs[2:] for term in ("new", "memory"))
    assert highest <= found.surface.top <= 2 * highest
    assert found.surface.held == {"dark": found.epochs[-1].loss["dark"]}


def test_terms_keep_their_colour_whatever_stands_between_them(runs):
    colours = lambda name: {term: explain.read(runs[name]).colour(term) for term in explain.read(runs[name]).terms}
    assert colours("rer") == {"new": 0, "memory": 1}
    assert colours("rder") == {"new": 0, "dark": 2, "memory": 1}


# Of every method ------------------------------------------------------------------------------------------------------

EVERY = ("er", "finetune", "joint", "icarl", "rer")


@pytest.mark.parametrize("name", EVERY)
def test_every_run_shows_what_became_of_each_class(runs, name):
    found, written = explain.read(runs[name]), records(runs[name], "task")
    for task, line in enumerate(written):
        counts = {}
        for true, guess, count in zip(*line["confusion"].values()):
            counts.setdefault(true, {})[guess] = count
        for label, of in counts.items():
            assert found.remembered.accuracy[label][task] == 100 * of.get(label, 0) / sum(of.values())
    assert found.remembered.learned == ({0: 0, 1: 0, 2: 0, 3: 0} if name == "joint" else {0: 0, 1: 0, 2: 1, 3: 1})
    assert found.remembered.memory == tuple(tuple(line["memory"]) for line in written if "memory" in line)
    assert found.relational == (name == "rer") and found.notes == ()
    text, page = shown(runs[name], 60), html(runs[name])
    assert max(map(len, text.splitlines())) <= 60
    for title in ("Accuracy on each task", "Accuracy of each class"):
        assert title in text and f"<h2>{title}</h2>" in page
    last = f"{found.remembered.accuracy[3][-1]:.1f}"
    assert last in text and f">{last}</td>" in page
    assert (
        ("What the memory holds" in text) == ("What the memory holds</h2>" in page) == (name in ("er", "icarl", "rer"))
    )
    assert ("Weights over training" in text) == ("Weights over training</h2>" in page) == (name == "rer")


def test_what_was_forgotten_to_what_is_what_appeared_since_a_class_was_learned():
    end = lambda task, classes, true, guess, count: TaskEnd(
        task, (), (), classes, Confusion(true, guess, count), (5, 5, 0) if task == 0 else (3, 3, 4)
    )
    first = end(0, (0, 1), (0, 0, 1, 2), (0, 1, 1, 0), (8, 2, 10, 10))
    last = end(1, (2,), (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 2, 2), (3, 1, 6, 9, 1, 10))
    found = classes([first, last])
    assert found.lost == (Lost(0, 2, 0.0, 60.0), Lost(1, 2, 0.0, 10.0)), "0 is taken for 1 less often than it was"
    assert found.accuracy == {0: (80.0, 30.0), 1: (100.0, 90.0), 2: (0.0, 100.0)}
    assert (found.loss(0), found.loss(2)) == (50.0, 0.0) and found.learned == {0: 0, 1: 0, 2: 1}
    assert found.kept_by_task() == {0: [10, 6], 1: [0, 4]}
    assert classes([first, replace(last, confusion=None)]) is None and classes([]) is None


def test_what_is_lost_stands_in_both_forms_with_the_largest_first(runs):
    found = explain.read(runs["finetune"])
    assert found.remembered.lost and max(map(found.remembered.loss, (0, 1))) > 50
    text, worst = shown(runs["finetune"]), found.remembered.lost[0]
    assert re.search(rf"{worst.old} +{worst.new} +{worst.then:.1f} +{worst.now:.1f}", text)
    (table,) = [
        e for e in elements(runs["finetune"]).iter("div") if e.get("aria-label") == "What was forgotten, and to what"
    ]
    cells = [cell.text for cell in next(row for row in table.iter("tr") if list(row.iter("td"))).iter()][1:]
    assert cells[:4] == [str(worst.old), str(worst.new), f"{worst.then:.1f}", f"{worst.now:.1f}"]


def test_a_run_from_before_confusions_were_written_down_is_explained_without_them(copy):
    for name in ("er", "rer"):
        folder = copy(name)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("confusion", None)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        rewrite(folder, lambda result: None)  # such a run has no checksums of its files
        found = explain.read(folder)
        assert found.remembered is None and found.notes == (explain.OLDER,)
        assert "Accuracy on each task" in shown(folder) and "Accuracy of each class" not in shown(folder)
        assert "Accuracy of each class" not in html(folder) and bool(found.tasks) == (name == "rer")


def test_of_many_classes_the_terminal_shows_those_that_lost_most(copy):
    folder = copy("er")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["event"] == "task":
            line["classes"] = list(range(50)) if line["task"] == 0 else list(range(50, 100))
            taken = lambda c, last=line["task"]: (c + 1) % 100 if last and c == 33 else c
            every = list(range(100))
            line["confusion"] = {"true": every, "predicted": list(map(taken, every)), "count": [10] * 100}
            line["memory"] = [1] * 100
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rewrite(folder, lambda result: result.update(classes=[f"class {n}" for n in range(100)]))
    text = shown(folder, 60)
    assert "Most was lost by class 33: 100.0 points, most of them to class 34 (+100.0)." in " ".join(text.split())
    assert "80 classes not shown" in text and "of task 2" in text and len(text.splitlines()) < 80
    assert html(folder).count('title="class 33"') == 3, "the page has all of them"


# The page -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["rer", "rder", "one task", "never active", "never in use", "vanilla", "er", "finetune", "joint", "icarl"]
)
def test_page_is_well_formed_and_needs_nothing_from_elsewhere(runs, name):
    page = html(runs[name])
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>"))
    assert not [e.tag for e in root.iter() if e.tag in ("script", "link", "img", "iframe", "object")]
    assert not [key for e in root.iter() for key in e.attrib if key in ("src", "href") or key.startswith("on")]
    assert not re.search(r"https?:|url\(|@import", page)


@pytest.mark.parametrize("name", ["rer", "rder"])
def test_every_figure_says_what_it_is(runs, name):
    root = elements(runs[name])
    drawings = [e for e in root.iter("svg") if e.get("role") == "img"]
    assert len(drawings) == 1 + len(explain.read(runs[name]).terms)
    for drawing in drawings:
        title, description = drawing[0], drawing[1]
        assert (title.tag, description.tag) == ("title", "desc") and title.text and description.text
        assert drawing.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert all(len(list(figure.iter("figcaption"))) == 1 for figure in root.iter("figure"))


def test_page_shows_each_similarity_with_its_sign_and_colour(runs):
    (review,) = records(runs["rer"], "review")
    cells = {e.get("title"): e for e in elements(runs["rer"]).iter("td") if e.get("class") in ("harm", "help")}
    table = review["similarity"]
    assert len(cells) == len(table["classes"]) * len(table["new"])
    for old, row in zip(table["classes"], table["G"]):
        for new, g in zip(table["new"], row):
            (cell,) = (e for title, e in cells.items() if title.startswith(f"{old} and {new}: "))
            assert cell.get("class") == ("harm" if g < 0 else "help")
            assert cell.text[0] == ("−" if g < 0 else "+")
            assert float(cell.get("title").split(": ")[1].replace("−", "-")) == pytest.approx(
                g, abs=1e-3 * max(1, abs(g))
            )


def test_page_gives_an_epochs_weights_on_hover(runs):
    last = records(runs["rer"], "epoch")[-1]["weights"]["memory"]
    hovers = [e[0].text for e in elements(runs["rer"]).iter("rect") if e.get("class") == "hit"]
    assert len(hovers) == 4
    assert hovers[-1].startswith("task 2, epoch 2: relation\n")
    assert (
        f"memory {last['mean']:.4f} (25 to 75 %: {last['quantiles'][1]:.4f} to {last['quantiles'][3]:.4f})"
        in hovers[-1]
    )


def test_names_cannot_break_the_page(copy):
    folder = copy("rer")
    nasty = ["<script>alert(1)</script>", "\"><img src=x onerror='alert(1)'>", "a & b ]]>", "bell\x07\x1b[31m"]

    def change(result):
        named = result["experiment"]["stream"]
        result["classes"], named["name"] = nasty, "folder:</title><script>alert(2)</script>"

    rewrite(folder, change)
    page, root = html(folder), elements(folder)
    met = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: met.append((tag, {key for key, _ in attributes}))
    parser.feed(page)
    assert not {tag for tag, _ in met} & {"script", "img"} and not any("onerror" in keys for _, keys in met)
    assert "\x07" not in page and "\x1b" not in page
    headings = {e.text for e in root.iter("th")}
    assert set(nasty[:3]) <= headings and "bell\ufffd\ufffd[31m" in headings
    text = shown(folder)
    assert all(c.isprintable() or c == "\n" for c in text) and "<script>alert(1)</script>" in text.replace("\n", "")


def test_markup_escapes_all_but_markup():
    assert svg.tag("b", "<", svg.tag("i", "&"), title='"') == '<b title="&quot;">&lt;<i>&amp;</i></b>'


def test_ticks_are_round_numbers():
    assert ticks(1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(2.3) == pytest.approx([0, 0.5, 1, 1.5, 2])
    assert ticks(0.007) == pytest.approx([0, 0.002, 0.004, 0.006])


# The terminal ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rer", "rder", "one task", "never active", "never in use", "vanilla"])
def test_terminal_form_fits_80_columns(runs, name):
    assert max(map(len, shown(runs[name]).splitlines())) <= 80


def test_terminal_form_shows_the_numbers_of_the_records(runs):
    text = shown(runs["rer"])
    (review,) = records(runs["rer"], "review")
    for weight in review["validation"]["weights"].values():
        assert f"{weight:.4f}" in text
    titles = "Weights over training", "Response of the Relation", "Which classes disturb which", "Weights by class"
    assert all(title in text for title in titles)


def test_terminal_form_takes_names_literally(copy):
    folder = copy("rer")
    rewrite(folder, lambda result: result.update(classes=["[red]0[/]", "[/]", "[link=x]2", "3"]))
    assert "[red]0[/]" in shown(folder) and "[link=x]" in shown(folder)


def test_terminal_form_keeps_the_worst_of_a_table_too_large(copy):
    folder = copy("rer")
    G = [[0.1 * (new - old) if (old, new) != (17, 38) else -77.0 for new in range(30, 42)] for old in range(42)]

    def widened(line):
        record = json.loads(line)
        if record["event"] == "review":
            record["similarity"] = {"classes": list(range(42)), "new": list(range(30, 42)), "G": G}
        return json.dumps(record)

    metrics = folder / "metrics.jsonl"
    metrics.write_text("\n".join(map(widened, metrics.read_text().splitlines())))
    rewrite(folder, lambda result: result.update(classes=[f"a rather long class name {label}" for label in range(42)]))
    for width in (60, 80, 120):
        text = shown(folder, width)
        assert max(map(len, text.splitlines())) <= width and "…" not in text
        assert "−77.0" in text and "Not shown: 20 old and 2 new." in " ".join(text.split())


@pytest.mark.parametrize("name", ["rer", "rder"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_terminal_form_says_what_its_lines_mean_however_narrow(runs, name, width):
    lines = shown(runs[name], width).splitlines()
    assert max(map(len, lines)) <= width
    for said in (*explain.read(runs[name]).terms, *PHASES, "learned, in use", "preset, in use", "proposed"):
        assert any(said in line for line in lines)


# What there is nothing to see of --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("one task", "one task only"),
        ("never active", "never active: no task was late enough"),
        ("never in use", "lasted for all epochs of every task"),
    ],
)
def test_what_cannot_be_shown_is_said(runs, name, sentence):
    (note,) = explain.read(runs[name]).notes
    assert sentence in note
    assert note in " ".join(shown(runs[name]).split())
    assert note in [e.text for e in elements(runs[name]).iter("p")]


def test_proposed_weights_are_called_so_where_preset_ones_were_in_use(runs):
    found = explain.read(runs["never in use"])
    assert found.tasks[1].proposed and found.tasks[1].by_class
    assert "mean weights proposed are" in " ".join(shown(runs["never in use"]).split())


def test_folder_that_is_no_run_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadInput, match="is not a run's folder"):
            html(folder)


DAMAGE = {
    "gone": lambda file: file.unlink(),
    "cut short": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "not text": lambda file: file.write_bytes(b"\xff\xfe\x00{" * 9),
    "other json": lambda file: file.write_text("[1, 2]"),
    "lines missing": lambda file: file.write_text("".join(file.read_text().splitlines(keepends=True)[:2])),
    "no number": lambda file: file.write_text(re.sub(r'"(mean|acc)": [-+.\de]+', r'"\1": NaN', file.read_text())),
    "keys missing": lambda file: file.write_text(re.sub('"(quantiles|experiment)"', '"x"', file.read_text())),
}


@pytest.mark.parametrize(
    ("file", "damage"),
    [(file, damage) for file in ("metrics.jsonl", "result.json") for damage in DAMAGE]
    + [("weighting.safetensors", damage) for damage in ("gone", "cut short", "not text", "other json")],
)
def test_damage_is_one_sentence_that_names_the_file(copy, file, damage):
    folder = copy("rer")
    DAMAGE[damage](folder / file)
    with pytest.raises(BadInput) as refused:
        explain.read(folder)
    assert file in str(refused.value) and "\n" not in str(refused.value)


# Figures of several runs ----------------------------------------------------------------------------------------------
def test_the_weights_of_validation_samples_are_those_of_the_last_review(runs):
    (review,) = records(runs["rer"], "review")
    assert validation(runs["rer"]) == review["validation"]["weights"]
    assert validation(runs["er"]) is validation(runs["one task"]) is None
