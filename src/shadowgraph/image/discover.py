"""Find all functions of an image: symbols from wherever they are, and unwind entries where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.image.debugfiles import DEBUG_ROOTS
from shadowgraph.image.functions import Aliases, FunctionTable, Part, Source
from shadowgraph.image.image import Image
from shadowgraph.image.names import cold_parent, displayed, ends_like_cold_part, name_by_address
from shadowgraph.image.padding import is_padding
from shadowgraph.image.reasons import Reason
from shadowgraph.image.symbol_tables import SymbolTables, find_symbol_tables
from shadowgraph.image.symbols import (
    SHN_UNDEF,
    STB_LOCAL,
    STT_FUNC,
    STT_GNU_IFUNC,
    STT_NOTYPE,
    SymbolTable,
)
from shadowgraph.image.unwind import UnwindTable, read_unwind_table
from shadowgraph.image.vetting import judge_starts, refuse_by_code, refuse_by_name, refuse_by_place

__all__ = ["read_functions"]

# An FDE range that no symbol covers and that says this about its start is part of some function, not one itself.
_PARTS_BY_UNWIND = (Reason.FRAME_IN_PROGRESS,)


def read_functions(
    image: Image, unwind: UnwindTable | None = None, debug_roots: Sequence[str] = DEBUG_ROOTS
) -> FunctionTable:
    """All functions of the image. Pass ``unwind`` if the unwind table was read already; it is read otherwise.

    Symbols come from .symtab, else from .gnu_debugdata and an installed debug file, and always from .dynsym; stretches
    that only unwind entries tell of are functions named by address.
    """
    if unwind is None:
        unwind = read_unwind_table(image)
    tables = find_symbol_tables(image, debug_roots)
    symbols = _function_symbols(image, tables, unwind)
    parts: list[Part] = []
    symbols = _without_parts(symbols, tables, unwind, parts)
    return _fold(image, symbols=symbols, tables=tables, unwind=unwind, parts=parts)


@dataclass(slots=True)
class _Symbols:
    """Columns of the symbols that stand for functions, of all tables together."""

    start: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint64]
    table: npt.NDArray[np.uint8]
    symbol: npt.NDArray[np.int64]
    is_ifunc: npt.NDArray[np.bool_]

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> _Symbols:
        return _Symbols(self.start[rows], self.size[rows], self.table[rows], self.symbol[rows], self.is_ifunc[rows])


def _function_symbols(image: Image, tables: SymbolTables, unwind: UnwindTable) -> _Symbols:
    columns: list[_Symbols] = []
    for number, table in enumerate(tables):
        kind, rows = table.kind, table.rows
        defined = (rows["section"] != SHN_UNDEF) & image.is_executable(rows["value"])
        typed = np.flatnonzero(defined & ((kind == STT_FUNC) | (kind == STT_GNU_IFUNC)))
        untyped = np.flatnonzero(defined & (kind == STT_NOTYPE))
        untyped = _untyped_functions(table, untyped, rows["value"][typed], rows["size"][typed], unwind)
        chosen = np.concatenate([typed, untyped])
        number_column = np.full(len(chosen), number, np.uint8)
        is_ifunc = kind[chosen] == STT_GNU_IFUNC
        columns.append(_Symbols(rows["value"][chosen], rows["size"][chosen], number_column, chosen, is_ifunc))
    if not columns:
        none = np.zeros(0, np.uint64)
        return _Symbols(none, none, np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.bool_))
    joined = _Symbols(
        np.concatenate([column.start for column in columns]),
        np.concatenate([column.size for column in columns]),
        np.concatenate([column.table for column in columns]),
        np.concatenate([column.symbol for column in columns]),
        np.concatenate([column.is_ifunc for column in columns]),
    )
    if len(tables) > 1 and tables.sources[-1] == Source.DYNSYM:
        joined = _without_repeats(joined, len(tables) - 1)
    return joined


def _without_repeats(symbols: _Symbols, dynamic: int) -> _Symbols:
    """Leave out the dynamic symbols of addresses that the full table names as often: linkers put them in both."""
    is_dynamic = symbols.table == dynamic
    if not is_dynamic.any():
        return symbols
    starts, inverse = np.unique(symbols.start, return_inverse=True)
    in_dynamic = np.bincount(inverse[is_dynamic], minlength=len(starts))
    in_others = np.bincount(inverse[~is_dynamic], minlength=len(starts))
    repeated = is_dynamic & (in_others >= in_dynamic)[inverse]
    return symbols.take(~repeated)


def _untyped_functions(
    table: SymbolTable,
    candidates: npt.NDArray[np.int64],
    typed_start: npt.NDArray[np.uint64],
    typed_size: npt.NDArray[np.uint64],
    unwind: UnwindTable,
) -> npt.NDArray[np.int64]:
    """Which symbols without a type name hand-written functions.

    Those at the start of an FDE, and global ones outside every FDE and every function that has a size. Not the markers
    of tools and linkers (``.annobin_…``, ``$x``, ``__start_SECTION``), nor local labels within code.
    """
    if not len(candidates):
        return candidates
    value = table.rows["value"][candidates]
    at_fde = _among(value, unwind.start)
    order = np.argsort(typed_start, kind="stable")
    start, end = typed_start[order], np.maximum.accumulate((typed_start + typed_size)[order])
    behind = np.searchsorted(start, value, side="right") - 1
    within = (behind >= 0) & (value < end[np.maximum(behind, 0)]) if len(start) else np.zeros(len(value), np.bool_)
    free = (table.binding[candidates] != STB_LOCAL) & (unwind.indexes(value) < 0) & ~within
    chosen = candidates[(at_fde & ~_among(value, start)) | free]
    names = table.raw_names(chosen.tolist())
    keep = [bool(name) and not name.startswith((b".", b"$", b"__start_", b"__stop_")) for name in names]
    kept: npt.NDArray[np.int64] = chosen[np.array(keep, np.bool_)]
    return kept


def _among(values: npt.NDArray[np.uint64], ascending: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which values occur in an ascending array."""
    followed = np.append(ascending, np.uint64(2**64 - 1))
    found: npt.NDArray[np.bool_] = followed[np.searchsorted(ascending, values)] == values
    return found


def _without_parts(symbols: _Symbols, tables: SymbolTables, unwind: UnwindTable, parts: list[Part]) -> _Symbols:
    """Take out the symbols of cold parts and append them to ``parts``."""
    is_part = np.zeros(len(symbols.start), np.bool_)
    for number, table in enumerate(tables):
        mine = np.flatnonzero(symbols.table == number)
        maybe = mine[ends_like_cold_part(table.strings, table.name_ends(symbols.symbol[mine]))]
        names = table.raw_names(symbols.symbol[maybe].tolist())
        is_part[[row for row, name in zip(maybe.tolist(), names, strict=True) if cold_parent(displayed(name))]] = True
    for row in np.flatnonzero(is_part).tolist():
        start, size = int(symbols.start[row]), int(symbols.size[row])
        fde = unwind.index(start)
        if not size and fde >= 0:
            size = int(unwind.end[fde]) - start
        name = displayed(tables[int(symbols.table[row])].raw_name(int(symbols.symbol[row])))
        parts.append(Part(start, size, name, Reason.COLD_PART))
    return symbols.take(~is_part)


def _fold(
    image: Image,
    *,
    symbols: _Symbols,
    tables: SymbolTables,
    unwind: UnwindTable,
    parts: list[Part],
) -> FunctionTable:
    """One row for each address: aliases together, sizes completed, functions that only the unwind table knows added."""
    symbols = symbols.take(_outside_plt(image, symbols.start))
    symbols = symbols.take(np.argsort(symbols.start, kind="stable"))
    start, first = np.unique(symbols.start, return_index=True)
    size = np.maximum.reduceat(symbols.size, first) if len(first) else np.zeros(0, np.uint64)
    size = _completed_sizes(image, start, size, unwind)
    lonely = _uncovered_entries(image, start, size, unwind, parts)
    everything = np.concatenate([start, unwind.start[lonely]])
    order = np.argsort(everything, kind="stable")
    counts = np.concatenate([np.diff(np.append(first, len(symbols.start))), np.zeros(len(lonely), np.int64)])[order]
    aliases = Aliases(tables, np.concatenate([[0], np.cumsum(counts)]), symbols.table, symbols.symbol)
    named_source = (
        np.array(tables.sources, np.uint8)[np.minimum.reduceat(symbols.table, first)]
        if len(first)
        else np.zeros(0, np.uint8)
    )
    named_ifunc = np.logical_or.reduceat(symbols.is_ifunc, first) if len(first) else np.zeros(0, np.bool_)
    all_start = everything[order]
    table = FunctionTable(
        start=all_start,
        size=np.concatenate([size, unwind.size[lonely]])[order],
        source=np.concatenate([named_source, np.full(len(lonely), Source.UNWIND, np.uint8)])[order],
        is_ifunc=np.concatenate([named_ifunc, np.zeros(len(lonely), np.bool_)])[order],
        has_unwind=unwind.indexes(all_start) >= 0,
        refused=judge_starts(all_start, unwind),
        aliases=aliases,
        parts=sorted(parts, key=lambda part: part.start),
    )
    refuse_by_name(table.refused, aliases)
    refuse_by_place(table, image)
    refuse_by_code(table, image, unwind)
    return table


def _outside_plt(image: Image, start: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    outside = np.ones(len(start), np.bool_)
    for text in image.text:
        if text.is_plt:
            outside &= (start < np.uint64(text.address)) | (start >= np.uint64(text.end))
    return outside


def _completed_sizes(
    image: Image, start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64], unwind: UnwindTable
) -> npt.NDArray[np.uint64]:
    """Sizes that symbols leave at 0 reach to the next function, the end of the FDE or of the text: what comes first."""
    unknown = np.flatnonzero(size == 0)
    if not len(unknown):
        return size
    limit = np.append(start[1:], np.uint64(2**64 - 1))[unknown]
    row = unwind.indexes(start[unknown])
    if len(unwind):
        limit = np.minimum(limit, np.where(row >= 0, unwind.end[row], limit))
        following = np.append(unwind.start, np.uint64(2**64 - 1))
        limit = np.minimum(limit, following[np.searchsorted(unwind.start, start[unknown], side="right")])
    for text in image.text:
        inside = (start[unknown] >= np.uint64(text.address)) & (start[unknown] < np.uint64(text.end))
        limit = np.where(inside, np.minimum(limit, np.uint64(text.end)), limit)
    size = size.copy()
    size[unknown] = limit - start[unknown]
    return size


def _uncovered_entries(
    image: Image, start: npt.NDArray[np.uint64], size: npt.NDArray[np.uint64], unwind: UnwindTable, parts: list[Part]
) -> npt.NDArray[np.int64]:
    """The rows of the unwind table that begin outside all functions and parts known by symbol and may be functions.

    Those that cannot be (their first row says so, or they are PLT stubs) are appended to ``parts``.
    """
    known_start = np.concatenate([start, np.array([part.start for part in parts], np.uint64)])
    known_end = known_start + np.concatenate([size, np.array([part.size for part in parts], np.uint64)])
    order = np.argsort(known_start, kind="stable")
    known_start, known_end = known_start[order], np.maximum.accumulate(known_end[order]) if len(order) else known_end
    behind = np.searchsorted(known_start, unwind.start, side="right") - 1
    covered = (
        (behind >= 0) & (unwind.start < known_end[np.maximum(behind, 0)]) if len(order) else np.zeros(len(unwind), bool)
    )
    covered |= ~image.is_executable(unwind.start)
    in_plt = ~_outside_plt(image, unwind.start) & ~covered
    is_part = np.isin(unwind.first_row, _PARTS_BY_UNWIND) & ~covered & ~in_plt
    for row in np.flatnonzero(in_plt | is_part).tolist():
        reason = Reason.PLT_STUB if in_plt[row] else Reason.COLD_PART
        address = int(unwind.start[row])
        parts.append(Part(address, int(unwind.size[row]), name_by_address(address), reason))
    # Two entries for one address (comdat code kept once, its unwind data twice) are one function.
    lonely = np.flatnonzero(~covered & ~in_plt & ~is_part)
    lonely = lonely[np.unique(unwind.start[lonely], return_index=True)[1]]
    return lonely[~_begins_with_padding(image, lonely, unwind, known_start)]


def _begins_with_padding(
    image: Image, rows: npt.NDArray[np.int64], unwind: UnwindTable, known_start: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """Which entries begin with nothing but padding before a function that is known by symbol.

    In assembly the unwind information may begin before the alignment of what it is for. glibc begins that of
    __restore_rt one byte early on purpose, since unwinders look up the byte before a return address.
    """
    next_known = np.append(known_start, np.uint64(2**64 - 1))[np.searchsorted(known_start, unwind.start[rows])]
    padded = next_known < unwind.end[rows]
    for index in np.flatnonzero(padded).tolist():
        address = int(unwind.start[rows[index]])
        is_signal_frame = int(unwind.first_row[rows[index]]) == Reason.SIGNAL_FRAME
        padded[index] = is_signal_frame or is_padding(image.read(address, int(next_known[index]) - address))
    return padded
