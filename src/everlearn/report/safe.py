"""Foreign words (class names, labels, paths) as text in each form a table has: nobody's names are commands there."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

from everlearn.errors import printable

LATEX = {c: f"\\{c}" for c in "{}$&#_%"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "`": r"\`{}",
    '"': r"\char34{}",
    "[": "{[}",
    "]": "{]}",
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "–": r"\textendash{}",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
}
ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030c": "v", "\u0327": "c"}
LIGATURES = "-',"  # LaTeX joins two of them into one sign
FORMULAS = ("=", "+", "-", "@")  # what makes a cell of a spreadsheet a formula


def csv(text: object) -> str:
    """For a cell of a spreadsheet: what looks like a formula begins with an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.lstrip(" \ufffd").startswith(FORMULAS) else shown


def markdown(text: object) -> str:
    """Text for a cell of a Markdown table."""
    entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    plain = lambda c: c.isalnum() or c in " ,.:=+-()/%" or not c.isascii()
    escaped = "".join(entities.get(c) or (c if plain(c) else f"\\{c}") for c in printable(text))
    return escaped.replace("www.", "www\\.").replace("://", "\\://")  # no link


def latex(text: object) -> str:
    """For a cell of a LaTeX table; a character that LaTeX may not have is named by its number."""
    apart = lambda c, following: "{}" if c == following and c in LIGATURES else ""
    return "".join(_latex(c) + apart(c, following) for c, following in pairwise([*printable(text), ""]))


def _latex(c: str) -> str:
    if c in LATEX:
        return LATEX[c]
    if c.isascii():
        return c
    letter, *marks = unicodedata.normalize("NFD", c)
    if letter.isascii() and letter.isalpha() and len(marks) == 1 and marks[0] in ACCENTS:
        dotless = {"i": r"\i", "j": r"\j"}.get(letter, letter)
        return f"\\{ACCENTS[marks[0]]}{{{dotless}}}"
    return rf"\texttt{{U+{ord(c):04X}}}"
