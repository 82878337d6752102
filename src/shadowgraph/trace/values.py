"""Captured arguments and results: what a specification says of them, and the columns of text they become."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa

from shadowgraph.trace.columns import TextColumn, ValueSpecs, address, library, new_array
from shadowgraph.trace.sorting import SortedBlock

__all__ = ["TYPES", "ValueColumns"]

# The types a specification may name, and their numbers in native/columns/columns.h.
TYPES = {
    "ptr": 0,
    "i8": 1,
    "i16": 2,
    "i32": 3,
    "i64": 4,
    "u8": 5,
    "u16": 6,
    "u32": 7,
    "u64": 8,
    "f32": 9,
    "f64": 10,
    "bool": 11,
    "char": 12,
    "str": 13,
}
_ITEM = np.dtype([("type", "u1"), ("side", "u1"), ("name_length", "<u2"), ("name", "<u4")])
_FIRST_SIZE = 1 << 20

Array = np.ndarray[Any, Any]


class ValueColumns:
    """The columns ``arguments`` and ``result`` of one row group after the other.

    ``rows`` are specifications as the chunk "values" of a spool holds them: {"function": id, "arguments": [{"type",
    "name"}], "results": [...]}; of two for one function the later one counts.
    """

    def __init__(self, rows: list[dict[str, Any]], capacity: int) -> None:
        self._tables = _spec_tables(rows)
        first_item, items, names = self._tables
        self._specs = ValueSpecs(address(first_item), address(items), address(names), len(first_item) - 1)
        self._columns = [_Column(capacity) for _ in range(2)]

    def add(self, block: SortedBlock, first: int, count: int, row: int) -> None:
        """Add the values of ``count`` calls of a block, from the ``first`` one in its order, as row ``row`` and on."""
        done = 0
        while done < count:
            native = [column.native() for column in self._columns]
            written = library().sg_format_values(
                address(block.calls),
                address(block.order, first + done),
                count - done,
                address(block.slots),
                ctypes.byref(self._specs),
                ctypes.byref(native[0]),
                ctypes.byref(native[1]),
                row + done,
            )
            done += written
            if done < count:
                for column in self._columns:
                    column.grow()

    def take(self, rows: int) -> list[pa.Array]:
        """The two columns, and a fresh start."""
        return [column.take(rows) for column in self._columns]


class _Column:
    """One column of text under construction."""

    def __init__(self, capacity: int) -> None:
        self._offsets = np.zeros(capacity + 1, "<i4")
        self._valid = new_array(capacity, "u1")
        self._data = new_array(_FIRST_SIZE, "u1")

    def native(self) -> TextColumn:
        """The column as native code wants it."""
        return TextColumn(address(self._offsets), address(self._valid), address(self._data), len(self._data))

    def grow(self) -> None:
        """Have twice the room for text."""
        self._data = np.concatenate([self._data, new_array(len(self._data), "u1")])

    def take(self, rows: int) -> pa.Array:
        """The first ``rows`` rows."""
        valid = np.packbits(self._valid[:rows], bitorder="little")
        offsets = self._offsets[: rows + 1].copy()
        data = self._data[: offsets[-1]].copy()
        return pa.Array.from_buffers(
            pa.string(), rows, [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
        )


def _spec_tables(rows: list[dict[str, Any]]) -> tuple[Array, Array, Array]:
    """Where each function's items begin, the items, and the text of their names."""
    by_function = {int(row["function"]): row for row in rows}
    size = max(by_function, default=0) + 1
    first_item = np.zeros(size + 1, "<u4")
    items: list[tuple[int, int, int, int]] = []
    names = b""
    for function in range(size):
        row = by_function.get(function, {})
        for side, key in enumerate(("arguments", "results")):
            for item in row.get(key) or []:
                name = (item.get("name") or "").encode("utf-8", "replace")[:200]
                items.append((TYPES.get(item["type"], TYPES["ptr"]), side, len(name), len(names)))
                names += name
        first_item[function + 1] = len(items)
    return first_item, np.array(items, _ITEM), np.frombuffer(names + b"\0", "u1")
