"""Writing a spool: what `record` does with drained rings while the program runs.

Appending records costs one system call and the kernel's copy: nothing here looks at a record. Two things are prepared
for: the size limit, and a disk that runs full. Space for the chunks that end a recording (calls in flight, counters,
the reason) is reserved beforehand, so that they still fit when records no longer do.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shadowgraph.errors import UsageError
from shadowgraph.trace.framing import ALIGNMENT, HEADER_SIZE, RECORDS, SPOOL_VERSION, pack_header

__all__ = ["DISK_FULL", "FILE_LIMIT", "SIZE_LIMIT", "STOPPED", "SpoolWriter"]

# Why a recording stopped before its program did, in a trace and for a reader.
DISK_FULL = "disk full"
FILE_LIMIT = "file size limit"
SIZE_LIMIT = "size limit"
STOPPED = {
    SIZE_LIMIT: "the recording stopped when the trace had reached its size limit (--max-size)",
    DISK_FULL: "the recording stopped when the disk was full",
    FILE_LIMIT: "the recording stopped when the trace had reached the limit on the size of files (ulimit -f)",
}

# Kept free for the JSON chunks at the end, and the step in which space is asked for.
_RESERVE = 1 << 20
_STEP = 32 << 20
_FALLOC_KEEP_SIZE = 1
_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SpoolWriter:
    """The one writer of a new spool; to be used by one thread at a time.

    ``max_size`` is the largest size of the file in bytes, None for no limit; the chunks that end a recording may
    exceed it by a little. Once records no longer fit, ``stopped`` says why (SIZE_LIMIT, DISK_FULL or the system's
    words) and ``append_records`` returns False: the recording is over, what was written stays whole.

    The writer holds a lock on the file: a reader can tell a recording that goes on from one whose recorder died.
    """

    def __init__(self, path: Path | str, *, max_size: int | None = None) -> None:
        self.path = Path(path)
        self.stopped: str | None = None
        self.size = 0
        self._max_size = max_size
        self._reserved = 0
        self._can_reserve = True
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be created: {error.strerror}") from None
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.append("spool", {"format": "shadowgraph spool", "version": SPOOL_VERSION})

    def append_records(self, thread: int, records: memoryview | bytes, process: int = 0) -> bool:
        """Add raw records of one thread; False once the recording has stopped, and they were not written."""
        length = len(records) if isinstance(records, bytes) else records.nbytes
        if self.stopped is not None:
            return False
        total = HEADER_SIZE + length
        if self._max_size is not None and self.size + total > self._max_size:
            self.stopped = SIZE_LIMIT
            return False
        if not self._reserve(total + _RESERVE):
            return False
        header = pack_header(RECORDS, thread, process, length, 0)
        return self._write([header, records, bytes(-length % ALIGNMENT)], total + -length % ALIGNMENT)

    def append(self, kind: str, content: Any, process: int = 0) -> bool:
        """Add a JSON chunk of one of the kinds of framing.KINDS; works on when records no longer fit."""
        payload = json.dumps(content, separators=(",", ":")).encode()
        header = pack_header(kind, 0, process, len(payload), zlib.crc32(payload))
        padding = b" " * (-len(payload) % ALIGNMENT)
        return self._write([header, payload, padding], HEADER_SIZE + len(payload) + len(padding))

    def close(self) -> None:
        """Give back what was reserved and not used, and release the lock."""
        if self._fd >= 0:
            try:
                os.ftruncate(self._fd, self.size)
            finally:
                os.close(self._fd)
                self._fd = -1

    def _write(self, buffers: list[Any], total: int) -> bool:
        """Write all or nothing: a chunk that does not fit is cut away again."""
        try:
            written = os.writev(self._fd, buffers)
            if written != total:
                self._write_rest(buffers, written)
        except OSError as error:
            self.stopped = self.stopped or _reason(error.errno or errno.EIO)
            os.ftruncate(self._fd, self.size)
            os.lseek(self._fd, self.size, os.SEEK_SET)
            return False
        self.size += total
        return True

    def _write_rest(self, buffers: list[Any], written: int) -> None:
        """Go on after a short write (a signal, a disk that is nearly full, or more than 2 GiB at once)."""
        rest = memoryview(b"".join(bytes(buffer) for buffer in buffers))[written:]
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _reserve(self, total: int) -> bool:
        """Have space for ``total`` more bytes; False (and stopped) where the disk has no more."""
        if not self._can_reserve or self.size + total <= self._reserved:
            return True
        for step in (max(_STEP, total), total):
            code = _allocate(self._fd, self.size, step)
            if code == 0:
                self._reserved = self.size + step
                return True
            if code not in _FULL_ERRORS:
                self._can_reserve = False  # a file system that knows no reservation: the write itself will tell
                return True
        self.stopped = _reason(code)
        return False


def _reason(code: int) -> str:
    """Why a write failed, in words."""
    if code == errno.EFBIG:
        return FILE_LIMIT
    return DISK_FULL if code in _FULL_ERRORS else os.strerror(code)


def _load_fallocate() -> Callable[[int, int, int, int], int]:
    """fallocate(2) of the C library: Python has only the variant that changes the file's size."""
    library = ctypes.CDLL(None, use_errno=True)
    function = library.fallocate64 if hasattr(library, "fallocate64") else library.fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function


def _allocate(fd: int, offset: int, length: int) -> int:
    """Reserve blocks without changing the file's size; 0 or an errno."""
    if _fallocate(fd, _FALLOC_KEEP_SIZE, offset, length) == 0:
        return 0
    return ctypes.get_errno()


_fallocate = _load_fallocate()
