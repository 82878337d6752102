"""From a thread's records, in the order of exits, to its calls in the order of starts, with bounded memory.

A thread's records are taken in blocks of about a million. Almost every call of a block also started in the time of that
block, and is sorted within it. The few that started earlier (the callers that were in flight when the block began) are
set aside by a first pass over the thread, and given back to the block in whose time they started. That is exact for
any order of records: nothing is assumed about nesting, only that a call ends after it starts.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.trace.columns import CALL_DTYPE, Decoder, address, library, new_array

__all__ = ["BLOCK", "SortedBlock", "ThreadSorter"]

# Slots of 16 bytes in a block. Larger is not faster: the block and its calls should stay near the processor.
BLOCK = 1 << 18

_FOREVER = (1 << 63) - 1
_WORDS = layout.RECORD_SIZE // 8

Array = np.ndarray[Any, Any]


@dataclass
class SortedBlock:
    """Calls ``calls[order[:count]]`` in the order of their starts; ``slots`` holds their captured values.

    All arrays are reused for the next block.
    """

    calls: Array
    order: Array
    count: int
    slots: Array


class ThreadSorter:
    """Sorts the calls of one thread after the other; its buffers are made once.

    ``problems`` counts what had to be skipped, over all threads.
    """

    def __init__(self, fd: int, advance: Callable[[int], None], block: int = BLOCK) -> None:
        self._fd = fd
        self._advance = advance
        self._block = block
        self._slots = new_array(block * _WORDS, "<u8")
        self._calls = new_array(block, CALL_DTYPE)
        self._keys = new_array(block, "<u8")
        self._scratch = new_array(block, "<u8")
        self._order = new_array(block, "<u4")
        self._left = 0  # slots at the start of the buffer that wait for the rest of their record
        self.nobody = 0
        self.damaged = 0

    def sort(self, pieces: list[tuple[int, int]], start: int, open_calls: Array) -> Iterator[SortedBlock]:
        """The calls of one thread, block by block.

        ``pieces`` are (offset, length) in bytes within the file; ``start`` is a time in ticks not after the thread's
        first exit; ``open_calls`` (CALL_DTYPE) join the others.
        """
        slots = sum(length for _, length in pieces) // layout.RECORD_SIZE
        if slots <= self._block:
            limits, aside = [_FOREVER], _Aside(open_calls)
        else:
            limits, aside = self._set_aside(pieces, start, open_calls)
        lower = -_FOREVER
        decoder = Decoder(last_exit=start)
        for upper, count in zip(limits, self._decode(pieces, decoder), strict=True):
            own = self._split(count, lower, None)
            yield self._merge(own, *aside.between(lower, upper))
            lower = upper
        self.nobody += decoder.nobody
        self.damaged += decoder.damaged

    def _set_aside(self, pieces: list[tuple[int, int]], start: int, open_calls: Array) -> tuple[list[int], _Aside]:
        """First pass: where each block ends in time, and the calls that belong to the time of an earlier one."""
        decoder = Decoder(last_exit=start)
        limits: list[int] = []
        aside = _Aside(open_calls)
        earlier = new_array(self._block, CALL_DTYPE)
        for count in self._decode(pieces, decoder):
            if limits:
                moved = count - self._split(count, limits[-1], earlier)
                aside.add(earlier[:moved], self._slots)
            limits.append(decoder.last_exit + 1)
        limits[-1] = _FOREVER
        aside.sort()
        return limits, aside

    def _decode(self, pieces: list[tuple[int, int]], decoder: Decoder) -> Iterator[int]:
        """Decode block after block into ``_calls``; how many there are in each. At least one block, however empty."""
        native = library()
        consumed = ctypes.c_int64()
        self._left = 0
        for filled, final in self._fill(pieces):
            count = native.sg_decode(
                address(self._slots), filled, final, ctypes.byref(decoder), address(self._calls), ctypes.byref(consumed)
            )
            self._advance((filled - self._left) * layout.RECORD_SIZE)
            yield count
            self._left = filled - consumed.value
            self._slots[: self._left * _WORDS] = self._slots[consumed.value * _WORDS : filled * _WORDS].copy()

    def _fill(self, pieces: list[tuple[int, int]]) -> Iterator[tuple[int, bool]]:
        """Read pieces behind the slots that are left over; (slots in the buffer, whether it is the last)."""
        buffer = self._slots.view("u1").data
        queue = list(reversed(pieces))
        while True:
            at, limit = self._left * layout.RECORD_SIZE, self._block * layout.RECORD_SIZE
            while queue and at < limit:
                offset, length = queue.pop()
                take = min(length, limit - at)
                read = os.preadv(self._fd, [buffer[at : at + take]], offset)
                if read < take:
                    take = read - read % layout.RECORD_SIZE
                    length = take  # the file was cut while we read it
                if length > take:
                    queue.append((offset + take, length - take))
                at += take
            yield at // layout.RECORD_SIZE, not queue
            if not queue:
                return

    def _split(self, count: int, limit: int, earlier: Array | None) -> int:
        """Remove the calls that start before ``limit`` from ``_calls``; how many are left."""
        moved = ctypes.c_int64()
        to = None if earlier is None else address(earlier)
        return int(library().sg_split(address(self._calls), count, limit, to, ctypes.byref(moved)))

    def _merge(self, own: int, others: Array, values: list[Array]) -> SortedBlock:
        """Sort the first ``own`` of ``_calls`` together with others, whose captured values come along."""
        count = own + len(others)
        calls, keys, scratch, order, slots = self._calls, self._keys, self._scratch, self._order, self._slots
        if count > len(calls):
            calls = np.concatenate([calls[:own], others])
            keys, scratch, order = (new_array(count, array.dtype) for array in (keys, scratch, order))
        else:
            calls[own:count] = others
        if values:
            slots = _append_values(calls[own:count], values, slots)
        kept = library().sg_sort(address(calls), count, len(others), address(keys), address(scratch), address(order))
        if kept < 0:
            raise MemoryError
        return SortedBlock(calls, order, kept, slots)


def _append_values(calls: Array, values: list[Array], slots: Array) -> Array:
    """The slots with captured values of set-aside calls behind them; calls are told where theirs are."""
    position = len(slots)
    calls["values"] = 0
    for index, value in enumerate(values):
        if len(value):
            calls["values"][index] = position // _WORDS + 1
            position += len(value)
    return np.concatenate([slots, *values])


class _Aside:
    """Calls that wait for the block in whose time they started."""

    def __init__(self, open_calls: Array) -> None:
        self._calls = [open_calls]
        self._values: list[Array] = [open_calls["start"][:0].view("<u8")] * len(open_calls)
        self._any_values = False
        self.sort()

    def add(self, calls: Array, slots: Array) -> None:
        """Keep copies of calls and of their values."""
        self._calls.append(calls.copy())
        nothing = slots[:0]
        if not calls["value_slots"].any():
            self._values += [nothing] * len(calls)
            return
        self._any_values = True
        for first, length in zip(calls["values"].tolist(), calls["value_slots"].tolist(), strict=True):
            begin = (first - 1) * _WORDS
            self._values.append(slots[begin : begin + length * _WORDS].copy() if first else nothing)

    def sort(self) -> None:
        """Bring all in the order of their starts."""
        self._all = np.concatenate(self._calls)
        by_start = np.argsort(self._all["start"], kind="stable")
        self._all = self._all[by_start]
        if self._any_values:
            self._values = [self._values[index] for index in by_start.tolist()]

    def between(self, lower: int, upper: int) -> tuple[Array, list[Array]]:
        """Those that start at ``lower`` or later, and before ``upper``; and the values of each, if there are any."""
        first, last = np.searchsorted(self._all["start"], [lower, upper])
        return self._all[first:last], self._values[first:last] if self._any_values else []
