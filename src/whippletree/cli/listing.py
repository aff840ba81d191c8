"""A table that stays legible: where there is no room for its sentences beside the rest, they stand below each row, and
where there is none for the rest, each row is a list."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_SENTENCES = {"error": 24, "reason": 24, "problem": 24, "rebuild": 24, "live row": 24, "rebuilt row": 24, "id": 36}
"""The columns that are read as sentences, and the width that they need; what is in the others stays in one piece."""

_NUMBER = re.compile(r"-|[\d,]+(\.\d+)?( (ms|s|min|h|d)( ago)?)?")


class Listing:
    """Rows under their columns; numbers stand to the right."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
        self._columns = columns
        # Text, because a value in [brackets] is no markup.
        self._rows = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        below = [place for place, column in enumerate(self._columns) if column in _SENTENCES]
        beside = [place for place in range(len(self._columns)) if place not in below]
        if self._width(beside) + sum(self._needs(place) for place in below) <= options.max_width + 2:
            yield self._table(range(len(self._columns)))
            return
        if self._width(beside) > options.max_width + 2:
            for row in self._rows:
                yield from (self._list(row), Segment.line())
            return
        lines = console.render_lines(self._table(beside), options, pad=False)
        for line in lines[:2]:
            yield from (*line, Segment.line())
        for row, line in zip(self._rows, lines[2:], strict=True):
            yield from (*line, Segment.line())
            for place in below:
                if str(row[place]) != "-":
                    yield Padding(row[place], (0, 0, 0, 4))

    def _list(self, row: Sequence[Text]) -> Table:
        drawn = Table.grid(padding=(0, 2, 0, 0))
        drawn.add_column(no_wrap=True)
        drawn.add_column(overflow="fold")
        for column, cell in zip(self._columns, row, strict=True):
            drawn.add_row(Text(column, style="bold"), cell)
        return drawn

    def _width(self, places: Sequence[int]) -> int:
        return sum(2 + max(cell_len(str(row[place])) for row in [self._columns, *self._rows]) for place in places)

    def _needs(self, place: int) -> int:
        return min(self._width([place]), 2 + _SENTENCES[self._columns[place]])

    def _table(self, places: Sequence[int]) -> Table:
        drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for place in places:
            column = self._columns[place]
            numbers = all(_NUMBER.fullmatch(str(row[place])) for row in self._rows)
            whole = column not in _SENTENCES
            drawn.add_column(column, justify="right" if numbers else "left", overflow="fold", no_wrap=whole)
        for row in self._rows:
            drawn.add_row(*(row[place] for place in places))
        return drawn
