"""The tables of a trace: their columns, and how they are written as Parquet."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = [
    "FUNCTIONS_SCHEMA",
    "LARGEST_GUESS",
    "PROCESSES_SCHEMA",
    "ROW_GROUP",
    "THREADS_SCHEMA",
    "calls_schema",
    "calls_writer",
    "rehearse",
    "write_table",
]

# Rows in a row group of calls: large enough to compress well and to be skipped in bulk, small enough that a view that
# merges many threads can hold one of each.
ROW_GROUP = 1 << 17

# Functions are numbered from 1 on: a larger number that nothing describes comes from damage, and views, which keep
# something for every number up to the largest, would need gigabytes for it. They show such calls as those of "?".
LARGEST_GUESS = 1 << 20

_COMPRESSION = "zstd"
# One of the fast levels: 6 % larger than level 1, and a fifth faster to read.
_COMPRESSION_LEVEL = -1

FUNCTIONS_SCHEMA = pa.schema(
    [
        pa.field("function", pa.uint32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("module", pa.string(), nullable=False),
        pa.field("module_path", pa.string(), nullable=False),
        pa.field("address", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("file", pa.string()),
        pa.field("line", pa.uint32()),
        pa.field("calls", pa.int64(), nullable=False),
    ]
)

THREADS_SCHEMA = pa.schema(
    [
        pa.field("thread", pa.uint32(), nullable=False),
        pa.field("process", pa.uint32(), nullable=False),
        pa.field("pid", pa.int32(), nullable=False),
        pa.field("tid", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        pa.field("missed", pa.int64(), nullable=False),
        pa.field("dropped", pa.int64(), nullable=False),
        pa.field("filtered", pa.int64(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("calls", pa.int64(), nullable=False),
        pa.field("first_start_ns", pa.int64()),
    ]
)

PROCESSES_SCHEMA = pa.schema(
    [
        pa.field("process", pa.uint32(), nullable=False),
        pa.field("pid", pa.int32(), nullable=False),
        pa.field("parent_pid", pa.int32(), nullable=False),
        pa.field("command", pa.string(), nullable=False),
        pa.field("start_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        pa.field("exit_status", pa.int32()),
        pa.field("missed", pa.int64(), nullable=False),
    ]
)

_CALLS = [
    pa.field("thread", pa.uint32(), nullable=False),
    pa.field("function", pa.uint32(), nullable=False),
    pa.field("start_ns", pa.int64(), nullable=False),
    pa.field("duration_ns", pa.int64(), nullable=False),
    pa.field("depth", pa.uint16(), nullable=False),
    pa.field("kind", pa.uint8(), nullable=False),
]
_VALUES = [pa.field("arguments", pa.string()), pa.field("result", pa.string())]

# Measured on traces of real programs: see docs/trace-format.md. Starts grow, and so do as differences; durations are
# small numbers that differ in their low bytes; the rest has few distinct values in a row group.
_DICTIONARY = ["thread", "function", "depth", "kind"]
_ENCODINGS = {"start_ns": "DELTA_BINARY_PACKED", "duration_ns": "DELTA_BINARY_PACKED"}


def calls_schema(*, values: bool) -> pa.Schema:
    """The columns of calls; with ``values`` also the captured arguments and results as text."""
    return pa.schema(_CALLS + (_VALUES if values else []))


def calls_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of calls; each batch given to it should be one row group."""
    has_values = "arguments" in schema.names
    return pq.ParquetWriter(
        path,
        schema,
        compression=_COMPRESSION,
        compression_level=_COMPRESSION_LEVEL,
        use_dictionary=_DICTIONARY + (["arguments", "result"] if has_values else []),
        column_encoding=_ENCODINGS,
        write_statistics=["thread", "start_ns", "duration_ns", "kind", "depth"],
        sorting_columns=[pq.SortingColumn(0), pq.SortingColumn(2)],
        data_page_size=256 << 10,
        write_page_checksum=True,
        version="2.6",
    )


def write_table(path: Path, schema: pa.Schema, rows: Mapping[str, Sequence[Any]]) -> None:
    """Write a small table in one step: a reader sees all of it or nothing."""
    table = pa.table({name: _column(rows[name], schema.field(name).type) for name in schema.names}, schema=schema)
    part = path.with_name(path.name + ".part")
    pq.write_table(
        table, part, compression=_COMPRESSION, compression_level=_COMPRESSION_LEVEL, write_page_checksum=True
    )
    os.replace(part, path)


def rehearse() -> None:
    """Write a table to nowhere: the first one takes some milliseconds more than others, for what pyarrow puts off."""
    schema = pa.schema([("number", pa.int64()), ("text", pa.string())])
    table = pa.table({"number": pa.array(np.zeros(1, np.int64)), "text": _column(["a"], pa.string())}, schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression=_COMPRESSION, compression_level=_COMPRESSION_LEVEL)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column. File names and arguments need not be UTF-8, but strings in Parquet must: other bytes become `\\xff`."""
    if kind == pa.string():
        values = [
            value if value is None or value.isascii() else os.fsencode(value).decode(errors="backslashreplace")
            for value in values
        ]
    return pa.array(values, kind)
