"""Which functions took the time: calls, total, self and quantiles, by function, module, thread or process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from shadowgraph.analysis.batches import Progress, native_batches
from shadowgraph.trace.columns import address, library
from shadowgraph.trace.reader import Trace

__all__ = ["GROUPINGS", "Profile", "ProfileRow", "profile"]

GROUPINGS = ("function", "thread", "module", "process")
QUANTILES = (0.50, 0.95, 0.99)

# struct sg_profile_row
_ROW = np.dtype([(name, "<i8") for name in ("calls", "total", "self", "sum", "min", "max", "open", "unwound")])


@dataclass(frozen=True)
class ProfileRow:
    """One line. Times in nanoseconds.

    ``key`` is a function id, thread index, process index or the number of a module (see Profile.names). ``total_ns`` is
    the time in which at least one call of this line was in flight, thread by thread: recursion does not count twice.
    ``self_ns`` is the time of its calls without that of the calls they made. Quantiles are exact for up to 32 calls and
    within 0.4 % beyond; the others are exact.
    """

    key: int
    calls: int
    total_ns: int
    self_ns: int
    mean_ns: float
    min_ns: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    open: int
    unwound: int


@dataclass(frozen=True)
class Profile:
    """Lines of everything that was called at least once, in the order of their keys."""

    by: str
    rows: list[ProfileRow]
    names: list[str]  # by module: the name for each key; else empty


def profile(trace: Trace, by: str = "function", progress: Progress | None = None) -> Profile:
    """One pass over all calls; memory grows with the number of lines, not of calls."""
    keys, of_function, of_thread, names = _keys(trace, by)
    native = library()
    state = native.sg_profile_create(keys)
    if not state:
        raise MemoryError
    try:
        for batch in native_batches(trace, progress):
            arguments = (*_pointer(of_function), *_pointer(of_thread))
            if not native.sg_profile_feed(state, ctypes.byref(batch), *arguments):
                raise MemoryError
        rows = np.zeros(keys, _ROW)
        values = np.zeros(keys * len(QUANTILES), "<i8")
        quantiles = np.array(QUANTILES, "<f8")
        native.sg_profile_finish(state, address(rows), address(quantiles), len(QUANTILES), address(values))
    finally:
        native.sg_profile_destroy(state)
    return Profile(by, _rows(rows, values.reshape(keys, len(QUANTILES))), names)


def _pointer(array: np.ndarray[Any, Any] | None) -> tuple[int | None, int]:
    """Address and length of an array that may not be there."""
    return (None, 0) if array is None else (address(array), len(array))


def _keys(trace: Trace, by: str) -> tuple[int, np.ndarray[Any, Any] | None, np.ndarray[Any, Any] | None, list[str]]:
    """How many keys there are, the key of each function id or of each thread index, and names of keys."""
    if by in ("function", "module"):
        functions = trace.functions["function"].to_numpy()
        size = int(functions.max(initial=0)) + 2
        if by == "function":
            return size, np.arange(size, dtype="<u4"), None, []
        modules = trace.functions["module"].to_pylist()
        names = sorted(set(modules))
        numbers = {name: number for number, name in enumerate(names)}
        table = np.full(size, len(names), "<u4")
        table[functions] = [numbers[name] for name in modules]
        return len(names) + 1, table, None, [*names, "?"]
    threads = trace.threads["thread"].to_numpy()
    size = int(threads.max(initial=0)) + 2
    if by == "thread":
        return size, None, np.arange(size, dtype="<u4"), []
    processes = trace.threads["process"].to_numpy()
    table = np.full(size, processes.max(initial=0) + 1, "<u4")
    table[threads] = processes
    return int(processes.max(initial=0)) + 2, None, table, []


def _rows(rows: np.ndarray[Any, Any], quantiles: np.ndarray[Any, Any]) -> list[ProfileRow]:
    """The lines of keys that were called."""
    result = []
    for key in np.flatnonzero(rows["calls"]).tolist():
        calls, total, self_time, summed, shortest, longest, still_open, unwound = rows[key].item()
        p50, p95, p99 = quantiles[key].tolist()
        mean = summed / calls
        times = (total, self_time, mean, shortest, p50, p95, p99, longest)
        result.append(ProfileRow(key, calls, *times, still_open, unwound))
    return result
