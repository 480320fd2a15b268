"""What a run's folder says, for people."""

import os
from typing import Any

from rich.console import Console

WIDE = 10_000  # a file or another program has no edge to fold lines at


def console(**settings: Any) -> Console:
    """A console that prints words as they are, whatever brackets, colons and numbers are in them."""
    made = Console(markup=False, emoji=False, highlight=False, **settings)
    if "width" not in settings and "COLUMNS" not in os.environ and not made.file.isatty():
        made.width = WIDE
    return made
