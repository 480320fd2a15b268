"""What a run's folder says, for people."""

import os
from typing import Any

from rich.console import Console

from everlearn.errors import printable

WIDE = 10_000  # a file or another program has no edge to fold lines at


class Screen(Console):
    """A console for anybody's words: what is no visible character in them is not printed."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(printable(of, keep="\n") if isinstance(of, str) else of for of in objects), **how)


def console(**settings: Any) -> Console:
    """A console that prints words as they are, whatever brackets, colons and numbers are in them."""
    made = Screen(markup=False, emoji=False, highlight=False, **settings)
    if "width" not in settings and "COLUMNS" not in os.environ and not made.file.isatty():
        made.width = WIDE
    return made
