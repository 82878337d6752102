"""The calls of single threads as cursors, for passes that go through many threads at once."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from shadowgraph.trace.calls_file import CallsFile, RowGroup
from shadowgraph.trace.reader import Trace

__all__ = ["ThreadCalls", "ThreadSpan", "thread_spans"]

# Row groups that are kept decoded because other threads may have calls in them too.
_CACHED = 4


class ThreadSpan(NamedTuple):
    """Where the calls of a thread lie, and when the first of them starts in nanoseconds."""

    thread: int
    first_row: int
    rows: int
    first_start: int


def thread_spans(trace: Trace) -> list[ThreadSpan]:
    """All threads that have calls, by index."""
    columns = [trace.threads[name].to_pylist() for name in ("thread", "first_row", "calls", "first_start_ns")]
    return [ThreadSpan(*row) for row in zip(*columns, strict=True) if row[2]]


class ThreadCalls:
    """Gives batches of one thread's calls; threads that share a row group share its decoding."""

    def __init__(self, calls: CallsFile, columns: list[str]) -> None:
        self._calls = calls
        self._groups = calls.row_groups
        self._first_rows = [group.first_row for group in self._groups]
        self._columns = columns
        self._decoded: OrderedDict[int, pa.RecordBatch | None] = OrderedDict()

    def batches(self, span: ThreadSpan, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Batches of a thread in order, without row groups in which nothing is in flight from ``begin`` to ``end``."""
        last_row = span.first_row + span.rows
        for group in self._groups[bisect_right(self._first_rows, span.first_row) - 1 :]:
            first, last = max(span.first_row, group.first_row), min(last_row, group.first_row + group.rows)
            if first >= last:
                return
            if group.last_start + group.longest < begin:
                continue
            if group.first_thread == group.last_thread and group.first_start >= end:
                return
            batch = self._read(group)
            if batch is not None:
                yield batch.slice(first - group.first_row, last - first)

    def _read(self, group: RowGroup) -> pa.RecordBatch | None:
        """A row group, decoded once while several threads ask for it."""
        if group.first_thread == group.last_thread:
            return self._calls.read(group, self._columns)
        if group.number in self._decoded:
            self._decoded.move_to_end(group.number)
            return self._decoded[group.number]
        batch = self._decoded[group.number] = self._calls.read(group, self._columns)
        if len(self._decoded) > _CACHED:
            self._decoded.popitem(last=False)
        return batch
