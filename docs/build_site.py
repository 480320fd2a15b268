"""Build the site into docs/_site: python docs/build_site.py. Any warning is an error.

It is these pages, a page with every command's help, and the report on the records in results/.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import typer
from typer.testing import CliRunner

from everlearn.cli.app import app

DOCS = Path(__file__).parent
ROOT, SITE, EXTRA = DOCS.parent, DOCS / "_site", DOCS / "_extra"


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


def report() -> None:
    """The page of the CIFAR records."""
    EXTRA.mkdir(exist_ok=True)
    words = ["report", str(ROOT / "results" / "cifar10"), str(ROOT / "results" / "cifar100")]
    made = CliRunner().invoke(app, [*words, "--html", str(EXTRA / "report.html")])
    if made.exit_code:
        sys.exit(made.output)


def main() -> None:
    (DOCS / "reference" / "commands.md").write_text(commands())
    report()
    shutil.rmtree(SITE, ignore_errors=True)
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(DOCS / "_build")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # a notebook's commands are these
    sys.exit(subprocess.run([*words, str(DOCS), str(SITE)], env=os.environ | {"PATH": path}).returncode)


if __name__ == "__main__":
    main()
