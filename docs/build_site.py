"""Build the site into docs/_site: python docs/build_site.py. Any warning is an error.

It is these pages, a page with every command's help, and the report on the records in results/.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import typer
from publish import publish
from typer.testing import CliRunner

from everlearn.cli.app import app

DOCS = Path(__file__).parent
SITE, EXTRA = DOCS / "_site", DOCS / "_extra"
# What the theme leaves out for those who read with a keyboard or a screen reader: a heading's level, and that what
# scrolls sideways can be reached.
SAID = {
    'role="heading">': 'role="heading" aria-level="2">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    "<pre>": '<pre tabindex="0">',
}


def helped(*words: str) -> str:
    """What a command says of itself."""
    return CliRunner().invoke(app, [*words, "--help"], prog_name="everlearn", terminal_width=100).output.rstrip()


def commands() -> str:
    """The help of every command as a page."""
    parts = ["# Commands\n\nWhat `everlearn COMMAND --help` says.", f"```text\n{helped()}\n```"]
    for name, command in typer.main.get_command(app).commands.items():  # pyright: ignore[reportAttributeAccessIssue]
        own = [[name], *([name, of] for of in getattr(command, "commands", {}))]
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
                text = text.replace(given, wanted)
            page.write_text(text)
    sys.exit(built.returncode)


if __name__ == "__main__":
    main()
