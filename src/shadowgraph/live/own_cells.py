"""Cells of a user's own: some for each of its functions, and the table that says which function has which."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry

__all__ = ["OwnCells"]

_Numbers = npt.NDArray[np.int64]


class OwnCells:
    """``stride`` cells for each function of one user."""

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self._first = 0

    def pool_size(self, registry: Registry, numbers: _Numbers) -> int:
        """Bytes of the table of ranks (struct sg_user); the functions have their own numbers of cells already."""
        own = registry.arena.functions["cell"][numbers]
        return (int(own.max(initial=0)) + 1) * 4

    def fields(self, registry: Registry, cells: Cells, numbers: _Numbers, at: int) -> dict[str, int]:
        """Find room, write the table to ``at`` in the pool, and say so in fields of struct sg_user."""
        own = registry.arena.functions["cell"][numbers]
        ranks = np.zeros(int(own.max(initial=0)) + 1, np.uint32)
        ranks[own] = np.arange(1, len(own) + 1)
        registry.arena.pool[at : at + ranks.nbytes] = ranks.view(np.uint8)
        count = len(numbers) * self.stride
        self._first = cells.find_cells(count)
        cells.clear(self._first, count)
        return {"first_cell": self._first, "cell_count": count, "ranks": at, "rank_count": len(ranks)}

    def read(self, cells: Cells, functions: int) -> npt.NDArray[np.uint64]:
        """uint64[functions, stride], added up over all threads; where there are maxima, the largest of them."""
        step = min(self.stride, layout.HISTOGRAM_CELLS)
        maxima = slice(layout.CELL_MAXIMUM, None, step) if step > layout.CELL_MAXIMUM else None
        return cells.read(self._first, functions * self.stride, maxima).reshape(-1, self.stride)
