"""Readable names of C++ and Rust functions. Demangle what is shown, not what exists: it costs microseconds a name.

C++ names go through the C++ runtime's own ``__cxa_demangle`` where one is installed (libstdc++, or LLVM's libc++abi):
the grammar is too large to keep a second implementation of. Rust's two manglings are small and are decoded here; of
the packages that do it, none is kept up for both and worth a dependency.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

__all__ = ["demangle", "demangle_one"]

# The C++ runtimes' demanglers take stack in proportion to the name: a megabyte of it in a damaged file would be fatal.
LONGEST_NAME = 1 << 15
_RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.so")


def demangle(names: list[str]) -> list[str]:
    """The readable form of each name; a name that is not mangled, or in an unknown way, stays as it is.

    What the compiler added to a C++ name stays visible, as in ``f(int) [clone .constprop.0]``.
    """
    return [demangle_one(name) for name in names]


def demangle_one(name: str) -> str:
    """The readable form of one name."""
    if name.startswith("_R"):
        from shadowgraph.image.rust_v0 import demangle_rust_v0

        return demangle_rust_v0(name) or name
    if not name.startswith("_Z") or len(name) > LONGEST_NAME:
        return name
    from shadowgraph.image.rust_legacy import demangle_rust_legacy

    return demangle_rust_legacy(name) or _cxx_demangler()(name) or name


@cache
def _cxx_demangler() -> Callable[[str], str]:
    """A function that demangles a C++ name, and returns "" for what it cannot read."""
    for runtime in _RUNTIMES:
        try:
            entry = ctypes.CDLL(runtime).__cxa_demangle
        except (OSError, AttributeError):
            continue
        return _calling(entry)
    return lambda _: ""


def _calling(entry: Callable[..., int | None]) -> Callable[[str], str]:
    entry.restype = ctypes.c_void_p  # type: ignore[attr-defined]
    entry.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]  # type: ignore[attr-defined]
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None

    def demangle_cxx(name: str) -> str:
        text = entry(name.encode("utf-8", "surrogateescape"), None, None, None)
        if not text:
            return ""
        readable = ctypes.string_at(text).decode("utf-8", "replace")
        free(text)
        return readable

    return demangle_cxx
