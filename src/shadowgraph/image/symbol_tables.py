"""The symbol tables of an image: its own, and those that were moved out of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import overload

from shadowgraph.errors import UsageError
from shadowgraph.image import elf
from shadowgraph.image.debugfiles import DEBUG_ROOTS, find_debug_file, open_debug_data, open_debug_file
from shadowgraph.image.image import Image
from shadowgraph.image.symbols import SymbolTable, dynamic_symbols, section_symbols

__all__ = ["Source", "SymbolTables", "find_symbol_tables"]


class Source(IntEnum):
    """Where a function is known from; the first that knows it."""

    SYMTAB = 0
    DEBUGDATA = 1
    DEBUGFILE = 2
    DYNSYM = 3
    UNWIND = 4


class SymbolTables(Sequence[SymbolTable]):
    """Tables of an image that are opened when the first of them is asked for.

    ``sources`` says where each is, ``debug_path`` which file Source.DEBUGFILE is in. ``tables``, or ``unpacked`` for
    what was in .gnu_debugdata, are those that are known already.
    """

    def __init__(
        self,
        image: Image,
        sources: Sequence[Source],
        debug_path: Path | None,
        tables: Sequence[SymbolTable] | None = None,
        unpacked: SymbolTable | None = None,
    ) -> None:
        self.sources = list(sources)
        self.debug_path = debug_path
        self._image = image
        self._tables = tables
        self._unpacked = unpacked

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> SymbolTable: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SymbolTable]: ...
    def __getitem__(self, index: int | slice) -> SymbolTable | Sequence[SymbolTable]:
        if self._tables is None:
            self._tables = [self._open(source) for source in self.sources]
        return self._tables[index]

    def _open(self, source: Source) -> SymbolTable:
        table: SymbolTable | None = None
        if source is Source.SYMTAB:
            table = section_symbols(self._image.elf, elf.SHT_SYMTAB)
        elif source is Source.DEBUGDATA:
            table = self._unpacked
        elif source is Source.DEBUGFILE and self.debug_path is not None:
            file = open_debug_file(self.debug_path)
            table = section_symbols(file, elf.SHT_SYMTAB) if file else None
        elif source is Source.DYNSYM:
            table = dynamic_symbols(self._image)
        if table is None:
            raise UsageError(f"{self._image.path}: its symbols ({self.debug_path}) have just been taken away.")
        return table


def find_symbol_tables(image: Image, debug_roots: Sequence[str] = DEBUG_ROOTS) -> SymbolTables:
    """.symtab, else .gnu_debugdata and an installed debug file; and always .dynsym."""
    found: list[tuple[SymbolTable | None, Source]] = []
    own, debug_path = section_symbols(image.elf, elf.SHT_SYMTAB), None
    found.append((own, Source.SYMTAB))
    if own is None:
        inner = open_debug_data(image)
        found.append((section_symbols(inner, elf.SHT_SYMTAB) if inner else None, Source.DEBUGDATA))
        debug_path, outer = find_debug_file(image, debug_roots) or (None, None)
        found.append((section_symbols(outer, elf.SHT_SYMTAB) if outer else None, Source.DEBUGFILE))
    found.append((dynamic_symbols(image), Source.DYNSYM))
    there = [(table, source) for table, source in found if table is not None]
    return SymbolTables(image, [source for _, source in there], debug_path, [table for table, _ in there])
