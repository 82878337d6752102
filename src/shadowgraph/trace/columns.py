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

__all__ = [
    "CALL_DTYPE",
    "ColumnPointers",
    "Decoder",
    "NativeBatch",
    "NativeClock",
    "NativeTexts",
    "ReplayNames",
    "ReplayOptions",
    "TextColumn",
    "ValueSpecs",
    "address",
    "library",
    "new_array",
]

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


class ValueSpecs(ctypes.Structure):
    """struct sg_value_specs"""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("first_item", "items", "names")),
        ("functions", ctypes.c_uint32),
    ]


class TextColumn(ctypes.Structure):
    """struct sg_text_column"""

    _fields_ = [*((name, ctypes.c_void_p) for name in ("offsets", "valid", "data")), ("size", ctypes.c_int64)]


class NativeBatch(ctypes.Structure):
    """struct sg_batch"""

    _fields_ = [
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("thread", "function", "start", "duration", "depth", "kind")),
    ]


class ReplayNames(ctypes.Structure):
    """struct sg_replay_names"""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("text", "offsets", "places", "place_offsets")),
        ("functions", ctypes.c_uint32),
    ]


class ReplayOptions(ctypes.Structure):
    """struct sg_replay_options"""

    _fields_ = [
        ("begin", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("depth", ctypes.c_uint32),
        ("switches", ctypes.c_int32),
        ("timestamps", ctypes.c_int32),
        ("chosen", ctypes.c_void_p),
        ("functions", ctypes.c_uint32),
    ]


class NativeTexts(ctypes.Structure):
    """struct sg_texts"""

    _fields_ = [
        (f"{name}_{part}", ctypes.c_int64 if part == "row" else ctypes.c_void_p)
        for name in ("argument", "result")
        for part in ("offsets", "data", "valid", "row")
    ]


_POINTER = ctypes.c_void_p
_I32, _I64, _U32 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32
_BATCH = ctypes.POINTER(NativeBatch)

# Result and arguments of each function of columns.h.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "sg_decode": (_I64, [_POINTER, _I64, _I32, ctypes.POINTER(Decoder), _POINTER, ctypes.POINTER(_I64)]),
    "sg_split": (_I64, [_POINTER, _I64, _I64, _POINTER, ctypes.POINTER(_I64)]),
    "sg_sort": (_I64, [_POINTER, _I64, _I64, _POINTER, _POINTER, _POINTER]),
    "sg_depths_create": (_POINTER, []),
    "sg_depths_destroy": (None, [_POINTER]),
    "sg_depths_clear": (None, [_POINTER]),
    "sg_depths_close": (_I32, [_POINTER, _POINTER, _POINTER, _I64]),
    "sg_emit": (
        _I64,
        [_POINTER, _POINTER, _I64, _U32, ctypes.POINTER(NativeClock), ctypes.POINTER(ColumnPointers), _POINTER],
    ),
    "sg_format_values": (
        _I64,
        [
            _POINTER,
            _POINTER,
            _I64,
            _POINTER,
            ctypes.POINTER(ValueSpecs),
            ctypes.POINTER(TextColumn),
            ctypes.POINTER(TextColumn),
            _I64,
        ],
    ),
    "sg_profile_create": (_POINTER, [_U32]),
    "sg_profile_destroy": (None, [_POINTER]),
    "sg_profile_feed": (_I32, [_POINTER, _BATCH, _POINTER, _U32, _POINTER, _U32]),
    "sg_profile_finish": (None, [_POINTER, _POINTER, _POINTER, _I32, _POINTER]),
    "sg_tree_create": (_POINTER, [_U32]),
    "sg_tree_destroy": (None, [_POINTER]),
    "sg_tree_feed": (_I32, [_POINTER, _BATCH, _POINTER, _U32]),
    "sg_tree_count": (_U32, [_POINTER]),
    "sg_tree_finish": (None, [_POINTER, _POINTER]),
    "sg_replay_create": (_POINTER, [ctypes.POINTER(ReplayNames), ctypes.POINTER(ReplayOptions), _I32]),
    "sg_replay_destroy": (None, [_POINTER]),
    "sg_replay_add": (_I32, [_POINTER, _I32, _I64, ctypes.c_char_p, ctypes.c_char_p]),
    "sg_replay_feed": (_I32, [_POINTER, _I32, _BATCH, ctypes.POINTER(NativeTexts)]),
    "sg_replay_run": (_I32, [_POINTER, _POINTER, _I64, ctypes.POINTER(_I64), ctypes.POINTER(_I32)]),
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
