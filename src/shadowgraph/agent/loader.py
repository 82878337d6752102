"""The loader of a process: loading libraries into it by its own dlopen, and unloading them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shadowgraph.errors import StartError
from shadowgraph.image import lookup_dynamic, open_image
from shadowgraph.target.modules import read_modules
from shadowgraph.target.remote import RemoteThread

__all__ = ["LENT_NAME", "Loader", "visible_in"]

# How copies of our files in memory are called.
LENT_NAME = "shadowgraph-"

_RTLD_NOW = 2
_SYS_CLOSE, _SYS_MEMFD_CREATE = 3, 319
_CLOEXEC = 1  # MFD_CLOEXEC


class Loader:
    """The loader of the process of a borrowed thread, which must hold no lock that it or the allocator may want."""

    def __init__(self, thread: RemoteThread) -> None:
        self._thread = thread
        self._functions: dict[str, int] = {}
        for module in read_modules(thread.memory.pid):
            if module.name.startswith(("libc.so", "libc-2", "libdl", "ld-musl", "libc.musl")):
                image = open_image(module.opened)
                for name in ("dlopen", "__libc_dlopen_mode", "dlclose", "__libc_dlclose", "dlerror"):
                    address = lookup_dynamic(image, name)
                    if address is not None:
                        self._functions.setdefault(name, image.bias(module.base) + address)
        if not {"dlopen", "__libc_dlopen_mode"} & self._functions.keys():
            raise StartError(
                f"process {thread.memory.pid}: found no C library with dlopen in it; "
                "only dynamically linked programs can be traced so far"
            )

    def open(self, name: str) -> int:
        """dlopen: the address of the library's struct link_map, 0 if it is refused."""
        function = self._functions.get("dlopen") or self._functions["__libc_dlopen_mode"]
        return self._thread.call(function, self._thread.push(os.fsencode(name) + b"\0"), _RTLD_NOW)

    def bias(self, library: int) -> int:
        """What to add to the addresses in a library's file: the first member of its struct link_map (link.h)."""
        return self._thread.memory.read_word(library)

    def close(self, library: int) -> None:
        """dlclose."""
        function = self._functions.get("dlclose") or self._functions.get("__libc_dlclose")
        if function is not None:
            self._thread.call(function, library)

    def error(self) -> str:
        """What the loader says of its last failure."""
        function = self._functions.get("dlerror")
        text = self._thread.call(function) if function is not None else 0
        return self._thread.memory.read_string(text) if text else "no reason given"


@contextmanager
def visible_in(thread: RemoteThread, files: Sequence[Path]) -> Iterator[list[str]]:
    """The paths by which a process can open some files of ours.

    Where it has another file system than we (a container, a changed root) it is lent copies, in files of memory.
    """
    pid = thread.memory.pid
    if all(_is_same_file(file, f"/proc/{pid}/root{file}") for file in files):
        yield [str(file) for file in files]
        return
    _refuse_root_without_proc(pid)
    lent = []
    try:
        for file in files:
            number = thread.system_call(_SYS_MEMFD_CREATE, thread.push(f"{LENT_NAME}{file.name}\0".encode()), _CLOEXEC)
            lent.append(number)
            with open(f"/proc/{pid}/fd/{number}", "wb") as copy:
                copy.write(file.read_bytes())
        yield [f"/proc/self/fd/{number}" for number in lent]
    finally:
        for number in lent:
            thread.system_call(_SYS_CLOSE, number)


def _refuse_root_without_proc(pid: int) -> None:
    """StartError where a process could not name what it is lent: a loader opens files by their paths alone."""
    if os.path.lexists(f"/proc/{pid}/root/proc/self"):
        return
    root = os.readlink(f"/proc/{pid}/root")
    raise StartError(
        f"process {pid} has another root folder, {root}, in which there is no /proc: its loader needs that to find the "
        f"agent (mount -t proc proc {shlex.quote(os.path.join(root, 'proc'))})"
    )


def _is_same_file(path: Path, other: str) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.stat(other))
    except OSError:
        return False
