"""Take the pictures of the published page: docs/report-WIDTH-SCHEME.png.

python docs/pictures.py            needs everlearn[report], Playwright, Pillow and an installed Chromium
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from publish import ROOT, publish

HEIGHTS = {(1280, "light"): 1460, (400, "light"): 1500, (400, "dark"): 1500}  # by width and scheme


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = publish(Path(folder))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for (width, scheme), height in HEIGHTS.items():
            shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            shown.goto(file.as_uri())
            shown.evaluate("everlearn.settled()")
            seen = Image.open(io.BytesIO(shown.screenshot()))
            seen.quantize(96).save(ROOT / "docs" / f"report-{width}-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
