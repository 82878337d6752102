"""The calls of a trace, row group by row group, as native loops want them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from shadowgraph.trace.calls_file import CallsFile, RowGroup, column_address
from shadowgraph.trace.columns import NativeBatch, address
from shadowgraph.trace.reader import Trace

__all__ = ["Progress", "native_batches"]

# Called with (calls done, calls in all).
Progress = Callable[[int, int], None]

_NAMES = {"function": "function", "start": "start_ns", "duration": "duration_ns", "depth": "depth"}


def native_batches(trace: Trace, progress: Progress | None = None) -> Iterator[NativeBatch]:
    """All calls, in the order of thread and start; each batch is valid until the next is asked for.

    While one is looked at, the next is decoded beside it, if there is a second processor.
    """
    calls = trace.calls_file
    constants = _Constants()
    groups = calls.row_groups
    with ThreadPoolExecutor(1) as beside:
        ahead = beside.submit(_read, calls, groups[0]) if groups else None
        for number, group in enumerate(groups):
            assert ahead is not None
            rows = ahead.result()
            if number + 1 < len(groups):
                ahead = beside.submit(_read, calls, groups[number + 1])
            if rows is not None:
                yield _native(rows, group, constants)
            if progress is not None:
                progress(group.first_row + group.rows, calls.rows)


class _Constants:
    """Columns that are the same in a whole row group, as its footer says, are not decoded but made here."""

    def __init__(self) -> None:
        self._thread = np.empty(0, "<u4")
        self._kind = np.empty(0, "u1")
        self._thread_value = self._kind_value = -1

    def thread(self, value: int, rows: int) -> int:
        """The address of a column of ``rows`` times this thread."""
        if len(self._thread) < rows or self._thread_value != value:
            self._thread, self._thread_value = np.full(max(rows, len(self._thread)), value, "<u4"), value
        return address(self._thread)

    def kind(self, value: int, rows: int) -> int:
        """The address of a column of ``rows`` times this kind."""
        if len(self._kind) < rows or self._kind_value != value:
            self._kind, self._kind_value = np.full(max(rows, len(self._kind)), value, "u1"), value
        return address(self._kind)


def _read(calls: CallsFile, group: RowGroup) -> pa.RecordBatch | None:
    """The columns of one row group that are not constant."""
    columns = list(_NAMES.values())
    columns += [] if group.first_thread == group.last_thread else ["thread"]
    columns += [] if group.first_kind == group.last_kind else ["kind"]
    return calls.read(group, columns)


def _native(rows: pa.RecordBatch, group: RowGroup, constants: _Constants) -> NativeBatch:
    """A row group as native code sees it."""
    batch = NativeBatch(count=rows.num_rows)
    for field, column in _NAMES.items():
        setattr(batch, field, column_address(rows, column))
    one_thread, one_kind = group.first_thread == group.last_thread, group.first_kind == group.last_kind
    batch.thread = constants.thread(group.first_thread, group.rows) if one_thread else column_address(rows, "thread")
    batch.kind = constants.kind(group.first_kind, group.rows) if one_kind else column_address(rows, "kind")
    batch.keep = rows  # the memory the addresses point into
    return batch
