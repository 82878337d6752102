"""What one recorder records into: its settings and its ring segments in an arena (struct sg_rings)."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.inject import Settings
from shadowgraph.errors import StartError
from shadowgraph.target.memory import Memory

__all__ = ["RECORDER_SLOTS", "Rings", "forget_recorder", "forget_recorders", "ring_of", "set_up_first", "set_up_later"]

# The slots that a recorder may have, in the order in which they are given. The agent's plain paths serve the first.
RECORDER_SLOTS: tuple[int, ...] = (0, *range(layout.USERS - 1, layout.USERS - layout.RECORDERS, -1))

_PAGE = 4096
_PUNCH_HOLE = 1 | 2  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE

_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def ring_of(slot: int) -> int:
    """The number of the rings of a recorder's slot."""
    return layout.USERS - slot if slot else 0


class Rings:
    """The rings of the recorder in a slot. ``row`` is their struct sg_rings, ``data`` has a row for each segment."""

    def __init__(self, arena: Arena, slot: int) -> None:
        self.arena = arena
        self.slot = slot
        self.number = ring_of(slot)
        self.row = row = arena.rings[self.number]
        at, size = int(row["at"]), int(row["size"])
        self._bytes = arena.bytes
        if at >= int(arena.header["size"]):
            try:
                # From the beginning: by another mapping a process is known that shares the arena (ops/processes.py).
                self._bytes = np.frombuffer(mmap.mmap(arena.file, at + size), np.uint8)
            except OSError as error:
                raise _no_memory(error) from None
        self.segment_size, count = int(row["segment_size"]), int(row["segments"])
        self.segments = self._table("segments_at", count * layout.segment_dtype.itemsize).view(layout.segment_dtype)
        self.data = self._table("data_at", count * self.segment_size).reshape(count, self.segment_size)

    def _table(self, name: str, size: int) -> npt.NDArray[np.uint8]:
        at = int(self.row[name])
        return self._bytes[at : at + size]

    # --- the controller's signs of life ---

    def beat(self) -> None:
        """Tell waiting threads that we live."""
        self.row["heartbeat"] += 1
        self.arena.beat(self.slot)

    def answer(self) -> None:
        """Wake whoever waits for free segments."""
        self.row["freed"] += 1
        if self.row["waiters"]:
            self.arena.wake_all(self.row, "freed")

    def wake(self) -> None:
        """End a wait of ours that goes on in another thread."""
        self.arena.wake_all(self.row, "bell")

    def wait(self, seconds: float, seen: int) -> None:
        """Sleep until the agent rings (the bell is not ``seen`` any more) or the time is over."""
        self.row["waiting"] = 1
        if int(self.row["bell"]) == seen:
            self.arena.sleep(self.row, "bell", seen, seconds)
        self.row["waiting"] = 0

    # --- what is captured ---

    def put_values(self, values: dict[int, bytes]) -> None:
        """Have the values of functions captured: a struct sg_values for each, by the function's number."""
        if not values:
            return
        numbers = self._table("values_at", 4 * layout.FUNCTIONS).view(np.uint32)
        at = int(self.row["values_at"]) + numbers.nbytes
        size = layout.values_dtype.itemsize
        for function, items in values.items():
            count = int(self.row["value_count"])
            self._bytes[at + count * size : at + (count + 1) * size] = np.frombuffer(items, np.uint8)
            self.row["value_count"] = count + 1
            numbers[function] = count + 1

    # --- its end ---

    def stop(self) -> None:
        """Nothing is recorded any more: what comes now is dropped, and nobody waits."""
        self.row["recording"] = 0
        self.answer()


def set_up_first(arena: Arena, settings: Settings) -> None:
    """Give the rings that an arena was made with to its first recorder."""
    _begin(arena.rings[0], settings)


def set_up_later(arena: Arena, slot: int, settings: Settings) -> None:
    """Give rings of its own to a recorder that comes later. Called with the registry's lock held.

    They lie behind all others in the arena's file, or where this slot's former recorder had them. Nobody uses those any
    more (taking_over.py).
    """
    row = arena.rings[ring_of(slot)]
    table = _pages(settings.segments * layout.segment_dtype.itemsize)
    values = _pages(layout.VALUES_SIZE) if settings.capture else 0
    size = table + values + _pages(settings.segments * settings.segment_size)
    at = int(row["at"])
    if at < int(arena.header["size"]) or int(row["size"]) < size:
        at = _find_room(arena, ring_of(slot), size)
        row["size"] = size
    try:
        os.ftruncate(arena.file, max(os.fstat(arena.file).st_size, at + size))
        _empty(arena.file, at, size)
    except OSError as error:
        raise _no_memory(error) from None
    row["at"], row["segments_at"], row["data_at"] = at, at, at + table + values
    row["values_at"] = at + table if values else 0
    row["segments"], row["segment_size"] = settings.segments, settings.segment_size
    _begin(row, settings)


def _find_room(arena: Arena, but: int, size: int) -> int:
    """The first part of the file behind the arena itself that is large enough and belongs to no rings."""
    first = _pages(int(arena.header["size"]))
    others = [row for number, row in enumerate(arena.rings) if number != but and int(row["at"]) >= first]
    at = first
    for start, length in sorted((int(row["at"]), int(row["size"])) for row in others):
        if start - at >= size:
            break
        at = max(at, start + length)
    return at


def _begin(row: np.void, settings: Settings) -> None:
    row["policy"] = settings.policy
    row["depth_limit"], row["minimal_ticks"] = settings.depth_limit, settings.minimal_ticks
    row["value_count"] = 0
    row["heartbeat"] += 1
    row["controller_pid"] = os.getpid()
    row["recording"] = 1
    row["generation"] += 1


def forget_recorder(arena: Arena, slot: int) -> None:
    """The recorder of a slot is gone, or dead: nobody waits for it, and its memory is given back.

    Called with the registry's lock held. What threads of its that have died were kept for, it will not take.
    """
    row, number = arena.rings[ring_of(slot)], ring_of(slot)
    row["recording"] = row["controller_pid"] = 0
    row["freed"] += 1
    arena.wake_all(row, "freed")
    arena.threads["waits"][arena.threads["state"] == layout.THREAD_DEAD, number] = 0
    if int(row["generation"]):
        _empty(arena.file, int(row["data_at"]), int(row["segments"]) * int(row["segment_size"]))


def forget_recorders(memory: Memory, arena: int) -> None:
    """All recorders of an arena, which a process has at this address, are dead: its threads wait for them no longer."""
    header = np.frombuffer(memory.read(arena, layout.arena_dtype.itemsize), layout.arena_dtype)[0]
    fields = layout.rings_dtype.fields
    assert fields is not None
    for number in range(layout.RECORDERS):
        at = arena + int(header["rings_at"]) + number * layout.rings_dtype.itemsize
        for name in ("recording", "controller_pid"):
            memory.write(at + fields[name][1], bytes(4))


def _empty(file: int, at: int, size: int) -> None:
    """Give the memory of a part of the file back; it reads as zeros."""
    if size and _fallocate(file, _PUNCH_HOLE, at, size):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _no_memory(error: OSError) -> StartError:
    reason = (error.strerror or str(error)).lower()
    return StartError(f"no memory could be shared for this recorder's buffer ({reason}); try a smaller buffer")


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
