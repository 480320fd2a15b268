"""Write the published page, docs/_site/report.html: what `everlearn report` makes of the CIFAR records in results/.

    python docs/publish.py [FOLDER]      needs everlearn[report]

It is made when the docs are, and kept out of the repository: Vega's JavaScript is in it.
"""

import os
import sys
from pathlib import Path

from everlearn.errors import BadInput
from everlearn.report.web.page import charts, page

ROOT = Path(__file__).parents[1]
RECORDS = [f"results/{name}" for name in ("cifar10", "cifar10-epochs", "cifar100", "cifar100-epochs", "again/gpu.json")]


def publish(folder: Path = ROOT / "docs" / "_site") -> Path:
    """The page's file in `folder`, of paths as they are in the repository."""
    if not charts():
        raise BadInput("the published page has charts: pip install 'everlearn[report]'")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    file = folder / "report.html"
    file.write_text(page(RECORDS), encoding="utf-8")
    return file


if __name__ == "__main__":
    print("written:", publish(*map(Path, sys.argv[1:])))
