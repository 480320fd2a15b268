"""The site builds without a warning; its pages can be reached, read and looked at. Run with `make test-slow`."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx")
from axe_playwright_python.sync_playwright import Axe
from pages import browser  # noqa: F401

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "_site"
pytestmark = pytest.mark.slow
LARGEST = 1_500_000  # bytes of a page; the report has its charts' code inside


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    built = subprocess.run([sys.executable, ROOT / "docs" / "build_site.py"], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return sorted(SITE.rglob("*.html"))


def test_every_page_of_the_docs_is_there(pages):
    wanted = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    wanted = {page for page in wanted if not page.parts[0].startswith("_")}
    assert wanted <= {page.relative_to(SITE) for page in pages} and SITE / "report.html" in pages


def test_every_link_within_the_site_leads_somewhere(pages):
    texts = {page: page.read_text() for page in pages if page.name != "report.html"}
    for page, text in texts.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.relative_to(SITE)}: {link}"
            if parts.fragment and target in texts:
                assert f'id="{unquote(parts.fragment)}"' in texts[target], f"{page.relative_to(SITE)}: {link}"


def test_no_page_is_large(pages):
    assert not {page.name: size for page in pages if (size := page.stat().st_size) > LARGEST}


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_accessible_and_fit(pages, browser, width):  # noqa: F811
    page = browser.new_page(viewport={"width": width, "height": 900})
    for file in pages:
        if file.name in ("genindex.html", "search.html") or "_modules" in file.parts:
            continue
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, file.name
        found = Axe().run(page).response["violations"]
        serious = [(of["id"], of["nodes"][0]["target"]) for of in found if of["impact"] in ("serious", "critical")]
        assert not serious, f"{file.relative_to(SITE)}: {serious}"
    page.close()
