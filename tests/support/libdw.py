"""elfutils' libdw as a second opinion on the stack of a thread that this very process has stopped by ptrace."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache

__all__ = ["available", "stack"]

_FRAME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Callbacks(ctypes.Structure):
    _fields_ = (
        ("find_elf", ctypes.c_void_p),
        ("find_debuginfo", ctypes.c_void_p),
        ("section_address", ctypes.c_void_p),
        ("debuginfo_path", ctypes.c_void_p),
    )


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libdw.so.1")
    except OSError:
        return None
    library.dwfl_begin.restype = ctypes.c_void_p
    library.dwfl_frame_pc.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return library


def available() -> bool:
    """Whether libdw is installed."""
    return _library() is not None


def stack(pid: int) -> list[int]:
    """The program counters of a stopped thread, newest first, as libdw finds them; the process is read anew."""
    library = _library()
    assert library is not None
    functions = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _CALLBACKS)
    callbacks = _Callbacks(*functions, None)
    session = ctypes.c_void_p(library.dwfl_begin(ctypes.byref(callbacks)))
    found: list[int] = []

    def note(frame: int, _: object) -> int:
        pc, is_exact = ctypes.c_uint64(), ctypes.c_bool()
        if library.dwfl_frame_pc(frame, ctypes.byref(pc), ctypes.byref(is_exact)):
            found.append(pc.value)
        return 0

    try:
        library.dwfl_linux_proc_report(session, pid)
        library.dwfl_report_end(session, None, None)
        if library.dwfl_linux_proc_attach(session, pid, ctypes.c_bool(True)) != 0:
            raise OSError(f"libdw cannot attach to {pid}")
        library.dwfl_getthread_frames(session, pid, _FRAME(note), None)
    finally:
        library.dwfl_end(session)
    return found


_CALLBACKS = ("dwfl_linux_proc_find_elf", "dwfl_standard_find_debuginfo", "dwfl_offline_section_address")
