"""Take the pictures of the published page: docs/report-WIDTH-SCHEME.png, at three widths, light and dark.

python docs/pictures.py            needs everlearn[report], Playwright, Pillow and an installed Chromium
"""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from publish import ROOT, publish

HEIGHTS = {1280: 1460, 768: 1500, 400: 1500}  # by width


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = publish(Path(folder))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for width, height in HEIGHTS.items():
            for scheme in ("light", "dark"):
                shown = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                shown.goto(file.as_uri())
                shown.evaluate("everlearn.settled()")
                seen = Image.open(io.BytesIO(shown.screenshot()))
                seen.quantize(96).save(ROOT / "docs" / f"report-{width}-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
