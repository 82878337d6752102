"""The functions of an image as columns: where they are, what they are called, and what speaks against hooking them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shadowgraph.image.names import Standing, displayed, name_by_address, preference
from shadowgraph.image.reasons import Reason
from shadowgraph.image.symbol_tables import Source, SymbolTables
from shadowgraph.image.symbols import STB_LOCAL, STB_WEAK, STT_GNU_IFUNC

__all__ = ["Aliases", "FunctionTable", "Part", "Source"]


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of code that is no function of its own: a cold part, or PLT stubs."""

    start: int
    size: int
    name: str
    reason: Reason


class FunctionTable:
    """One row a function, sorted by start; aliases are folded into one row. All arrays have the same length n.

    ``start``, ``size``  uint64, image virtual address and bytes; a size that the file does not tell reaches to the next
    ``source``           uint8, :class:`Source`
    ``is_ifunc``         bool, resolvers of indirect functions (STT_GNU_IFUNC): called once by the dynamic linker
    ``has_unwind``       bool, an unwind entry covers the start
    ``refused``          uint8, :class:`Reason`: what the tables alone say against hooking it, 0 if nothing

    ``parts`` are the pieces of code that were left out, by start; :meth:`left_out` counts them by reason.
    ``return_address_reads`` uint64[m] are the instructions that load the return address of the function they are in.
    """

    def __init__(
        self,
        *,
        start: npt.NDArray[np.uint64],
        size: npt.NDArray[np.uint64],
        source: npt.NDArray[np.uint8],
        is_ifunc: npt.NDArray[np.bool_],
        has_unwind: npt.NDArray[np.bool_],
        refused: npt.NDArray[np.uint8],
        aliases: Aliases,
        parts: Sequence[Part],
    ) -> None:
        self.start = start
        self.size = size
        self.source = source
        self.is_ifunc = is_ifunc
        self.has_unwind = has_unwind
        self.refused = refused
        self.parts = parts
        self.aliases = aliases
        self.return_address_reads: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def end(self) -> npt.NDArray[np.uint64]:
        """uint64[n]: the first address behind each function."""
        return self.start + self.size

    # --- names ---

    def names(self, index: int) -> list[str]:
        """All names of a function as the file has them (mangled, without versions), the preferred one first."""
        index = range(len(self))[index]
        known = self.aliases.of(index)
        return sorted(known, key=lambda name: preference(name, known[name])) or [
            name_by_address(int(self.start[index]))
        ]

    def name(self, index: int) -> str:
        """The preferred name: global, without leading underscores, short; ``sub_<hex address>`` for the nameless."""
        return self.names(index)[0]

    @cached_property
    def preferred_names(self) -> list[str]:
        """The preferred name of every function, decoded at once (about 0.1 s for 80,000) and kept."""
        single = self.aliases.single_names()
        return [single[i] or self.name(i) for i in range(len(self))]

    def find_name(self, name: str) -> list[int]:
        """The rows that have this very name, as the file spells it; found without decoding the others."""
        return self.aliases.find(name)

    # --- addresses ---

    def find(self, address: int) -> int:
        """The row whose range holds an image address, -1 if none does. Where ranges nest, the innermost."""
        row = int(np.searchsorted(self.start, np.uint64(address), side="right")) - 1
        for candidate in range(row, max(row - 16, -1), -1):
            if address < int(self.end[candidate]):
                return candidate
        return -1

    def find_part(self, address: int) -> Part | None:
        """The left-out piece of code that holds an image address."""
        low = int(np.searchsorted(self._part_starts, np.uint64(address), side="right")) - 1
        if low < 0 or address >= self.parts[low].start + self.parts[low].size:
            return None
        return self.parts[low]

    def left_out(self) -> dict[Reason, int]:
        """How many pieces of code were left out as no functions of their own, by reason."""
        return dict(Counter(part.reason for part in self.parts))

    @cached_property
    def _part_starts(self) -> npt.NDArray[np.uint64]:
        return np.array([part.start for part in self.parts], np.uint64)


def _standing(info: int) -> Standing:
    if info & 15 == STT_GNU_IFUNC:
        return Standing.INDIRECT
    return {STB_LOCAL: Standing.LOCAL, STB_WEAK: Standing.WEAK}.get(info >> 4, Standing.GLOBAL)


class Aliases:
    """Which symbols name which row: ``bounds`` int64[n + 1] into ``table`` (uint8) and ``symbol`` (int64)."""

    def __init__(
        self,
        tables: SymbolTables,
        bounds: npt.NDArray[np.int64],
        table: npt.NDArray[np.uint8],
        symbol: npt.NDArray[np.int64],
    ) -> None:
        self.tables = tables
        self.bounds = bounds
        self.table = table
        self.symbol = symbol

    def of(self, row: int) -> dict[str, Standing]:
        """The names of a row, each with the best standing that a symbol gives it."""
        names: dict[str, Standing] = {}
        for member in range(int(self.bounds[row]), int(self.bounds[row + 1])):
            symbols, symbol = self.tables[int(self.table[member])], int(self.symbol[member])
            name = displayed(symbols.raw_name(symbol))
            names[name] = min(names.get(name, Standing.INDIRECT), _standing(int(symbols.rows["info"][symbol])))
        names.pop("", None)
        return names

    def single_names(self) -> list[str]:
        """For each row with just one symbol its name, for the others ""."""
        names = [""] * (len(self.bounds) - 1)
        lone = np.flatnonzero(np.diff(self.bounds) == 1)
        first = self.bounds[:-1][lone]
        for number, symbols in enumerate(self.tables):
            chosen = self.table[first] == number
            raw = symbols.raw_names(self.symbol[first[chosen]].tolist())
            for row, name in zip(lone[chosen].tolist(), raw, strict=True):
                names[row] = displayed(name)
        return names

    def find(self, name: str) -> list[int]:
        """The rows that a symbol of this name belongs to."""
        raw, rows = name.encode("utf-8", "surrogateescape"), set[int]()
        for number, symbols in enumerate(self.tables):
            versioned = np.isin(self.symbol, symbols.find_name(raw)) & (self.table == number)
            rows.update((np.searchsorted(self.bounds, np.flatnonzero(versioned), side="right") - 1).tolist())
        return sorted(rows)
