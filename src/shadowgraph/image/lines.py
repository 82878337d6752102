"""Source lines of addresses, from debug information (libdw)."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from ctypes import byref, c_int
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.image.debugfiles import DEBUG_ROOTS
from shadowgraph.image.image import Image
from shadowgraph.image.libdw import DebugInformation, NoDebugInformation, Unit, load_libdw, open_debug_information

__all__ = ["LineTable", "SourceLine", "read_lines"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A place in a source file; ``file`` is absolute, unless the compiler was told to hide where it ran."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LineTable:
    """Finds the source lines of image addresses. ``remark`` is a sentence where there are none to be found, else ""."""

    def __init__(self, debug: DebugInformation | None, remark: str = "") -> None:
        self.remark = remark
        self._debug = debug
        self._units = UnitMap(debug.units()) if debug is not None else UnitMap([])

    def find(self, addresses: Sequence[int] | npt.NDArray[np.uint64]) -> list[SourceLine | None]:
        """The line of each address, None where no debug information covers it."""
        return [
            _line_in(unit, address) if unit is not None else None
            for unit, address in zip(self._units.find(addresses), map(int, addresses), strict=True)
        ]


class UnitMap:
    """Which compilation unit an address belongs to."""

    def __init__(self, units: list[Unit]) -> None:
        rows = sorted((start, end, number) for number, unit in enumerate(units) for start, end in unit.ranges())
        self._units = units
        self._start = np.array([row[0] for row in rows], np.uint64)
        self._end = np.array([row[1] for row in rows], np.uint64)
        self._number = [row[2] for row in rows]

    def find(self, addresses: Sequence[int] | npt.NDArray[np.uint64]) -> list[Unit | None]:
        """The unit of each address, or None."""
        wanted = np.asarray(addresses, np.uint64)
        if not len(self._start):
            return [None] * len(wanted)
        row = np.searchsorted(self._start, wanted, side="right") - 1
        inside = (row >= 0) & (wanted < self._end[row])
        return [
            self._units[self._number[r]] if ok else None for r, ok in zip(row.tolist(), inside.tolist(), strict=True)
        ]


def read_lines(image: Image, debug_roots: Sequence[str] = DEBUG_ROOTS) -> LineTable:
    """The source lines of an image; an empty table with a remark where libdw or debug information is missing."""
    try:
        return LineTable(open_debug_information(image, debug_roots))
    except NoDebugInformation as reason:
        return LineTable(None, str(reason))


def _line_in(unit: Unit, address: int) -> SourceLine | None:
    lib, number = load_libdw(), c_int()
    line = lib.dwarf_getsrc_die(byref(unit.skeleton), address)
    if not line or lib.dwarf_lineno(line, byref(number)):
        return None
    file = lib.dwarf_linesrc(line, None, None)
    if not file:
        return None
    return SourceLine(posixpath.normpath(file.decode("utf-8", "surrogateescape")), number.value)
