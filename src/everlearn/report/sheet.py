"""The one way a table is printed: no figure is cut and no label is lost, however narrow the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from everlearn.errors import printable

BROKEN = 8  # characters of a word that is too long for the terminal stay together
GAP = 2  # between columns; half of it before the first and after the last


@dataclass
class Sheet:
    """Headings and rows, laid out as the room allows.

    Where a table is too wide, headings and texts fold between words. Where that is not enough, its columns stand in
    several tables below each other, each with the columns that name the rows. A figure stays on its line.
    """

    heads: Sequence[str]
    title: str | None = None
    labels: int = 1  # the first columns: they name a row
    texts: int = 1  # the first columns: they may fold and are set to the left; all others are figures
    caption: Text | None = None
    rows: list[tuple[str | Text, ...]] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)  # rows with a gap below them

    def __post_init__(self) -> None:
        self.heads = [printable(head, keep="\n") for head in self.heads]
        self.title = self.title and printable(self.title)

    def add_row(self, *cells: str | Text, end_section: bool = False) -> None:
        """Cells from the left; those that are not given stay empty."""
        self.rows.append((*map(_clean, cells), *[""] * (len(self.heads) - len(cells))))
        if end_section:
            self.add_section()

    def add_section(self) -> None:
        self.ends.add(len(self.rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        sizes = self._sizes()
        *others, last = self._pieces(sizes, options.max_width)
        for piece in others:
            yield self._table(piece, _widths([sizes[i] for i in piece], options.max_width))
        yield self._table(last, _widths([sizes[i] for i in last], options.max_width), self.caption)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        sizes = self._sizes()
        widest = max(GAP * len(sizes) + sum(size.natural for size in sizes), cell_len(self.title or ""))
        return Measurement(min(widest, options.max_width), min(widest, options.max_width))

    def _sizes(self) -> list[Size]:
        return [_size(head, [row[i] for row in self.rows], i < self.texts) for i, head in enumerate(self.heads)]

    def _pieces(self, sizes: Sequence[Size], room: int) -> list[list[int]]:
        """Columns that stand side by side: as few tables as fit, of the same number of columns if that can be."""
        names, others = list(range(self.labels)), list(range(self.labels, len(self.heads)))
        fits = lambda piece: GAP * len(names + piece) + sum(sizes[i].least for i in names + piece) <= room
        filled: list[list[int]] = []
        for i in others:
            if filled and fits([*filled[-1], i]):
                filled[-1].append(i)
            else:
                filled.append([i])
        size = math.ceil(len(others) / max(len(filled), 1))
        even = [others[start : start + size] for start in range(0, len(others), max(size, 1))]
        return [names + piece for piece in (even if all(map(fits, even)) else filled)] or [names]

    def _table(self, piece: Sequence[int], widths: Sequence[int], caption: Text | None = None) -> Table:
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
        table.caption, table.caption_justify = caption, "left"
        for i, width in zip(piece, widths):
            side = "left" if i < self.texts else "right"
            table.add_column(self.heads[i], justify=side, width=width, overflow="fold")
        for number, row in enumerate(self.rows):
            cells = (_folded(row[i], width) if i < self.texts else row[i] for i, width in zip(piece, widths))
            table.add_row(*cells, end_section=number in self.ends)
        return table


def _clean(cell: str | Text) -> str | Text:
    """A cell without what is no visible character, whoever named it; its lines stay lines."""
    return printable(cell, keep="\n") if isinstance(cell, str) else cell


class Size(NamedTuple):
    """How wide a column is if words may break, if they may not, and if nothing folds."""

    hard: int
    least: int
    natural: int


def _size(head: str, cells: Sequence[str | Text], text: bool) -> Size:
    """Figures never fold. The space before a line's first word is part of the word: it shows what stands under what."""
    lines, inside = head.split("\n"), [line for cell in cells for line in str(cell).split("\n")]
    words = [word for line in lines + inside * text for word in re.findall(r"^\s*\S+|\S+", line)]
    whole = max([1, *map(cell_len, inside)])
    least = max([1 if text else whole, *map(cell_len, words)])
    return Size(min(whole, BROKEN) if text else whole, least, max([whole, *map(cell_len, lines)]))


def _folded(cell: str | Text, width: int) -> str | Text:
    """A text in lines that fit. `interval = 10` stays together if it can, which folding between words would not do."""
    if isinstance(cell, Text) or max(map(cell_len, cell.split("\n"))) <= width:
        return cell
    lines: list[str] = []
    for line in cell.split("\n"):
        first, *others = re.findall(r"^\s*\S+(?: = \S+)?|\S+(?: = \S+)?", line) or [""]
        lines.append(first)
        for part in others:
            if cell_len(f"{lines[-1]} {part}") <= width:
                lines[-1] += f" {part}"
            else:
                lines.append(part)
    return "\n".join(lines)


def _widths(sizes: Sequence[Size], room: int) -> list[int]:
    """The widths nearest to the natural ones that fit: what folds most gets the next character."""
    widths = [size.least for size in sizes]
    spare = room - GAP * len(sizes) - sum(widths)
    while spare < 0 and any(width > size.hard for width, size in zip(widths, sizes)):
        i = max((i for i, size in enumerate(sizes) if widths[i] > size.hard), key=widths.__getitem__)
        widths[i], spare = widths[i] - 1, spare + 1
    while spare > 0 and any(width < size.natural for width, size in zip(widths, sizes)):
        i = max(range(len(sizes)), key=lambda i: sizes[i].natural / widths[i])
        widths[i], spare = widths[i] + 1, spare - 1
    return widths
