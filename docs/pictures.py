"""Take the pictures of the page: docs/report-1280-light.png and docs/report-400-dark.png, of the CIFAR-10 records.

python docs/pictures.py            needs everlearn[report], Playwright, Pillow and an installed Chromium
"""

import io
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from everlearn.report.web.page import page

ROOT = Path(__file__).parents[1]
PICTURES = ((1280, 1460, "light"), (400, 1500, "dark"))


def main() -> None:
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "report.html"
        file.write_text(page(["results/cifar10"]), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width, height, scheme in PICTURES:
            shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            shown.goto(file.as_uri())
            shown.evaluate("everlearn.settled()")
            seen = Image.open(io.BytesIO(shown.screenshot()))
            seen.quantize(128).save(ROOT / "docs" / f"report-{width}-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
