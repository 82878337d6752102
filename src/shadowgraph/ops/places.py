"""What lies at the places of a ring segment, each 16 bytes as a record is (native/include/shadowgraph/records.h)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout

__all__ = ["Renumbering", "count_calls", "has_holes"]

_FUNCTION_MASK = (1 << layout.FUNCTION_BITS) - 1

Words = npt.NDArray[np.uint64]


def has_holes(words: Words) -> bool:
    """Whether a place is reserved and not yet filled: its second word is 0, and it does not hold captured values."""
    zero = words[1::2] == 0
    return bool(zero.any()) and bool((zero & ~_captured(words)).any())


def count_calls(words: Words) -> int:
    """How many records of calls there are."""
    functions = words[1::2] & np.uint64(_FUNCTION_MASK)
    calls = (functions != 0) & (functions < layout.ESCAPE_FIRST)
    return int((calls & ~_captured(words)).sum())


class Renumbering:
    """Other numbers for some functions than those that their records have; ``numbers`` may grow."""

    def __init__(self, numbers: Mapping[int, int]) -> None:
        self.numbers = numbers
        self._table = np.zeros(0, np.uint64)
        self._known = 0

    def apply(self, words: Words) -> None:
        """Give the calls at these places their other numbers."""
        if not self.numbers:
            return
        if self._known != len(self.numbers):
            rows = dict(self.numbers)
            self._table = np.arange(max(rows) + 1, dtype=np.uint64)
            self._table[list(rows)] = list(rows.values())
            self._known = len(rows)
        second = words[1::2]
        functions = second & np.uint64(_FUNCTION_MASK)
        concerned = functions < len(self._table)
        if (functions == layout.ESCAPE_VALUES).any():
            concerned &= ~_captured(words)
        second[concerned] += self._table[functions[concerned]] - functions[concerned]


def _captured(words: Words) -> npt.NDArray[np.bool_]:
    """Which places hold captured values, in which any bit pattern may stand, that of an escape too."""
    second = words[1::2]
    headers = np.flatnonzero((second & np.uint64(_FUNCTION_MASK) == layout.ESCAPE_VALUES) & (words[::2] == 0))
    ends = headers + 1 + (second[headers] >> np.uint64(layout.FUNCTION_BITS)).astype(np.int64)
    if (headers[1:] < ends[:-1]).any():
        headers, ends = _not_within_others(headers, ends)
    edges = np.zeros(len(second) + 1, np.int64)
    np.add.at(edges, headers + 1, 1)
    np.add.at(edges, np.minimum(ends, len(second)), -1)
    return np.cumsum(edges[:-1]) > 0


def _not_within_others(
    headers: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Without those that are captured values themselves."""
    kept, at = [], 0
    for index, (header, end) in enumerate(zip(headers.tolist(), ends.tolist(), strict=True)):
        if header >= at:
            kept.append(index)
            at = end
    return headers[kept], ends[kept]
