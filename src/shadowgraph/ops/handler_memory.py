"""Bringing handlers into a process: an object that needs nothing is mapped, another loaded by the process's loader."""

from __future__ import annotations

import tempfile
from pathlib import Path

from shadowgraph.agent.loader import Loader, visible_in
from shadowgraph.errors import StartError
from shadowgraph.image import image_from_bytes
from shadowgraph.image.relocations import read_relocations
from shadowgraph.ops.handler_object import HandlerObject
from shadowgraph.target.memory import PAGE
from shadowgraph.target.remote import RemoteThread

__all__ = ["LoadedHandlers", "load_with_loader", "map_handlers", "unload"]

_SYS_MMAP, _SYS_MPROTECT, _SYS_MUNMAP = 9, 10, 11
_READ, _WRITE, _EXEC = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x02 | 0x20


class LoadedHandlers:
    """Handlers in a process: ``entry`` and ``exit`` are addresses there, 0 for none.

    ``size`` is that of what was mapped at ``base``; 0: the loader has it, by this ``handle``. ``unit``: of the room
    that the process has for small ones (handler_pool.py), where they are in that.
    """

    def __init__(
        self, handlers: HandlerObject, bias: int, base: int, size: int, handle: int = 0, unit: int | None = None
    ) -> None:
        self.entry = 0 if handlers.entry is None else handlers.entry + bias
        self.exit = 0 if handlers.exit is None else handlers.exit + bias
        self.base, self.size, self.handle, self.unit = base, size, handle, unit


def map_handlers(thread: RemoteThread, handlers: HandlerObject) -> LoadedHandlers:
    """Map an object without obstacles (HandlerObject) and relocate it."""
    image = image_from_bytes(handlers.content, handlers.name)
    low = min(part.address for part in image.segments) // PAGE * PAGE
    high = max(part.address + part.memory_size for part in image.segments)
    size = -(-(high - low) // PAGE) * PAGE
    base = thread.system_call(_SYS_MMAP, 0, size, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    bias = base - low
    content = bytearray(size)
    for part in image.segments:
        data = bytes(image.read(part.address, part.file_size))
        content[part.address - low : part.address - low + len(data)] = data
    for entry in read_relocations(image):
        at = int(entry["address"]) - low
        content[at : at + 8] = (int(entry["addend"]) + bias & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")
    thread.memory.write(base, bytes(content))
    for part in image.segments:
        first = (part.address + bias) // PAGE * PAGE
        last = -(-(part.address + bias + part.memory_size) // PAGE) * PAGE
        rights = _READ | (_EXEC if part.executable else 0) | (_WRITE if part.writable else 0)
        thread.system_call(_SYS_MPROTECT, first, last - first, rights)
    return LoadedHandlers(handlers, bias, base, size)


def load_with_loader(thread: RemoteThread, handlers: HandlerObject) -> LoadedHandlers:
    """Load an object by the process's own loader; the thread must stand at a safe place (borrowing.py)."""
    with tempfile.TemporaryDirectory(prefix="shadowgraph-handler-") as folder:
        path = Path(folder) / "handlers.so"
        path.write_bytes(handlers.content)
        loader = Loader(thread)
        with visible_in(thread, [path]) as names:
            library = loader.open(names[0])
        if not library:
            raise StartError(f"{handlers.name}: the process's loader refused it: {loader.error()}")
    return LoadedHandlers(handlers, loader.bias(library), 0, 0, library)


def unload(thread: RemoteThread, loaded: LoadedHandlers) -> None:
    """Take handlers out of a process in which nobody runs them any more; one that a loader has needs a safe place."""
    if loaded.size:
        thread.system_call(_SYS_MUNMAP, loaded.base, loaded.size)
    elif loaded.handle:
        Loader(thread).close(loaded.handle)
