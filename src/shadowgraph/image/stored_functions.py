"""A table of functions as plain columns and back, for those who keep it in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shadowgraph.image.functions import Aliases, FunctionTable, Part
from shadowgraph.image.image import Image
from shadowgraph.image.lazily import Lazily
from shadowgraph.image.reasons import Reason
from shadowgraph.image.symbol_tables import Source, SymbolTables
from shadowgraph.image.symbols import SYMBOL, SymbolTable

__all__ = ["function_columns", "functions_from"]

Columns = dict[str, npt.NDArray[np.generic]]

_ARRAYS = ("start", "size", "source", "is_ifunc", "has_unwind", "refused")
_NO_BYTES = np.zeros(0, np.uint8)


def function_columns(functions: FunctionTable) -> Columns:
    """All of a table but the names, which stay where they are: in the symbol tables of its image and debug file.

    Those that are packed there (.gnu_debugdata) are taken along.
    """
    aliases, tables = functions.aliases, functions.aliases.tables
    path = b"" if tables.debug_path is None else bytes(tables.debug_path)
    inner = next((t for t, source in zip(tables, tables.sources, strict=True) if source is Source.DEBUGDATA), None)
    columns: Columns = {name: getattr(functions, name) for name in _ARRAYS}
    return columns | {
        "return_address_reads": functions.return_address_reads,
        "alias_bounds": aliases.bounds.astype(np.uint32),
        "alias_table": aliases.table,
        "alias_symbol": aliases.symbol.astype(np.uint32),
        "tables": np.array(tables.sources, np.uint8),
        "debug_path": np.frombuffer(path, np.uint8),
        "unpacked_rows": _NO_BYTES if inner is None else np.ascontiguousarray(inner.rows).view(np.uint8),
        "unpacked_strings": _NO_BYTES if inner is None else inner.strings,
        **_part_columns(functions.parts),
    }


def functions_from(image: Image, columns: Columns) -> FunctionTable:
    """The table that function_columns() was given; symbol tables are opened when a name is asked for."""
    path = columns["debug_path"].tobytes()
    tables = SymbolTables(
        image,
        [Source(number) for number in columns["tables"].tolist()],
        Path(path.decode("utf-8", "surrogateescape")) if path else None,
        unpacked=SymbolTable(columns["unpacked_rows"].view(SYMBOL), columns["unpacked_strings"].view(np.uint8)),
    )
    bounds, symbol = columns["alias_bounds"].astype(np.int64), columns["alias_symbol"].astype(np.int64)
    aliases = Aliases(tables, bounds, columns["alias_table"].view(np.uint8), symbol)
    arrays = {name: columns[name] for name in _ARRAYS}
    functions = FunctionTable(**arrays, aliases=aliases, parts=_parts_from(columns))  # type: ignore[arg-type]
    functions.return_address_reads = columns["return_address_reads"].view(np.uint64)
    return functions


def _part_columns(parts: Sequence[Part]) -> Columns:
    names = [part.name.encode("utf-8", "surrogateescape") for part in parts]
    return {
        "part_start": np.array([part.start for part in parts], np.uint64),
        "part_size": np.array([part.size for part in parts], np.uint64),
        "part_reason": np.array([part.reason for part in parts], np.uint8),
        "part_name_end": np.cumsum([len(name) for name in names], dtype=np.int64),
        "part_names": np.frombuffer(b"".join(names), np.uint8),
    }


def _parts_from(columns: Columns) -> Lazily[Part]:
    start, size, reason = columns["part_start"], columns["part_size"], columns["part_reason"]
    ends, names = columns["part_name_end"], columns["part_names"]

    def part(index: int) -> Part:
        name = names[int(ends[index - 1]) if index else 0 : int(ends[index])].tobytes()
        text = name.decode("utf-8", "surrogateescape")
        return Part(int(start[index]), int(size[index]), text, Reason(int(reason[index])))

    return Lazily(len(start), part)
