"""Tables that cannot be read, as far as the calls themselves tell what was in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from shadowgraph.trace.calls_file import CallsFile, as_numpy
from shadowgraph.trace.tables import FUNCTIONS_SCHEMA, LARGEST_GUESS, THREADS_SCHEMA

__all__ = ["functions_in", "threads_in"]


def functions_in(calls: CallsFile) -> pa.Table:
    """The functions that were called, with numbers instead of names."""
    counts: dict[int, int] = {}
    for group in calls.row_groups:
        batch = calls.read(group, ["function"])
        if batch is not None:
            numbers, times = np.unique(as_numpy(batch, "function"), return_counts=True)
            for function, count in zip(numbers.tolist(), times.tolist(), strict=True):
                counts[function] = counts.get(function, 0) + count
    ids = sorted(function for function in counts if function < LARGEST_GUESS)
    return _table(
        FUNCTIONS_SCHEMA,
        {
            "function": ids,
            "name": [f"function_{function}" for function in ids],
            "module": ["?"] * len(ids),
            "module_path": ["?"] * len(ids),
            "calls": [counts[function] for function in ids],
        },
    )


def threads_in(calls: CallsFile) -> pa.Table:
    """The threads that made calls, with their indexes instead of names, as if all were of one process."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    start: dict[int, int] = {}
    for group in calls.row_groups:
        batch = calls.read(group, ["thread", "start_ns"])
        if batch is None:
            continue
        threads, starts = as_numpy(batch, "thread"), as_numpy(batch, "start_ns")
        edges = np.flatnonzero(np.diff(threads, prepend=threads[:1] + 1))
        for at, end in zip(edges.tolist(), [*edges[1:].tolist(), len(threads)], strict=True):
            thread = int(threads[at])
            first.setdefault(thread, group.first_row + at)
            start.setdefault(thread, int(starts[at]))
            last[thread] = group.first_row + end
    ids = sorted(first)
    return _table(
        THREADS_SCHEMA,
        {
            "thread": ids,
            "tid": ids,
            "name": ["thread"] * len(ids),
            "first_row": [first[thread] for thread in ids],
            "calls": [last[thread] - first[thread] for thread in ids],
            "first_start_ns": [start[thread] for thread in ids],
        },
    )


def _table(schema: pa.Schema, known: Mapping[str, Sequence[object]]) -> pa.Table:
    """A table in which every column that is not known is null, or 0 where there are no nulls."""
    rows = len(next(iter(known.values())))
    columns = {
        field.name: pa.array(known.get(field.name, [None if field.nullable else 0] * rows), field.type)
        for field in schema
    }
    return pa.table(columns, schema=schema)
