"""The page while runs are under way: a server for this machine alone, and numbers that are the store's."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import interruptible
from pages import Visit, browser, make  # noqa: F401

from everlearn import BadInput
from everlearn.collection import collect
from everlearn.report.web import page as web
from everlearn.report.web.watch import Server, Source, serve


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "runs", ("er",))


@pytest.fixture
def served(made, tmp_path):
    """A server of a copy of two runs."""
    server = Server(Source(str(shutil.copytree(made, tmp_path / "runs"))), 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server, path="/data.json", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def begin(folder, epochs=3, damaged=False, name="digits-er-m20-e2-s7-0.part"):
    """A run's folder that is not complete, with so many epochs of 4."""
    experiment = json.loads(next(folder.glob("*/experiment.json")).read_text())
    part = folder / name
    part.mkdir()
    (part / "experiment.json").write_text(json.dumps(experiment | {"seed": 7}))
    lines = [
        {"event": "epoch", "task": n // 2, "epoch": n % 2, "loss": {"new": 1.0 / (n + 1)}, "seconds": 5.0}
        for n in range(epochs)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (part / "metrics.jsonl").write_text("no line\n" + text if damaged else text)
    return part


def test_it_is_for_this_machine_alone_and_for_reading_alone(served):
    assert served.server_address[0] == "127.0.0.1"
    status, words, headers = ask(served)
    assert status == 200 and headers["Cache-Control"] == "no-store" and len(json.loads(words)["rows"]) == 1
    assert ask(served, If_None_Match=headers["ETag"])[:2] == (304, b"")
    assert ask(served, method="HEAD")[:2] == (200, b"")
    for name in ("evil.example", f"evil.example:{served.port}", "", f"127.0.0.1.evil.example:{served.port}"):
        assert ask(served, Host=name)[0] == 403
    assert ask(served, Host=f"localhost:{served.port}")[0] == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(served, method=method)[0] == 405
    for path in ("/../etc/passwd", "/runs", "/data.json/x"):
        assert ask(served, path)[0] == 404


def test_runs_appear_and_disappear_and_are_shown_as_what_they_are(served, made):
    root = type(made)(served.source.folder)
    fresh = lambda: (setattr(served.source, "until", 0.0), json.loads(ask(served)[1]))[1]
    part = begin(root)
    (run,) = fresh()["unfinished"]
    assert (run["done"], run["epochs"], run["left"], run["seed"], run["held"]) == (3, 4, 5.0, 7, False)
    assert fresh()["sets"]["live"][0]["loss"] == [1, 0.5, 0.3333]
    shutil.rmtree(part)
    begin(root, damaged=True)
    (root / "holiday").mkdir()
    (root / "holiday" / "letter.txt").touch()  # an empty folder may be a run's that is about to begin
    whole = next(folder for folder in root.glob("*-s0-*") if folder.suffix != ".part")
    (whole / "result.json").write_text("{")
    data = fresh()
    assert "damaged in line 1" in data["unfinished"][0]["damage"] and len(data["rows"][0]["runs"]) == 1
    assert {problem["kind"] for problem in data["problems"]} == {"damaged", "foreign"}
    shutil.rmtree(root)
    data = fresh()
    assert not data["rows"] and "there is no" in data["problems"][0]["why"]


def test_what_was_changed_is_damaged_unless_it_is_accepted(made, tmp_path):
    root = shutil.copytree(made, tmp_path / "runs")
    file = next(root.glob("*/result.json"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seconds": 1.0}))
    for edited, runs, problems in ((False, 1, 1), (True, 2, 0)):
        with serve(str(root), 0, edited) as server:
            data = server.source.read()[0]
        assert (len(data["rows"][0]["runs"]), len(data["problems"])) == (runs, problems)


HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(600)
"""


def held(part):
    """A process that has a run's folder locked, as one that performs it does."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(part / "lock")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="the system does not say what is locked")
def test_a_run_that_was_killed_and_one_that_goes_on_again_are_shown_as_such(browser, served, made):  # noqa: F811
    root = type(made)(served.source.folder)
    part = begin(root)
    first = held(part)
    visit = Visit(browser, f"http://127.0.0.1:{served.port}/")
    state = lambda: visit.page.locator("#unfinished td").last.text_content()
    shown = lambda words: _within(10.0, state, lambda text: text == words)
    try:
        assert shown("under way")
        first.kill()
        first.wait()
        assert shown("stopped; would start again"), state()
        second = held(part)
        assert shown("under way")
        second.kill()
        second.wait()
        (part / "checkpoint").touch()
        assert shown("stopped; goes on from its checkpoint"), state()
        (root / "holiday").mkdir()
        (root / "holiday" / "letter.txt").touch()
        next(root.glob("*-s0-*/result.json")).write_text("{")
        listed = lambda: visit.page.locator("#problems tbody tr").all_text_contents()
        assert _within(10.0, listed, lambda rows: len(rows) == 2), listed()
        assert ["damaged" in row for row in sorted(listed())].count(True) == 1
        assert any("holiday" in row and "not ours" in row for row in listed())
        shutil.rmtree(part)
        assert _within(10.0, lambda: visit.page.locator("#under-way").is_hidden(), bool)
        assert not visit.said
    finally:
        first.kill()
        visit.close()


def test_what_cannot_be_watched_is_refused(served, tmp_path):
    with pytest.raises(BadInput, match=r"there is no .*nowhere"):
        serve(str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=rf"port {served.port} is not available: .*--port"):
        serve(served.source.folder, served.port)


def test_ctrl_c_ends_it_with_one_line(made):
    words = [sys.executable, "-m", "everlearn", "watch", str(made), "--port", "0"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible
    )
    assert "http://127.0.0.1:" in process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, wrong = process.communicate(timeout=20)
    assert (out, wrong, process.returncode) == ("no longer watching\n", "", 0)


@pytest.mark.slow
@pytest.mark.skipif(not web.charts(), reason="needs everlearn[report]")
def test_during_a_study_the_numbers_on_the_page_are_the_stores(browser, served, tmp_path):  # noqa: F811
    root = served.source.folder
    visit = Visit(browser, f"http://127.0.0.1:{served.port}/")
    words = ["run", "der++", "--seeds=2", "--epochs=60", "--memory=20", "--set=batch=8", "--no-keep", "--quiet"]
    words += ["--set=classes=0,1,2,3", "--set=tasks=2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    study = subprocess.Popen([sys.executable, "-m", "everlearn", *words, f"--out={root}"], env=environment)
    compared = 0
    while study.poll() is None:
        for run in collect([root], index=False).unfinished:
            done = _within(20.0, lambda run=run: _epochs(visit, run.name), lambda shown, run=run: shown >= run.done)
            assert done or not run.place.exists(), (run.name, run.done, _epochs(visit, run.name))
            compared += done and run.done > 0
        time.sleep(0.1)
    assert study.returncode == 0 and compared > 0
    expected = {row.label: f"{row.spread()['mean']:.2f}" for row in collect([root], index=False).rows}
    labels = visit.page.locator("#leaderboard .pick")
    read = lambda: dict(zip(labels.all_text_contents(), [text.split()[0] for text in visit.column("acc.class_il")]))
    assert _within(20.0, read, lambda found: found == expected), (read(), expected)
    assert not visit.said and all(f"//127.0.0.1:{served.port}/" in url for url in visit.asked if url[:5] != "data:")
    visit.close()


@pytest.mark.slow
@pytest.mark.skipif(not web.charts(), reason="needs everlearn[report]")
def test_a_study_that_is_killed_and_begun_again_is_on_the_page_within_two_seconds(browser, served, made):  # noqa: F811
    root = type(made)(served.source.folder)
    visit = Visit(browser, f"http://127.0.0.1:{served.port}/")
    words = ["run", "rer", "--seeds=1", "--epochs=300", "--memory=20", "--set=batch=8", "--no-keep", "--quiet"]
    words += ["--set=classes=0,1,2,3", "--set=tasks=2", f"--out={root}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    start = lambda: subprocess.Popen([sys.executable, "-m", "everlearn", *words], env=environment)
    now = lambda: next(iter(collect([root], index=False).unfinished), None)
    state = lambda: visit.page.locator("#unfinished td").last.text_content() if now() else ""
    soon = lambda good: _within(2.0, state, good)
    study = start()
    try:
        for _ in range(2):
            before = now().done if now() else 0
            assert _within(60.0, now, lambda run, before=before: run is not None and run.done > before)
            assert soon(lambda text: text == "under way"), state()
            seen = now()
            assert _within(
                2.0, lambda seen=seen: _epochs(visit, seen.name), lambda shown, seen=seen: shown >= seen.done
            )
            study.kill()
            study.wait()
            assert soon(lambda text: text.startswith("stopped; ")), state()
            left = now()
            assert _within(
                2.0, lambda left=left: _epochs(visit, left.name), lambda shown, left=left: shown == left.done
            )
            study = start()
        (root / "holiday").mkdir()
        (root / "holiday" / "letter.txt").touch()
        next(root.glob("*-er-*-s0-*/result.json")).write_text("{")
        listed = lambda: " ".join(visit.page.locator("#problems tbody tr").all_text_contents())
        assert _within(2.0, listed, lambda text: "damaged" in text and "not ours" in text), listed()
        assert not visit.said
    finally:
        study.kill()
        study.wait()
        visit.close()


def _epochs(visit, name):
    """How many epochs the page says a run has done."""
    cells = visit.page.locator(f'#unfinished tr:has(th:text-is("{name}")) td').all_text_contents()
    return int(cells[1].split()[0]) if cells else -1


def _within(seconds, read, good):
    """Is what is read good, now or soon?"""
    end = time.monotonic() + seconds
    while not (found := good(read())) and time.monotonic() < end:
        time.sleep(0.05)
    return bool(found)
