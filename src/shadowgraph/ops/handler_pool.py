"""Room in a process for small handlers, so that those who come later need no thread of the process to map theirs.

The controller links handlers so that their data begin one span behind their code. The room is two such spans: units of
code in the first, each with its unit of data as far behind it as the object expects:

    base                          base + SPAN
    ┌────────┬────────┬── ── ──┬────────┬────────┬── ── ──┐
    │ code 0 │ code 1 │        │ data 0 │ data 1 │        │    code: R X; data: R W
    └────────┴────────┴── ── ──┴────────┴────────┴── ── ──┘

A unit is written while no thread can be in it: its last user has been left by all of them (live/quiescence.py), behind
a barrier that every processor has passed, so none runs instructions that it has fetched before.
"""

from __future__ import annotations

from functools import lru_cache

from shadowgraph.image import image_from_bytes
from shadowgraph.image.relocations import read_relocations
from shadowgraph.ops.handler_memory import LoadedHandlers
from shadowgraph.ops.handler_object import HandlerObject
from shadowgraph.target.memory import Memory
from shadowgraph.target.remote import RemoteThread

__all__ = ["SPAN", "HandlerPool"]

SPAN = 0x40000
_UNIT = 0x2000
_UNITS = SPAN // _UNIT
_BREAKPOINTS = b"\xcc" * _UNIT
_SYS_MMAP, _SYS_MPROTECT, _SYS_MUNMAP = 9, 10, 11
_READ, _WRITE, _EXEC = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x02 | 0x20


class HandlerPool:
    """The room of one process. Made while a thread is borrowed; the rest takes none."""

    def __init__(self, thread: RemoteThread) -> None:
        self.base = thread.system_call(_SYS_MMAP, 0, 2 * SPAN, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
        thread.system_call(_SYS_MPROTECT, self.base, SPAN, _READ | _EXEC)
        self._free = list(range(_UNITS))

    @property
    def is_empty(self) -> bool:
        """Whether no handlers are in it."""
        return len(self._free) == _UNITS

    @staticmethod
    def fits(handlers: HandlerObject) -> bool:
        """Whether handlers need no more than a unit."""
        return _parts(handlers.content) is not None

    def place(self, memory: Memory, handlers: HandlerObject) -> LoadedHandlers | None:
        """Write handlers that fit into a unit that is free; None if there is none."""
        parts = _parts(handlers.content)
        if parts is None or not self._free:
            return None
        unit = self._free.pop(0)
        at = self.base + unit * _UNIT
        code, data, relocations = parts
        contents = {0: bytearray(code), SPAN: bytearray(data)}
        for address, addend in relocations:
            content, place = contents[address & SPAN], address % SPAN
            content[place : place + 8] = (addend + at & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")
        for offset, content in contents.items():
            memory.write(at + offset, bytes(content))
        return LoadedHandlers(handlers, at, at, _UNIT, unit=unit)

    def give_back(self, memory: Memory, loaded: LoadedHandlers) -> None:
        """Free the unit of handlers in which no thread can be any more."""
        assert loaded.unit is not None
        for part in (loaded.base, loaded.base + SPAN):
            memory.write(part, bytes(_UNIT))
        self._free.append(loaded.unit)

    def unmap(self, thread: RemoteThread) -> None:
        """Take the room out of the process."""
        thread.system_call(_SYS_MUNMAP, self.base, 2 * SPAN)


@lru_cache(maxsize=16)
def _parts(content: bytes) -> tuple[bytes, bytes, tuple[tuple[int, int], ...]] | None:
    """What goes into a unit of code and one of data, with relocations as (address, addend); None if it does not fit."""
    image = image_from_bytes(content, "handlers")
    units = {0: bytearray(_BREAKPOINTS), SPAN: bytearray(_UNIT)}
    for part in image.segments:
        start = SPAN if part.writable else 0
        if part.address < start or part.address + part.memory_size > start + _UNIT:
            return None
        offset, data = part.address - start, bytes(image.read(part.address, part.file_size))
        units[start][offset : offset + len(data)] = data
    entries = read_relocations(image)
    relocations = tuple(zip(entries["address"].tolist(), entries["addend"].tolist(), strict=True))
    if any(address % SPAN + 8 > _UNIT or address >= 2 * SPAN for address, _ in relocations):
        return None
    return bytes(units[0]), bytes(units[SPAN]), relocations
