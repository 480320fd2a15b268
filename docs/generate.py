"""Write the tables and figures of README.md, docs/ and benchmarks/ from records in results/ and benchmarks/results/.

    python docs/generate.py          write them
    python docs/generate.py --check  say whether they are what the records say

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`; nothing between them is written by hand. Figures are
files of their own. What writes each is in docs/tables/, a module a subject.
"""

import re
import sys

from tables import benchmarks, guarantees, methods, reproduction, retain, studies, weights
from tables.figures import FIGURES
from tables.records import ROOT

PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md"]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_site" not in page.parts]
SUBJECTS = (methods, reproduction, weights, studies, retain, benchmarks, guarantees)
TABLES = {name: make for subject in SUBJECTS for name, make in subject.TABLES.items()}


def filled(text: str) -> str:
    """The page with every table as the records have it."""
    return re.sub(
        r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->",
        lambda m: f"<!-- {m[1]} -->\n{TABLES[m[1]]()}\n<!-- /{m[1]} -->",
        text,
        flags=re.DOTALL,
    )


def main() -> None:
    wanted = {page: filled(page.read_text()) for page in PAGES} | {
        ROOT / name: make() for name, make in FIGURES.items()
    }
    stale = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    if "--check" in sys.argv:
        sys.exit(f"not what the records say: {', '.join(map(str, stale))}; run python docs/generate.py" if stale else 0)
    for path, text in stale.items():
        path.write_text(text)
        print("written:", path.relative_to(ROOT))


if __name__ == "__main__":
    main()
