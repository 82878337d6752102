"""The native loops of native/columns, called through ctypes.

Only addresses, sizes and small structs cross the border: every array belongs to numpy or pyarrow on this side, and must
be kept alive by the caller for as long as native code may look at it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from shadowgraph.errors import UsageError

__all__ = ["CALL_DTYPE", "ColumnPointers", "Decoder", "NativeClock", "address", "library", "new_array"]

LIBRARY = Path(__file__).resolve().parent.parent / "_native" / "columns.so"

# struct sg_call of native/columns/columns.h
CALL_DTYPE = np.dtype(
    [
        ("start", "<i8"),
        ("duration", "<i8"),
        ("function", "<u4"),
        ("depth", "<u2"),
        ("kind", "u1"),
        ("unused", "u1"),
        ("values", "<u4"),
        ("value_slots", "<u4"),
    ]
)


class Decoder(ctypes.Structure):
    """struct sg_decoder"""

    _fields_ = [
        ("last_exit", ctypes.c_int64),
        ("nobody", ctypes.c_int64),
        ("unwritten", ctypes.c_int64),
        ("damaged", ctypes.c_int64),
    ]


class NativeClock(ctypes.Structure):
    """struct sg_clock"""

    _fields_ = [("origin", ctypes.c_int64), ("multiplier", ctypes.c_int64)]


class ColumnPointers(ctypes.Structure):
    """struct sg_columns"""

    _fields_ = [(name, ctypes.c_void_p) for name in ("thread", "function", "start", "duration", "depth", "kind")]


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "sg_decode": (
        ctypes.c_int64,
        [
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.POINTER(Decoder),
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_int64),
        ],
    ),
    "sg_split": (
        ctypes.c_int64,
        [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)],
    ),
    "sg_sort": (
        ctypes.c_int64,
        [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "sg_emit": (
        ctypes.c_int64,
        [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_uint32,
            ctypes.POINTER(NativeClock),
            ctypes.POINTER(ColumnPointers),
            ctypes.c_void_p,
        ],
    ),
}


@cache
def library() -> ctypes.CDLL:
    """The library, loaded once."""
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise UsageError(f"{LIBRARY}: the native part of Shadowgraph cannot be loaded ({error}); run make") from None
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


def address(array: np.ndarray[Any, Any], index: int = 0) -> int:
    """The address of an element of a contiguous one-dimensional array."""
    return int(array.ctypes.data) + index * array.itemsize


def new_array(length: int, kind: str | np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array whose contents do not matter yet; its pages are touched only where it is used."""
    return np.empty(length, dtype=kind)
