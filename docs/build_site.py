"""Build the site into docs/_site: python docs/build_site.py. Any warning is an error.

It is these pages, a page with every command's help, and the report on the records in results/.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer
from publish import publish
from typer.testing import CliRunner

from everlearn.cli.app import COMMANDS, app

DOCS = Path(__file__).parent
SITE, EXTRA = DOCS / "_site", DOCS / "_extra"
WIDTH = 90  # letters of a line of code that fit the page
# What the theme leaves out for those who read with a keyboard or a screen reader: a heading and its level, the names of
# the two lists of links, that what scrolls sideways can be reached, and that an empty cell is no heading. And a number
# and its deviation stay on one line.
SAID = {
    r'role="heading">': r'role="heading" aria-level="2">',
    r'<aside class="sidebar-drawer"': r'<aside aria-label="Pages" class="sidebar-drawer"',
    r'<aside class="toc-drawer': r'<aside aria-label="On this page" class="toc-drawer',
    r'<div class="table-wrapper': r'<div tabindex="0" class="table-wrapper',
    r"<pre>": r'<pre tabindex="0">',
    r'<th class="(head[^"]*)"><p></p></th>': r'<td class="\1"></td>',
    " ± ": "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}",
    r'(?=<div id="search-results">)': r"<h1>Search</h1>",
}


def helped(*words: str) -> str:
    """What a command says of itself."""
    return CliRunner().invoke(app, [*words, "--help"], prog_name="everlearn", terminal_width=WIDTH).output.rstrip()


def commands() -> str:
    """The help of every command as a page."""
    parts = [
        "# Commands\n\nEvery command with its options, as `everlearn COMMAND --help` prints them.",
        f"```text\n{helped()}\n```",
    ]
    group: Any = typer.main.get_command(app)
    for name in COMMANDS:
        own = [[name], *([name, of] for of in getattr(group.get_command(None, name), "commands", {}))]
        parts += [f"## {' '.join(words)}\n\n```text\n{helped(*words)}\n```" for words in own]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    (DOCS / "reference" / "commands.md").write_text(commands())
    publish(EXTRA)
    shutil.rmtree(SITE, ignore_errors=True)
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(DOCS / "_build")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # a notebook's commands are these
    built = subprocess.run([*words, str(DOCS), str(SITE)], env=os.environ | {"PATH": path})
    for page in SITE.rglob("*.html"):
        if page.name != "report.html":
            text = page.read_text()
            for given, wanted in SAID.items():
                text = re.sub(given, wanted, text)
            page.write_text(text)
    sys.exit(built.returncode)


if __name__ == "__main__":
    main()
