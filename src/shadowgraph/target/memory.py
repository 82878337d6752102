"""Memory of another process: reading, writing, and what is mapped where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["PAGE", "Mapping", "Memory", "find_gap", "program_mark", "read_auxiliary_vector", "read_mappings"]

PAGE = 4096
_USER_END = 0x7FFF_FFFF_F000

AT_PHDR = 3
AT_BASE = 7
AT_ENTRY = 9
AT_HWCAP2 = 26


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps; ``path`` is empty for anonymous memory.

    A file that was deleted has " (deleted)" behind its path, and so may others. ``inode`` and ``device`` (as "08:01")
    tell which file it is.
    """

    start: int
    end: int
    permissions: str
    offset: int
    path: str
    inode: int = 0
    device: str = ""


class Memory:
    """Random access to the memory of a process that we may trace.

    Writing goes through /proc/PID/mem, so that text need not be made writable (and is never not executable).
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def read(self, address: int, size: int) -> bytes:
        """Read exactly ``size`` bytes, or raise OSError."""
        parts = []
        while size:
            part = os.pread(self._file, min(size, 1 << 24), address)
            if not part:
                raise OSError(14, f"process {self.pid}: no memory at {address:#x}")
            parts.append(part)
            address += len(part)
            size -= len(part)
        return b"".join(parts)

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Write all of ``data``, read-only and executable pages included."""
        view = memoryview(data).cast("B")
        while view:
            done = os.pwrite(self._file, view[: 1 << 24], address)
            if not done:  # the process has been killed, and its memory is gone
                raise OSError(14, f"process {self.pid}: no memory at {address:#x}")
            view = view[done:]
            address += done

    def read_word(self, address: int) -> int:
        """Read an unsigned 64-bit word."""
        return int.from_bytes(self.read(address, 8), "little")

    def read_string(self, address: int, limit: int = 4096) -> str:
        """Read a NUL-terminated string."""
        data = b""
        while b"\0" not in data and len(data) < limit:
            data += self.read(address + len(data), min(64, PAGE - (address + len(data)) % PAGE))
        return data.split(b"\0", 1)[0].decode(errors="replace")


def read_mappings(pid: int) -> list[Mapping]:
    """All mappings of a process, in the order of their addresses."""
    result = []
    # Line feeds in a path are escaped (proc(5)), carriage returns are not.
    with open(f"/proc/{pid}/maps", errors="surrogateescape", newline="\n") as file:
        for line in file:
            fields = line.rstrip("\n").split(None, 5)
            start, end = fields[0].split("-")
            path = fields[5] if len(fields) > 5 else ""
            result.append(
                Mapping(int(start, 16), int(end, 16), fields[1], int(fields[2], 16), path, int(fields[4]), fields[3])
            )
    return result


def read_auxiliary_vector(pid: int) -> dict[int, int]:
    """The auxiliary vector that the kernel gave the program: type to value (System V ABI, section 3.4.3)."""
    with open(f"/proc/{pid}/auxv", "rb") as file:
        data = file.read()
    words = memoryview(data).cast("Q")
    return {words[i]: words[i + 1] for i in range(0, len(words), 2) if words[i]}


def program_mark(pid: int) -> bytes:
    """What tells the program that a process runs from those that it runs before and after: its auxiliary vector.

    It names places that the kernel chooses by chance for each exec. A :class:`Memory` is that of one program alone.
    """
    try:
        with open(f"/proc/{pid}/auxv", "rb") as file:
            return file.read()
    except OSError:
        return b""


def find_gap(mappings: list[Mapping], low: int, high: int, size: int, reach: int = (1 << 31) - (1 << 20)) -> int | None:
    """Find an unmapped place for ``size`` bytes, all of it within ``reach`` of every byte of [low, high).

    Looks below first (the heap grows up from an executable's end), then above, keeping a distance from what is mapped:
    stacks grow down, the heap up. Returns a page-aligned address or None.
    """
    size = -(-size // PAGE) * PAGE
    lowest, highest = max(high - reach, 0x10000), min(low + reach, _USER_END)
    edges = [(0, 0x10000)] + [(m.start, m.end) for m in mappings] + [(_USER_END, _USER_END)]
    margin = 1 << 20
    below, above = [], []
    for (_, previous_end), (next_start, _) in pairwise(edges):
        first, last = max(previous_end, lowest), min(next_start, highest) - size
        if last < first:
            continue
        if next_start <= low:
            below.append(max(first, last - margin))
        elif previous_end >= high:
            # Far up, out of the way of a growing heap.
            above.append(max(first, last - margin))
    if below:
        return _align(max(below))
    return _align(max(above)) if above else None


def _align(address: int) -> int:
    return address & ~(PAGE - 1) if address % PAGE == 0 else (address + PAGE - 1) & ~(PAGE - 1)
