"""The memory that the agent shares with us, seen as numpy arrays over one mapping.

Plain loads and stores are enough on this side: every word has one writer or is changed by the agent with atomic
instructions only while we merely read it, and x86 keeps the order of stores.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.errors import StartError

__all__ = ["Arena"]

_SYS_FUTEX = 202
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_fallocate = _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Arena:
    """One arena, mapped. ``inode`` tells it from others in /proc/PID/maps.

    ``header`` is its struct sg_arena; the tables are structured arrays over the shared memory. ``file`` stays open: who
    joins later finds the arena by it.
    """

    def __init__(self, file: int) -> None:
        self.file = file
        self._lock = threading.RLock()
        self._holds = 0
        status = os.fstat(file)
        self.inode = status.st_ino
        try:
            self._map = mmap.mmap(file, status.st_size)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StartError(f"the shared memory cannot be mapped ({reason}); try a smaller buffer") from None
        data = np.frombuffer(self._map, np.uint8)
        self.header = data[: layout.arena_dtype.itemsize].view(layout.arena_dtype)[0]
        header = self.header
        if int(header["magic"]) != layout.ARENA_MAGIC:
            raise StartError("the agent in the program does not belong to this version of Shadowgraph; reinstall it")

        def table(at: str, count: str, dtype: np.dtype[np.void], each: int = 1) -> npt.NDArray[np.void]:
            start = int(header[at])
            return data[start : start + int(header[count]) * each * dtype.itemsize].view(dtype)

        self.threads = table("threads_at", "threads", layout.shared_thread_dtype)
        start = int(header["rings_at"])
        self.rings = data[start : start + layout.RECORDERS * layout.rings_dtype.itemsize].view(layout.rings_dtype)
        self.events = table("events_at", "events", layout.event_dtype)
        self.chunks = table("chunks_at", "chunks", layout.chunk_dtype)
        self.open_calls = table("open_at", "chunks", layout.open_dtype, layout.BLOCK_FRAMES)
        start = int(header["functions_at"])
        size = layout.FUNCTIONS * layout.function_dtype.itemsize
        self.functions = data[start : start + size].view(layout.function_dtype)
        start = int(header["registry_at"])
        self.registry = data[start : start + layout.registry_dtype.itemsize].view(layout.registry_dtype)[0]
        start, size = int(header["losses_at"]), len(self.threads) * layout.USERS * layout.losses_dtype.itemsize
        self.losses = data[start : start + size].view(layout.losses_dtype).reshape(-1, layout.USERS)
        start = int(header["pages_at"])
        self.pages = data[start : start + layout.PAGES * layout.page_dtype.itemsize].view(layout.page_dtype)
        start = int(header["cells_at"])
        self.cells = data[start : start + layout.PAGES * layout.PAGE_CELLS * 8].view(np.uint64)
        self.cells = self.cells.reshape(layout.PAGES, layout.PAGE_CELLS)
        start = int(header["pool_at"])
        self.pool = data[start : start + layout.POOL_SIZE]
        self.bytes = data

    def __del__(self) -> None:
        os.close(self.file)

    def clear_pool(self, at: int, size: int) -> None:
        """Set a part of the pool to zeros, and give its memory back."""
        place = int(self.header["pool_at"]) + at
        if _fallocate(self.file, _KEEP_SIZE | _PUNCH_HOLE, place, size) != 0:
            self.pool[at : at + size] = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one of all controllers, and of our threads. The lock, on the file, ends with who holds it."""
        with self._lock:
            if self._holds == 0:
                fcntl.flock(self.file, fcntl.LOCK_EX)
            self._holds += 1
            try:
                yield
            finally:
                self._holds -= 1
                if self._holds == 0:
                    fcntl.flock(self.file, fcntl.LOCK_UN)

    def asked(self, slots: Iterable[int], kinds: Iterable[int]) -> list[np.void]:
        """The events of these kinds (SG_EVENT_...) that wait for any of these users."""
        waits = self.events["waits"][:, list(slots)].any(axis=1)
        asked = (self.events["state"] == layout.EVENT_ASKED) & np.isin(self.events["kind"], list(kinds))
        return [self.events[index] for index in np.flatnonzero(asked & waits).tolist()]

    def answer(self, event: np.void, slot: int) -> None:
        """The user of a slot has seen to an event; its thread goes on when all have that it waits for."""
        event["waits"][slot] = 0
        self._wake_askers()

    def answer_all(self, slot: int) -> None:
        """Nobody is to wait for the user of a slot any more."""
        if self.events["waits"][:, slot].any():
            self.events["waits"][:, slot] = 0
            self._wake_askers()

    def beat(self, slot: int) -> None:
        """Tell threads that wait for the user of a slot that its controller lives."""
        self.registry["users"]["heartbeat"][slot] += 1

    def wait(self, seconds: float, seen: int) -> None:
        """Sleep until the agent asks something (its bell is not ``seen`` any more) or the time is over."""
        self.header["waiting"] = 1
        if int(self.header["bell"]) == seen:
            self.sleep(self.header, "bell", seen, seconds)
        self.header["waiting"] = 0

    def _wake_askers(self) -> None:
        self.header["answered"] += 1
        if self.header["askers"]:
            self.wake_all(self.header, "answered")

    def wake_all(self, row: np.void, word: str) -> None:
        """Wake who sleeps on a word of a row of the arena's."""
        self._futex(row, word, _FUTEX_WAKE, 0x7FFFFFFF, None)

    def sleep(self, row: np.void, word: str, seen: int, seconds: float) -> None:
        """Sleep on a word of a row, if it is still as it was ``seen``, until it is woken or the time is over."""
        nanoseconds = int(seconds * 1e9)
        self._futex(row, word, _FUTEX_WAIT, seen, _TimeSpec(nanoseconds // 10**9, nanoseconds % 10**9))

    def _futex(self, row: np.void, word: str, operation: int, value: int, timeout: _TimeSpec | None) -> None:
        fields = row.dtype.fields
        assert fields is not None
        address = int(row.__array_interface__["data"][0]) + fields[word][1]
        pointer = ctypes.byref(timeout) if timeout is not None else None
        _syscall(_SYS_FUTEX, ctypes.c_void_p(address), operation, ctypes.c_uint32(value), pointer, None, 0)
