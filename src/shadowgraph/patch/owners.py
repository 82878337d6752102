"""Who owns a byte of text: the functions of the table, and the pieces of code that were left out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.text import Places, Text

if TYPE_CHECKING:
    from shadowgraph.image.functions import FunctionTable

__all__ = ["NOBODY", "Owners"]

NOBODY = -1
_BEHIND_EVERYTHING = np.iinfo(np.int64).max


class Owners:
    """Pieces of code by ``start`` and ``end`` (places); ``row`` is the function, NOBODY for a left-out piece."""

    def __init__(self, text: Text, functions: FunctionTable) -> None:
        parts = functions.parts
        starts = np.concatenate([functions.start, np.array([part.start for part in parts], np.uint64)])
        sizes = np.concatenate([functions.size, np.array([part.size for part in parts], np.uint64)])
        rows = np.concatenate([np.arange(len(functions)), np.full(len(parts), NOBODY)])
        places = text.places(starts)
        order = np.argsort(places, kind="stable")
        order = order[places[order] >= 0]
        self.start: Places = places[order]
        self.end: Places = self.start + sizes[order].astype(np.int64)
        self.row: npt.NDArray[np.int64] = rows[order]

    def at(self, places: Places) -> npt.NDArray[np.int64]:
        """Index of the innermost piece that holds each place, NOBODY where there is none."""
        if not len(self.start):
            return np.full(len(places), NOBODY)
        index = np.searchsorted(self.start, places, side="right") - 1
        inside = (index >= 0) & (places < self.end[index])
        return np.where(inside, index, NOBODY)

    def rows_at(self, places: Places) -> npt.NDArray[np.int64]:
        """Row of the function that holds each place, NOBODY where it is none."""
        index = self.at(places)
        return np.where(index == NOBODY, NOBODY, self.row[index] if len(self.row) else NOBODY)

    def next_start(self, places: Places) -> Places:
        """The first start of anything behind each place."""
        starts = np.append(self.start, _BEHIND_EVERYTHING)
        return starts[np.searchsorted(self.start, places, side="right")]
