"""Cells of a user's own: some for each of its functions, and the table that says which function has which."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Add, Cells
from shadowgraph.agent.number_sets import without
from shadowgraph.agent.registry import Registry

__all__ = ["OwnCells"]

_Numbers = npt.NDArray[np.int64]


class OwnCells:
    """``stride`` cells for each function of one user: those it has, and those it has had since it was registered."""

    def __init__(self, stride: int, add: Add | None = None) -> None:
        """``add`` is needed where these are whole pages that are not just added up."""
        self.stride = stride
        self._add = add
        self._numbers: _Numbers = np.zeros(0, np.int64)
        self._first: _Numbers = np.zeros(0, np.int64)
        self._runs: list[tuple[int, int]] = []  # first cell, functions

    def pool_size(self, registry: Registry, numbers: _Numbers) -> int:
        """Bytes of the table (struct sg_user: cell_table); the functions have cells of their own already."""
        own = registry.cells_of(numbers)
        return (int(own.max(initial=0)) + 1) * 4

    def fields(self, registry: Registry, cells: Cells, numbers: _Numbers, at: int) -> dict[str, int]:
        """Find room for a new user, write the table to ``at`` in the pool, and say so in fields of struct sg_user."""
        self._numbers = self._first = np.zeros(0, np.int64)
        self._runs = []
        first, count = self._take(cells, numbers)
        table = self._table(registry)
        registry.arena.pool[at : at + table.nbytes] = table.view(np.uint8)
        return {"first_cell": first, "cell_count": count, "cell_table": at}

    def grow(self, registry: Registry, cells: Cells, slot: int, numbers: _Numbers) -> None:
        """Let a registered user have cells for these functions too, for those that it has not had before."""
        new = without(numbers, self._numbers)
        if not len(new):
            return
        user = registry.user(slot)
        if user["parts"] and not registry.is_busy(slot):
            cells.drop_former_tables(user)
        former = (self._numbers, self._first, list(self._runs))
        try:
            first, count = self._take(cells, new)
            cells.add_part(user, self._table(registry), first, count)
        except BaseException:
            self._numbers, self._first, self._runs = former
            raise

    def _take(self, cells: Cells, numbers: _Numbers) -> tuple[int, int]:
        count = len(numbers) * self.stride
        first = cells.find_cells(count)
        cells.clear(first, count)
        places = np.arange(first, first + count, self.stride)
        has_some = len(self._numbers) > 0
        self._numbers = np.append(self._numbers, numbers) if has_some else numbers
        self._first = np.append(self._first, places) if has_some else places
        self._runs.append((first, len(numbers)))
        return first, count

    def _table(self, registry: Registry) -> npt.NDArray[np.uint32]:
        own = registry.cells_of(self._numbers)
        table = np.zeros(int(own.max(initial=0)) + 1, np.uint32)
        table[own] = self._first
        table[0] = len(table)
        return table

    def read(self, cells: Cells) -> list[npt.NDArray[np.uint64]]:
        """uint64[stride] of each function, by their numbers, added up over all threads; of maxima the largest."""
        maxima = slice(layout.CELL_MAXIMUM, None, self.stride) if self.stride > layout.CELL_MAXIMUM else None
        rows: list[npt.NDArray[np.uint64]] = []
        for first, count in self._runs:
            if self._add is not None:
                rows += cells.read_rows(first, count, self.stride, self._add)
            else:
                rows += list(cells.read(first, count * self.stride, maxima).reshape(-1, self.stride))
        return rows if len(self._runs) == 1 else [rows[at] for at in np.argsort(self._numbers).tolist()]
