"""What tests of the page about many runs share: small runs, runs with dangerous names, a browser."""

import json
import os
import shutil
from pathlib import Path

import pytest

import everlearn
from everlearn.experiments.seals import sealed

BROWSERS = ("chromium", "chromium-browser", "google-chrome")  # one program under the names it has
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), "/usr/bin/chromium")
RESULTS = Path(__file__).parents[1] / "results"
SMALL = dict(classes=["0", "1", "2", "3"], tasks=2, epochs=2, batch=32, memory=20)
HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">\n{{7*7}}\u2028'\"&amp;\x1b[31m"


def make(root, methods=("er", "rer"), seeds=(0, 1), **more):
    """A folder of small real runs."""
    for method in methods:
        for seed in seeds:
            everlearn.run(method, out=root, seed=seed, keep=False, **SMALL | more)
    return root


def dangerous(made, root):
    """Runs whose classes, labels, files and failures have names made of HTML, scripts and line ends."""
    for number, folder in enumerate(sorted(made.iterdir())):
        copy = shutil.copytree(folder, root / folder.name)
        result = json.loads((copy / "result.json").read_text())
        result["classes"] = [f"{HOSTILE}{label}" for label in result["classes"]]
        (copy / "result.json").write_text(json.dumps(sealed(result)))
        if number == 0:
            run = {key: result[key] for key in ("class_il", "task_il", "seconds")} | {"seed": 0}
    study = {"study": HOSTILE, "rows": {HOSTILE: {"runs": [run]}}, "failed": {"run <b>": f"it fell: {HOSTILE}"}}
    (root / "study.json").write_text(json.dumps(study))
    (root / "<b>foreign<b>.json").write_text('{"a": 1}')
    return root


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium; without it or Playwright its tests are skipped."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip("there is no chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visit:
    """A page that was opened, and what it said and asked for."""

    def __init__(self, browser, address, **context):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | context)
        self.page, self.said, self.asked = context.new_page(), [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.go(address)

    def go(self, address):
        self.page.goto(address)
        self.drawn()

    def drawn(self):
        self.page.wait_for_selector("body[data-drawn]", state="attached")
        self.settled()

    def settled(self):
        """Wait until what was changed is drawn."""
        self.page.evaluate("everlearn.settled()")

    def act(self, selector, how="click", *given):
        getattr(self.page.locator(selector), how)(*given)
        self.settled()

    def column(self, key):
        return self.page.locator(f'#leaderboard td[data-column="{key}"]').all_text_contents()

    def shown(self, chart):
        """The records a chart is drawn of, after its own filters."""
        return self.page.evaluate("(id) => everlearn.shown(id)", chart)

    def close(self):
        self.page.context.close()
