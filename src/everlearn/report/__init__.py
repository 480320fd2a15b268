"""What a run's folder says, for people."""

import os
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from everlearn.errors import printable

WIDE = 10_000  # a file or another program has no edge to fold lines at


class Screen(Console):
    """A console for anybody's words: what is no visible character in them is not printed, in a table neither."""

    def print(self, *objects: Any, **how: Any) -> None:
        """A word is one line, whatever is in it."""
        super().print(*(printable(of) if isinstance(of, str) else of for of in objects), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text, keep="\n")
            yield segment._replace(text=text)


def console(**settings: Any) -> Console:
    """A console that prints words as they are, whatever brackets, colons and numbers are in them."""
    made = Screen(markup=False, emoji=False, highlight=False, **settings)
    if "width" not in settings and "COLUMNS" not in os.environ and not made.file.isatty():
        made.width = WIDE
    return made
