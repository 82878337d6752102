"""Pairs of processor ticks and clock readings, by which ticks become nanoseconds."""

from __future__ import annotations

import ctypes
import time
from functools import cache
from typing import Any

from shadowgraph.trace.columns import LIBRARY

__all__ = ["clock_pair", "read_ticks", "ticks_per_second"]


@cache
def _function() -> Any:
    function = ctypes.CDLL(str(LIBRARY)).sg_columns_ticks
    function.restype = ctypes.c_uint64
    return function


def read_ticks() -> int:
    """The time stamp counter now."""
    return int(_function()())


def clock_pair(tick_base: int) -> dict[str, int]:
    """Ticks since the base and the clocks at one moment: the reading that took least time of a few."""
    best: tuple[int, dict[str, int]] | None = None
    for _ in range(5):
        before = read_ticks()
        monotonic, realtime = time.monotonic_ns(), time.time_ns()
        after = read_ticks()
        pair = {"tick": (before + after) // 2 - tick_base, "monotonic_ns": monotonic, "realtime_ns": realtime}
        if best is None or after - before < best[0]:
            best = (after - before, pair)
    assert best is not None
    return best[1]


_FIRST: list[tuple[int, int]] = []
_LEAST_NS = 20_000_000


def ticks_per_second() -> float:
    """The rate of the time stamp counter by CLOCK_MONOTONIC; the first call takes 20 ms, later ones are more exact."""
    if not _FIRST:
        _FIRST.append((read_ticks(), time.monotonic_ns()))
    ticks, nanoseconds = _FIRST[0]
    left = _LEAST_NS - (time.monotonic_ns() - nanoseconds)
    if left > 0:
        time.sleep(left / 1e9)
    return (read_ticks() - ticks) / (time.monotonic_ns() - nanoseconds) * 1e9
