"""How the site is built: python docs/build_site.py, or make docs."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from everlearn import __version__  # noqa: E402

project, author, version, release = "everlearn", "The everlearn developers", __version__, __version__
copyright = "2026, the everlearn developers"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_site", "_build", "jupyter_execute"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "docs" / "_build" / "cache")
nb_execution_in_temp = True
nb_execution_timeout = 240
nb_execution_show_tb = True
nb_execution_raise_on_error = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
html_theme = "furo"
html_title = "everlearn"
html_extra_path = ["_extra"]  # the report on the records, made when the site is built
html_theme_options = {"source_edit_link": "", "navigation_with_keys": True}


def setup(app) -> None:
    """A number and its deviation stay on one line."""

    def unbroken(app, name: str, source: list[str]) -> None:
        source[0] = source[0].replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")

    app.connect("source-read", unbroken)
