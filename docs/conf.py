"""How the site is built: python docs/build_site.py, or make docs."""

import html
import os
import re
import sys
from pathlib import Path

from docutils import nodes

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
pygments_dark_style = "a11y-dark"  # the theme's own underlines modules as if they were links
html_title = "everlearn"
html_baseurl = os.environ.get("SITE_URL", "")  # where the site will be, such as https://example.org/everlearn/
html_baseurl = html_baseurl and html_baseurl.rstrip("/") + "/"
html_extra_path = ["_extra"]  # the report on the records, made when the site is built
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
PREVIEW = "_images/report-1280-light.png"
SHORTEST, LONGEST = 40, 200  # letters of a description; search engines show fewer


def words(paragraph: nodes.paragraph) -> str:
    """Its text, without tags and without what pictures say."""
    parts = [of.astext() for of in paragraph.findall(nodes.Text) if not isinstance(of.parent, nodes.raw)]
    return " ".join("".join(parts).split())


def described(app, name: str, template: str, context: dict, page: nodes.document | None) -> None:
    """What search engines and those who are sent a link see: the page's title and its first sentences."""
    said = map(words, page.findall(nodes.paragraph)) if page else ()
    text = next((of for of in said if len(of) >= SHORTEST), None)
    if text is None:  # a list of links, or a listing of code
        return
    if len(text) > LONGEST:
        text = text[:LONGEST].rsplit(" ", 1)[0] + " …"
    title = project if name == "index" else f"{app.env.titles[name].astext()} – {project}"
    shown = {"title": title, "description": text, "type": "website", "site_name": project}
    if html_baseurl:
        shown |= {"url": context["pageurl"], "image": html_baseurl + PREVIEW}
    tags = [f'<meta name="description" content="{html.escape(text)}">', '<meta name="twitter:card" content="summary">']
    tags += [f'<meta property="og:{key}" content="{html.escape(value)}">' for key, value in shown.items()]
    if name == "404" and html_baseurl:  # it is shown in place of pages of any folder
        tags.insert(0, f'<base href="{html.escape(html_baseurl)}">')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


def plain(app, what: str, name: str, thing, options, signature: str | None, returned: str | None):
    """A signature without what is no Python: how an argument is checked, and defaults that are made anew."""
    if signature:
        signature = re.sub(r"~?(?:types|typing)\.Annotated\[(.+?), Kind\(.+?>\)\]", r"\1", signature)
        signature = signature.replace("<factory>", "...")
    return signature, returned


def setup(app) -> None:
    app.connect("autodoc-process-signature", plain)
    app.connect("html-page-context", described)
