"""Cells as controllers see them: sums over all threads, and places for new ones.

Their layout is that of native/include/shadowgraph/users.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.errors import StartError, UsageError

__all__ = ["Add", "Cells"]

_Counts = npt.NDArray[np.uint64]
Add = Callable[[_Counts, _Counts, int], None]


class Cells:
    """The cells of an arena."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena

    def read(self, first: int, count: int, maxima: slice | None = None) -> _Counts:
        """uint64[count]: the cells from number ``first`` on, added up over all threads.

        Of those that ``maxima`` says (positions among them) the largest counts.
        """
        size = layout.PAGE_CELLS
        low, high = first // size, (first + count - 1) // size + 1
        total = np.zeros((high - low) * size, np.uint64)
        largest = np.zeros_like(total) if maxima is not None else total
        for page in self._pages(low, high):
            at = (int(self.arena.pages["number"][page]) - low) * size
            cells = self.arena.cells[page]
            total[at : at + size] += cells
            if maxima is not None:
                np.maximum(largest[at : at + size], cells, out=largest[at : at + size])
        found: _Counts = total[first - low * size :][:count]
        if maxima is not None:
            found[maxima] = largest[first - low * size :][:count][maxima]
        return found

    def read_rows(self, first: int, count: int, stride: int, add: Add) -> list[_Counts]:
        """``count`` times ``stride`` cells, which are whole pages; rows that nobody has touched are one and the same.

        ``add`` adds a thread's page to those of others, in place, and is told which of a row's pages it is.
        """
        size = layout.PAGE_CELLS
        parts, low = stride // size, first // size
        untouched = np.zeros(stride, np.uint64)
        rows = [untouched] * count
        for page in self._pages(low, low + count * parts):
            row, part = divmod(int(self.arena.pages["number"][page]) - low, parts)
            if rows[row] is untouched:
                rows[row] = np.zeros(stride, np.uint64)
            add(rows[row][part * size :][:size], self.arena.cells[page], part)
        return rows

    def read_each(self, numbers: npt.NDArray[np.integer]) -> _Counts:
        """uint64[n]: the cells with these numbers, added up over all threads."""
        if not len(numbers):
            return np.zeros(0, np.uint64)
        first, last = int(numbers.min()), int(numbers.max())
        found: _Counts = self.read(first, last + 1 - first)[numbers.astype(np.int64, copy=False) - first]
        return found

    def clear(self, first: int, count: int) -> None:
        """Set cells to 0 that nobody adds to; they are whole pages."""
        size = layout.PAGE_CELLS
        self.arena.cells[self._pages(first // size, (first + count + size - 1) // size)] = 0

    def _pages(self, low: int, high: int) -> list[int]:
        pages = self.arena.pages[: int(self.arena.header["page_end"])]
        known = (pages["state"] == layout.PAGE_USED) | (pages["state"] == layout.PAGE_ORPHAN)
        found: list[int] = np.flatnonzero(known & (pages["number"] >= low) & (pages["number"] < high)).tolist()
        return found

    # --- places ---

    def find_cells(self, count: int) -> int:
        """The number of the first of so many cells (whole pages) that belong to no user."""
        size = layout.PAGE_CELLS
        taken = [(0, layout.COUNTER_CELLS)]
        taken += [(at, held) for at, held in self._held("first_cell", "cell_count") if at]
        pages = [(first // size, -(-(first + length) // size)) for first, length in taken]
        page = _first_gap(pages, -(-count // size), layout.PAGE_NUMBERS)
        if page is None:
            most = layout.PAGE_NUMBERS - layout.COUNTER_CELLS // size
            raise UsageError(
                f"no room to measure so many functions: a process has histograms of {most:,} functions at most, "
                "of values that may be negative half as many, of floating-point ones a ninth; choose fewer functions"
            )
        return page * size

    def find_pool(self, size: int) -> int:
        """A place in the pool for so many bytes."""
        taken = [(0, 64)]  # place 0 means none
        taken += [(place, place + length) for place, length in self._held("pool_at", "pool_size")]
        at = _first_gap(taken, (size + 63) // 64 * 64, layout.POOL_SIZE, 64)
        if at is None:
            raise StartError("there is no room left for what users keep in the process; end some of them first")
        return at

    def add_part(self, user: np.void, table: npt.NDArray[np.uint32], first_cell: int, cell_count: int) -> None:
        """Give a user more cells, and another table that says which of them are whose (struct sg_user).

        ``table`` has all that the former one has: threads go on with that until they look again.
        """
        head = layout.user_part_dtype.itemsize
        at = self.find_pool(head + table.nbytes)
        part = self._part(at)
        part["next"], part["pool_at"], part["pool_size"] = user["parts"], at, head + table.nbytes
        part["first_cell"], part["cell_count"] = first_cell, cell_count
        self.arena.pool[at + head : at + head + table.nbytes] = table.view(np.uint8)
        user["parts"] = at  # from here on it is the user's
        user["cell_table"] = at + head

    def drop_former_tables(self, user: np.void) -> None:
        """Give back the tables of all parts but the newest. No thread is doing anything for the user."""
        for part in list(self._parts(user))[1:]:
            part["pool_size"] = layout.user_part_dtype.itemsize

    def _part(self, at: int) -> np.void:
        part: np.void = self.arena.pool[at : at + layout.user_part_dtype.itemsize].view(layout.user_part_dtype)[0]
        return part

    def _parts(self, user: np.void) -> Iterator[np.void]:
        at = int(user["parts"])
        while at:
            part = self._part(at)
            yield part
            at = int(part["next"])

    def _held(self, at: str, length: str) -> Iterator[tuple[int, int]]:
        """Where what users hold lies and how long it is (two fields), what they were given since included."""
        users = self.arena.registry["users"]
        columns = (users[name].tolist() for name in ("kind", at, length, "parts"))
        for slot, (kind, place, size, parts) in enumerate(zip(*columns, strict=True)):
            if kind != layout.USER_FREE:
                yield place, size
            if kind != layout.USER_FREE and parts:
                yield from ((int(part[at]), int(part[length])) for part in self._parts(users[slot]))


def _first_gap(taken: list[tuple[int, int]], length: int, end: int, step: int = 1) -> int | None:
    """The start of the first free range of a length, among taken ranges [low, high), below ``end``."""
    at = 0
    for low, high in sorted(taken):
        if low - at >= length:
            return at
        at = max(at, -(-high // step) * step)
    return at if end - at >= length else None
