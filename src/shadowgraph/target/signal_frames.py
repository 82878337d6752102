"""Finding what threads will go back to when they return from signal handlers.

While a handler runs, the registers of the code that it has interrupted lie on a stack, above the handler's frame: the
kernel's struct rt_sigframe (arch/x86/include/asm/sigframe.h). It begins with the address of the code that makes the
system call rt_sigreturn, and that is how it is found.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.target.memory import Mapping, Memory

__all__ = ["SavedContext", "find_restorers", "saved_contexts"]

# mov $15, %rax; syscall: the 7-byte form that glibc and musl use, which debuggers know by its bytes.
_RESTORER = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
# Distances from the word that holds the restorer's address: struct ucontext, struct sigcontext_64.
_RSP, _RIP, _CS = 168, 176, 192
_SIZE = 200
_USER_CODE = 0x33
_LARGEST_STACK = 1 << 30


@dataclass(frozen=True, slots=True)
class SavedContext:
    """Registers saved for the return from a handler: ``rip`` and ``rsp``, and where in memory they are."""

    rip: int
    rsp: int
    rip_at: int
    rsp_at: int


def find_restorers(memory: Memory, mappings: list[Mapping]) -> list[int]:
    """Where in the code of a process signal handlers may return to, and threads whose borrower has died."""
    found = []
    for mapping in mappings:
        if "x" not in mapping.permissions or not mapping.path.startswith(
            ("/", "[vdso]")
        ):  # for the latter see way_home.py
            continue
        file = _file_of(mapping)
        places = _known.get(file) if file is not None else None
        if places is None:
            places = _look_for_restorers(memory, mapping)
        if file is not None:
            _known[file] = places
        found += [mapping.start + place for place in places]
    return found


# Where they are in files that do not change: forked children have them all alike, and reading code takes time.
_known: dict[tuple[object, ...], list[int]] = {}


def _file_of(mapping: Mapping) -> tuple[object, ...] | None:
    """What tells the content of a mapping from others; None if that may be other than the file's."""
    if not mapping.path.startswith("/") or "w" in mapping.permissions:
        return None
    try:
        status = os.stat(mapping.path)
    except OSError:
        return None
    if status.st_ino != mapping.inode:
        return None
    size = mapping.end - mapping.start
    return mapping.path, mapping.device, mapping.inode, mapping.offset, size, status.st_mtime_ns, status.st_size


def _look_for_restorers(memory: Memory, mapping: Mapping) -> list[int]:
    try:
        data = memory.read(mapping.start, mapping.end - mapping.start)
    except OSError:
        return []
    places, at = [], data.find(_RESTORER)
    while at >= 0:
        places.append(at)
        at = data.find(_RESTORER, at + 1)
    return places


def saved_contexts(
    memory: Memory,
    mappings: list[Mapping],
    sp: int,
    restorers: list[int],
    also: Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.bool_]] | None = None,
) -> list[SavedContext]:
    """All contexts saved on the stack that ``sp`` points to, and on those that the interrupted code ran on.

    ``also`` tells which other words stand for a restorer's address.
    """
    found: list[SavedContext] = []
    starts = [mapping.start for mapping in mappings]
    waiting, seen = [sp], set[int]()
    while waiting:
        sp = waiting.pop()
        index = bisect_right(starts, sp) - 1
        if index < 0 or sp >= mappings[index].end or index in seen:
            continue
        seen.add(index)
        here = _on_stack(memory, sp & ~7, min(mappings[index].end, sp + _LARGEST_STACK), restorers, also)
        found += here
        waiting += [context.rsp for context in here]
    return found


def _on_stack(
    memory: Memory,
    low: int,
    high: int,
    restorers: list[int],
    also: Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.bool_]] | None,
) -> list[SavedContext]:
    try:
        data = memory.read(low, high - low)
    except OSError:
        return []
    words = np.frombuffer(data, np.uint64, len(data) // 8)
    hits = np.zeros(len(words), np.bool_)
    for restorer in restorers:
        hits |= words == np.uint64(restorer)
    if also is not None:
        hits |= also(words)
    contexts = []
    for place in np.flatnonzero(hits).tolist():
        offset = place * 8
        if offset + _SIZE > len(data) or int(words[place + _CS // 8]) & 0xFFFF != _USER_CODE:
            continue
        rip, rsp = int(words[place + _RIP // 8]), int(words[place + _RSP // 8])
        contexts.append(SavedContext(rip, rsp, low + offset + _RIP, low + offset + _RSP))
    return contexts
