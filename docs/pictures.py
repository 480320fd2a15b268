"""Take pictures of the page, with records of CIFAR-10: docs/report-WIDTH-SCHEME.png.

python docs/pictures.py            needs everlearn[report], Playwright, Pillow and an installed Chromium
"""

import io
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from publish import RECORDS, ROOT

from everlearn.report.web.page import page

# Of CIFAR-10 at memory 500 what is at the settings as published, and retain as it is now.
METHODS = ("er-ace", "rer", "rer-ace", "der++", "rder", "der+++consolidate")
SHOWN = [f"{method}, M = 500" for method in METHODS]
SHOWN += ["er, M = 500, lr = 0.03", "retain, M = 500, refresh = True, refresh_older = centred"]
HEIGHTS = {(1280, "light"): 1460, (400, "light"): 1500, (400, "dark"): 1500}  # by width and scheme


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(ROOT)
        file = Path(folder) / "report.html"
        file.write_text(page(RECORDS[:2], SHOWN), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for (width, scheme), height in HEIGHTS.items():
            window = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            window.goto(file.as_uri())
            window.evaluate("everlearn.settled()")
            seen = Image.open(io.BytesIO(window.screenshot()))
            seen.quantize(96).save(ROOT / "docs" / f"report-{width}-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
