"""Tables as text: numbers to the right, the name last, so that it never needs to be cut in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Column", "cut", "lay_out", "short_command"]

GAP = "  "
_NARROWEST_NAME = 24
_LONGEST_COMMAND = 100


@dataclass(frozen=True)
class Column:
    """One column: its title, its cells, and how soon a narrow terminal does without it (0: never)."""

    title: str
    cells: Sequence[str]
    spare: int = 0

    @property
    def width(self) -> int:
        """Characters of the widest cell."""
        return max(len(self.title), max(map(len, self.cells), default=0))


def lay_out(columns: Sequence[Column], last: Column, width: int | None) -> tuple[Iterator[str], list[str]]:
    """The lines of a table, title first, and the titles of the columns a narrow terminal has no room for.

    ``last`` is the column of names. Without ``width`` nothing is left out and nothing is cut.
    """
    kept, dropped = list(columns), []
    if width is not None:
        while _total(kept) + _NARROWEST_NAME > width and any(column.spare for column in kept):
            victim = max(kept, key=lambda column: column.spare)
            kept.remove(victim)
            dropped.append(victim.title)
    room = None if width is None else max(width - _total(kept), _NARROWEST_NAME)
    return _lines(kept, last, room), [column.title for column in columns if column.title in dropped]


def cut(text: str, room: int | None) -> str:
    """The text, shortened in the middle where there is no room for all of it."""
    if room is None or len(text) <= room:
        return text
    head = (room - 1) * 2 // 3
    return text[:head] + "…" + text[len(text) - (room - 1 - head) :]


def short_command(text: str) -> str:
    """A command line for a line of text: what would break the line is escaped, and the middle of a long one left out.

    Programs that carry their sources in their arguments have some of thousands of characters.
    """
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return cut(shown, _LONGEST_COMMAND)


def _total(columns: Sequence[Column]) -> int:
    """Characters of all columns and the gaps behind them."""
    return sum(column.width + len(GAP) for column in columns)


def _lines(columns: Sequence[Column], last: Column, room: int | None) -> Iterator[str]:
    widths = [column.width for column in columns]
    rows = zip(*([column.title, *column.cells] for column in columns), [last.title, *last.cells], strict=True)
    for *cells, name in rows:
        numbers = GAP.join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield numbers + GAP + cut(name, room)
