"""Writing calls as Parquet, one row group after the other."""

from __future__ import annotations

import ctypes
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shadowgraph.agent import layout
from shadowgraph.trace.clock import Clock
from shadowgraph.trace.columns import ColumnPointers, NativeClock, address, library, new_array
from shadowgraph.trace.sorting import SortedBlock
from shadowgraph.trace.tables import ROW_GROUP, calls_schema, calls_writer
from shadowgraph.trace.values import ValueColumns

__all__ = ["CallWriter"]

_COLUMNS = {
    "thread": "<u4",
    "function": "<u4",
    "start_ns": "<i8",
    "duration_ns": "<i8",
    "depth": "<u2",
    "kind": "u1",
}


class CallWriter:
    """Takes sorted blocks, thread after thread, and writes ``path``; ``values`` says what was captured, if anything.

    ``rows`` is how many calls were written, ``calls_of_function`` how many of each function id, ``last_end`` the latest
    end in nanoseconds.
    """

    def __init__(self, path: Path, clock: Clock, values: list[dict[str, Any]]) -> None:
        self.rows = 0
        self.last_end = 0
        self.calls_of_function = np.zeros(1 << layout.FUNCTION_BITS, dtype="<i8")
        self._clock = NativeClock(clock.origin, clock.multiplier)
        self._schema = calls_schema(values=bool(values))
        self._values = ValueColumns(values, ROW_GROUP) if values else None
        self._writer = calls_writer(path, self._schema)
        self._columns = {name: new_array(ROW_GROUP, kind) for name, kind in _COLUMNS.items()}
        self._spare = {name: new_array(ROW_GROUP, kind) for name, kind in _COLUMNS.items()}
        self._filled = 0
        # Compressing takes as long as all the rest: on a second processor it happens beside it.
        self._beside = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def add(self, thread: int, block: SortedBlock) -> None:
        """Add the calls of a block."""
        done = 0
        while done < block.count:
            count = min(block.count - done, ROW_GROUP - self._filled)
            pointers = ColumnPointers(*(address(column, self._filled) for column in self._columns.values()))
            last_end = library().sg_emit(
                address(block.calls),
                address(block.order, done),
                count,
                thread,
                ctypes.byref(self._clock),
                ctypes.byref(pointers),
                address(self.calls_of_function),
            )
            if self._values is not None:
                self._values.add(block, done, count, self._filled)
            self.last_end = max(self.last_end, last_end)
            self._filled += count
            self.rows += count
            done += count
            if self._filled == ROW_GROUP:
                self._flush()

    def close(self) -> None:
        """Write what is left and finish the file."""
        try:
            self._flush()
            self._wait()
        finally:
            self._beside.shutdown()
            self._writer.close()

    def _flush(self) -> None:
        """Begin to write the rows that are there as one row group, and go on with the other set of columns."""
        self._wait()
        if not self._filled:
            return
        arrays: list[Any] = [pa.array(column[: self._filled]) for column in self._columns.values()]
        if self._values is not None:
            arrays += self._values.take(self._filled)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._writing = self._beside.submit(self._writer.write_batch, batch, row_group_size=ROW_GROUP)
        self._columns, self._spare = self._spare, self._columns
        self._filled = 0

    def _wait(self) -> None:
        """Until the last row group is written; what went wrong with it is raised here."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()
