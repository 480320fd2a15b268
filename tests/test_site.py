"""The site builds without a warning; its pages can be reached, read and looked at. Run with `make site-check`.

Without everlearn[docs] or a Chromium these tests fail. They are not skipped, for then nobody would have looked.
"""

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from pages import CHROMIUM, browser  # noqa: F401

from everlearn.cli.app import COMMANDS

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "_site"
pytestmark = pytest.mark.slow
PARTS = ["Start", "Guides", "The method explained", "Evidence", "Reference"]
LARGEST = 1_500_000  # bytes of a page with its pictures; the report has its charts' code inside
LINK = re.compile(r'(?:href|src)="([^"]+)"')
DESCRIPTION = '<meta name="description" content="([^"]+)">'
SHOWN = re.compile(r'(?:src|data)="([^"]+)"')


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    assert os.access(CHROMIUM, os.X_OK), "pages are looked at in Chromium, and there is none"
    built = subprocess.run([sys.executable, ROOT / "docs" / "build_site.py"], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return sorted(SITE.rglob("*.html"))


def texts(pages: list[Path]) -> dict[Path, str]:
    """The pages that are written from ours; the report is everlearn's own page, and has tests of its own."""
    return {page: page.read_text() for page in pages if page.name != "report.html"}


def own() -> list[Path]:
    """The pages that are written from docs/*.md, or ought to be."""
    names = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")]
    return [SITE / name for name in names if not name.parts[0].startswith(("_", "jupyter"))]


def within(page: Path, link: str) -> Path | None:
    """The file of the site a link leads to; None, if it leads elsewhere."""
    parts = urlsplit(html.unescape(link))
    if parts.scheme or parts.netloc:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return target / "index.html" if target.is_dir() else target


def test_every_page_of_the_docs_is_there(pages):
    assert {*own(), SITE / "report.html"} <= set(pages)


def test_every_page_but_one_is_in_the_menu(pages):
    menu = (SITE / "index.html").read_text().split('class="sidebar-tree"')[1].split("</aside>")[0]
    assert re.findall(r'class="caption-text">([^<]+)<', menu) == PARTS
    listed = {within(SITE / "index.html", link) for link in LINK.findall(menu)}
    assert set(own()) - listed == {SITE / "index.html", SITE / "404.html"}


def test_every_command_is_in_the_reference(pages):
    text = (SITE / "reference" / "commands.html").read_text()
    assert all(f'id="{name}"' in text and f"Usage: everlearn {name} " in text for name in COMMANDS)


def test_signatures_are_python(pages):
    text = (SITE / "reference" / "python.html").read_text()
    assert not re.findall(r"&lt;f\w+|at 0x[0-9a-f]+|~everlearn|Kind\(", text)


def test_every_page_says_what_it_is(pages):
    titles = set()
    for page in own():
        text = page.read_text().split("</head>")[0]
        (title,), (description,) = re.findall("<title>(.+)</title>", text), re.findall(DESCRIPTION, text)
        assert "everlearn" in title and 30 <= len(html.unescape(description)) <= 202, (page.name, description)
        titles.add(title)
    assert len(titles) == len(own())


def test_every_link_within_the_site_leads_somewhere(pages):
    read = texts(pages)
    names = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in read.items()}
    followed = 0
    for page, text in read.items():
        for link in LINK.findall(text):
            target, fragment = within(page, link), unquote(urlsplit(html.unescape(link)).fragment)
            if target:
                followed += 1
                assert target.exists(), f"{page.relative_to(SITE)}: {link}"
                assert not fragment or target not in names or fragment in names[target], (page.name, link)
    assert followed > 1000


def test_no_word_is_misspelt(pages):
    written = [*map(str, (ROOT / "docs").glob("[!_]*.md")), *map(str, (ROOT / "docs").glob("[!_]*/*.md"))]
    words = [sys.executable, "-m", "codespell_lib", "--toml", "pyproject.toml", "--skip", "", *written]
    read = subprocess.run([*words, "README.md", "CONTRIBUTING.md"], cwd=ROOT, capture_output=True, text=True)
    assert read.returncode == 0, read.stdout + read.stderr


def test_no_page_is_large(pages):
    for page in pages:
        shown = {within(page, link) for link in SHOWN.findall(page.read_text()) if not link.startswith("data:")}
        size = sum(file.stat().st_size for file in {page, *filter(None, shown)} if file.exists())
        assert size <= LARGEST, (page.name, size)


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_pages_are_accessible_and_fit(pages, browser, width, scheme):  # noqa: F811
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for file in pages:
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, file.name
        whole = "[...document.querySelectorAll('.table-wrapper')].every((of) => of.scrollWidth <= of.clientWidth)"
        assert width < 1280 or page.evaluate(whole), f"{file.name}: a table is wider than the page"
        assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth)"), file.name
        found = [(of["id"], of["nodes"][0]["target"]) for of in Axe().run(page).response["violations"]]
        assert not found, f"{file.relative_to(SITE)}: {found}"
    assert not {of for of in asked if urlsplit(of).scheme not in ("file", "data", "blob")}  # nothing from elsewhere
    page.close()
