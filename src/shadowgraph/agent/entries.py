"""Who is on which functions, and where the thunks of these lead: written for many functions at once, in native code.

native/columns/entries.c has the loops; which entry path serves whom, its ``entry_of`` says.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shadowgraph.errors import UsageError

__all__ = ["PATHS", "Leading", "lead", "put_on"]

_LIBRARY = Path(__file__).resolve().parent.parent / "_native" / "columns.so"
# Fields of struct sg_leading, and how the agent calls its paths (struct sg_settings).
PATHS = {
    "general": "enter_general",
    "true_return": "enter_for_true_return",
    "count": "enter_count",
    "plain": "enter",
    "plain_from_caller": "enter_from_caller",
    "plain_and_count": "enter_count_and_record",
    "several": "enter_recorders",
    "frugal_handlers": "enter_frugal",
    "measure": "enter_measure",
}
_MASKS = ("armed", "counters", "measures", "frugal", "recorders")
_Functions = npt.NDArray[np.void]


class Leading(ctypes.Structure):
    """struct sg_leading: the agent's entry paths (``zones``), and the users by what decides about them, as masks.

    ``counters`` are those that share one counter for each function, ``measures`` those that want the exit and the
    time, and nothing at the entry, ``frugal`` those whose handlers are (beside them may be counters and the plain
    recorder), ``recorders`` those that record, without a condition or a limit.
    """

    _fields_ = [(name, ctypes.c_uint64) for name in (*PATHS, *_MASKS)]

    @classmethod
    def to(cls, zones: Mapping[str, int]) -> Leading:
        """To the entry paths of an agent; the users are to be told."""
        return cls(**{name: zones[zone] for name, zone in PATHS.items()})


def put_on(functions: _Functions, numbers: npt.NDArray[np.integer], user: int) -> None:
    """Let a user (its bit) want the calls of functions; it is not armed yet."""
    taken = np.ascontiguousarray(numbers, np.int64)
    if not _library().sg_functions_put_on(_place(functions), _place(taken), len(taken), user):
        raise IndexError("functions that have no such numbers")


def lead(functions: _Functions, numbers: npt.NDArray[np.integer], leading: Leading) -> None:
    """Lead each thunk to the entry path that its flags and its armed users ask for; functions without any pass."""
    taken = np.ascontiguousarray(numbers, np.int64)
    if not _library().sg_functions_lead(_place(functions), _place(taken), len(taken), ctypes.byref(leading)):
        raise IndexError("functions that have no such numbers")


def _place(array: npt.NDArray[np.generic]) -> int:
    return int(array.ctypes.data)


def _load() -> ctypes.CDLL | OSError:
    try:
        loaded = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        return error
    for function, last in (
        (loaded.sg_functions_put_on, ctypes.c_uint64),
        (loaded.sg_functions_lead, ctypes.POINTER(Leading)),
    ):
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, last]
    return loaded


# At once: where a process traces itself, loading a library asks controllers, who must not be kept from the registry.
_LOADED = _load()


def _library() -> ctypes.CDLL:
    if isinstance(_LOADED, OSError):
        raise UsageError(f"{_LIBRARY}: the native part of Shadowgraph cannot be loaded ({_LOADED}); run make")
    return _LOADED
