"""libdw (elfutils) through ctypes: debug information, read at the speed of C, where the library is installed.

Reading DWARF in Python takes minutes for a large program. libdw is a system library that every distribution has
(Debian: libdw1); without it there are no lines and no automatic arguments, and :func:`open_debug_information` says so.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_ssize_t, c_uint, c_uint8, c_uint16, c_uint64, c_void_p
from functools import cache
from typing import Any

from shadowgraph.image.debugfiles import DEBUG_ROOTS, find_debug_path
from shadowgraph.image.image import Image

__all__ = ["Attribute", "DebugInformation", "Die", "NoDebugInformation", "Unit", "open_debug_information"]

MISSING = "Source lines and argument types need the library libdw.so.1 (on Debian and Ubuntu: apt install libdw1)."


class NoDebugInformation(Exception):
    """There is nothing to read; the text is one sentence that says why."""


class Die(ctypes.Structure):
    """A debugging information entry (Dwarf_Die of elfutils/libdw.h). Valid while its DebugInformation is."""

    _fields_ = [("addr", c_void_p), ("cu", c_void_p), ("abbrev", c_void_p), ("padding", ctypes.c_long)]


class Attribute(ctypes.Structure):
    """An attribute of an entry (Dwarf_Attribute of elfutils/libdw.h)."""

    _fields_ = [("code", c_uint), ("form", c_uint), ("value", c_void_p), ("cu", c_void_p)]


FUNCTION_CALLBACK = ctypes.CFUNCTYPE(c_int, POINTER(Die), c_void_p)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "dwarf_begin": (c_void_p, [c_int, c_int]),
    "dwarf_end": (c_int, [c_void_p]),
    "dwarf_get_units": (
        c_int,
        [c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_uint16), POINTER(c_uint8), POINTER(Die), POINTER(Die)],
    ),
    "dwarf_ranges": (
        c_ssize_t,
        [POINTER(Die), c_ssize_t, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64)],
    ),
    "dwarf_getsrc_die": (c_void_p, [POINTER(Die), c_uint64]),
    "dwarf_lineno": (c_int, [c_void_p, POINTER(c_int)]),
    "dwarf_linesrc": (c_char_p, [c_void_p, c_void_p, c_void_p]),
    "dwarf_getfuncs": (c_ssize_t, [POINTER(Die), FUNCTION_CALLBACK, c_void_p, c_ssize_t]),
    "dwarf_entrypc": (c_int, [POINTER(Die), POINTER(c_uint64)]),
    "dwarf_tag": (c_int, [POINTER(Die)]),
    "dwarf_diename": (c_char_p, [POINTER(Die)]),
    "dwarf_child": (c_int, [POINTER(Die), POINTER(Die)]),
    "dwarf_siblingof": (c_int, [POINTER(Die), POINTER(Die)]),
    "dwarf_attr_integrate": (c_void_p, [POINTER(Die), c_uint, POINTER(Attribute)]),
    "dwarf_formref_die": (c_void_p, [POINTER(Attribute), POINTER(Die)]),
    "dwarf_formudata": (c_int, [POINTER(Attribute), POINTER(c_uint64)]),
    "dwarf_aggregate_size": (c_int, [POINTER(Die), POINTER(c_uint64)]),
}


@cache
def load_libdw() -> Any:
    """The loaded library with its prototypes set; NoDebugInformation where it is not installed."""
    try:
        loaded = ctypes.CDLL("libdw.so.1")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as problem:
        raise NoDebugInformation(MISSING) from problem
    return loaded


class Unit:
    """One compilation unit: ``die`` is its entry (in the .dwo file, if split off), ``skeleton`` has the lines."""

    def __init__(self, skeleton: Die, split: Die) -> None:
        self.skeleton = skeleton
        self.die = split if split.addr else skeleton

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The address ranges of its code: (start, end)."""
        base, start, end, offset = c_uint64(), c_uint64(), c_uint64(), 0
        while True:
            offset = load_libdw().dwarf_ranges(byref(self.skeleton), offset, byref(base), byref(start), byref(end))
            if offset <= 0:
                return
            if start.value < end.value:
                yield start.value, end.value


class DebugInformation:
    """The DWARF of one file; keeps the file open as long as it lives."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._handle = load_libdw().dwarf_begin(descriptor, 0)
        if not self._handle:
            os.close(descriptor)
            raise NoDebugInformation(f"{path} has no debug information that could be read.")
        self.path = path
        self._closer = weakref.finalize(self, _close, load_libdw(), self._handle, descriptor)

    def units(self) -> list[Unit]:
        """All compilation units with code."""
        lib, units, at = load_libdw(), list[Unit](), None
        while True:
            following, version, kind, die, split = c_void_p(), c_uint16(), c_uint8(), Die(), Die()
            if lib.dwarf_get_units(
                self._handle, at, byref(following), byref(version), byref(kind), byref(die), byref(split)
            ):
                return units
            at = following
            units.append(Unit(die, split))


def open_debug_information(image: Image, debug_roots: Sequence[str] = DEBUG_ROOTS) -> DebugInformation:
    """The debug information of an image, from itself or its separate debug file; NoDebugInformation says why not."""
    load_libdw()
    if any(section.name in (".debug_info", ".zdebug_info") for section in image.elf.sections):
        return DebugInformation(image.path)
    path = find_debug_path(image, debug_roots)
    if path is None:
        raise NoDebugInformation(f"{image.path} has no debug information (build with -g, or install its debug file).")
    return DebugInformation(str(path))


def tag_of(die: Die) -> int:
    """DW_TAG_… of the entry."""
    return int(load_libdw().dwarf_tag(byref(die)))


def name_of(die: Die) -> str:
    """The entry's name, "" if it has none."""
    name = load_libdw().dwarf_diename(byref(die))
    return name.decode("utf-8", "replace") if name else ""


def size_of(die: Die) -> int:
    """Bytes that a value of the type takes, 0 if that is unknown (an incomplete type)."""
    size = c_uint64()
    return 0 if load_libdw().dwarf_aggregate_size(byref(die), byref(size)) else size.value


def number_attribute(die: Die, code: int) -> int | None:
    """A constant attribute; None if the entry has none.

    Compilers write negative numbers in a signed form (DW_FORM_sdata) and use the forms of a fixed size for positive
    ones only: formsdata would take an offset of 200 in one byte for a negative number.
    """
    attribute, value = Attribute(), c_uint64()
    if not load_libdw().dwarf_attr_integrate(byref(die), code, byref(attribute)):
        return None
    if load_libdw().dwarf_formudata(byref(attribute), byref(value)):
        return None
    return ctypes.c_int64(value.value).value


def entry_attribute(die: Die, code: int) -> Die | None:
    """The entry that an attribute refers to (DW_AT_type and the like), None if there is none."""
    attribute, target = Attribute(), Die()
    if not load_libdw().dwarf_attr_integrate(byref(die), code, byref(attribute)):
        return None
    return target if load_libdw().dwarf_formref_die(byref(attribute), byref(target)) else None


def has_attribute(die: Die, code: int) -> bool:
    """Whether the entry, or the one it is an instance of, has the attribute."""
    return bool(load_libdw().dwarf_attr_integrate(byref(die), code, byref(Attribute())))


def children(die: Die) -> Iterator[Die]:
    """The entries below one, in order."""
    lib, child = load_libdw(), Die()
    if lib.dwarf_child(byref(die), byref(child)):
        return
    while True:
        yield child
        following = Die()
        if lib.dwarf_siblingof(byref(child), byref(following)):
            return
        child = following


def functions_of(unit: Unit) -> list[tuple[int, Die]]:
    """The functions of a unit that have code: (entry address, entry)."""
    lib, found = load_libdw(), list[tuple[int, Die]]()

    def collect(die: Any, _: Any) -> int:
        address = c_uint64()
        if not lib.dwarf_entrypc(die, byref(address)):
            found.append((address.value, Die.from_buffer_copy(die.contents)))
        return 0

    lib.dwarf_getfuncs(byref(unit.die), FUNCTION_CALLBACK(collect), None, 0)
    return found


def _close(lib: Any, handle: int, descriptor: int) -> None:
    lib.dwarf_end(handle)
    os.close(descriptor)
