"""Exchanging bytes of a process's code in many places at once, where it holds what it is expected to hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.target.memory import Memory

__all__ = ["WIDTH", "Exchange"]

WIDTH = 5  # no patch is longer
_PAGE = 4096

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_Bools = npt.NDArray[np.bool_]


class Exchange:
    """Rows of ``sizes`` bytes at ``addresses``, read and written in runs of pages.

    Whoever looks first and writes later must hold all threads of the process. Text stays executable at all times, and
    pages without a row stay shared with the file. Whoever is killed while he writes has written some pages, each as a
    whole; so rows that lie in two are written by themselves.
    """

    def __init__(self, addresses: npt.NDArray[np.integer], sizes: npt.NDArray[np.integer]) -> None:
        self._order = np.argsort(addresses, kind="stable")
        self._address = np.asarray(addresses).astype(np.int64)[self._order]
        self._changed = np.arange(WIDTH) < np.asarray(sizes)[self._order][:, None]
        self._runs: list[tuple[_Ints, int, _Bytes]] = []

    def read(self, memory: Memory) -> None:
        """Take in what the process has there. Where it has no memory, no row holds anything."""
        if not len(self._address):
            return
        first, last = self._address // _PAGE, (self._address + WIDTH - 1) // _PAGE
        ends = np.flatnonzero(first[1:] > np.maximum.accumulate(last)[:-1] + 1) + 1
        self._runs = []
        for run in np.split(np.arange(len(self._address)), ends):
            start, end = int(first[run[0]]) * _PAGE, (int(last[run].max()) + 1) * _PAGE
            self._take(memory, run, start, end)

    def _take(self, memory: Memory, run: _Ints, start: int, end: int) -> None:
        try:
            data = np.frombuffer(bytearray(memory.read(start, end - start)), np.uint8)
        except OSError:  # part of it is not mapped
            for row in run.tolist():
                self._take_row(memory, row)
            return
        self._runs.append((run, start, data))

    def _take_row(self, memory: Memory, row: int) -> None:
        start, size = int(self._address[row]), int(self._changed[row].sum())
        try:
            data = np.frombuffer(bytearray(memory.read(start, size)), np.uint8)
        except OSError:
            return
        self._runs.append((np.array([row]), start, data))

    def holds(self, wanted: _Bytes) -> _Bools:
        """bool[rows]: which of them hold these bytes (uint8[rows, WIDTH], as many of them as a row has)."""
        found = np.zeros(len(self._address), np.bool_)
        for run, start, data in self._runs:
            same = (data[self._places(run, start, data)] == wanted[self._order[run]]) | ~self._changed[run]
            found[self._order[run]] = same.all(axis=1)
        return found

    @property
    def present(self) -> _Bools:
        """bool[rows]: where the process has memory."""
        found = np.zeros(len(self._address), np.bool_)
        for run, _, _ in self._runs:
            found[self._order[run]] = True
        return found

    def write(self, memory: Memory, replacement: _Bytes, rows: _Bools) -> None:
        """Write these bytes to some of the rows."""
        for run, start, data in self._runs:
            wanted = self._changed[run] & rows[self._order[run]][:, None]
            if not wanted.any():
                continue
            places, new = self._places(run, start, data), replacement[self._order[run]]
            in_two = (self._address[run] % _PAGE + self._changed[run].sum(axis=1) > _PAGE)[:, None]
            data[places[wanted & ~in_two]] = new[wanted & ~in_two]
            memory.write(start, data.data)
            for row in np.flatnonzero((wanted & in_two).any(axis=1)).tolist():
                memory.write(int(self._address[run[row]]), new[row][wanted[row]].tobytes())

    def _places(self, run: _Ints, start: int, data: _Bytes) -> _Ints:
        places = (self._address[run] - start)[:, None] + np.arange(WIDTH)
        inside: _Ints = np.minimum(places, len(data) - 1)
        return inside
