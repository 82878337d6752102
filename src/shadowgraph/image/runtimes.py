"""Code of language runtimes that manage their stacks themselves, found by what only they put into a file.

Names alone (special.py) do not tell them: a Go function may be called ``main.add``, a Haskell one ``x_info``.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from shadowgraph.image.functions import Aliases, FunctionTable

__all__ = ["V8_RESOLVER", "managed_rows", "rows_called_by_runtime"]

# A variable of V8: the function that its stack walker asks where a slot's true return address is, for embedders that
# exchange return addresses themselves (v8::V8::SetReturnAddressLocationResolver in include/v8-initialization.h).
V8_RESOLVER = "_ZN2v88internal10StackFrame33return_address_location_resolver_E"

# GHC's code is a web of jumps: rsp is the C stack's, and what lies on top of it is nobody's return address.
_HASKELL = re.compile(r"(?:stg_.*|.*_(?:info|entry|slow|fast|ret|closure))\Z")
# A parameter "const v8::FunctionCallbackInfo<…> &", or its kin for properties; not that of a pointer to a function.
_V8_CALLBACKS = (b"20FunctionCallbackInfoI", b"20PropertyCallbackInfoI")
_BY_CONSTANT_REFERENCE = re.compile(rb"(?<!PFv)RKN(?:2v8|S\d*_)\Z")
_HASKELL_MARK = b"stg_upd_frame_info"


def managed_rows(functions: FunctionTable, aliases: Aliases) -> npt.NDArray[np.int64]:
    """The rows whose return addresses a runtime reads, moves or does without: Go's text and Haskell's."""
    return np.concatenate([_go_rows(functions, aliases), _haskell_rows(functions, aliases)])


def _go_rows(functions: FunctionTable, aliases: Aliases) -> npt.NDArray[np.int64]:
    """Go copies a stack that has grown to another place, and finds each frame's size by its return address."""
    first, last = _address(aliases, b"runtime.text"), _address(aliases, b"runtime.etext")
    if first is None or last is None:
        return np.zeros(0, np.int64)
    return np.flatnonzero((functions.start >= np.uint64(first)) & (functions.start < np.uint64(last)))


def _haskell_rows(functions: FunctionTable, aliases: Aliases) -> npt.NDArray[np.int64]:
    if not any(len(table.find_name(_HASKELL_MARK)) for table in aliases.tables):
        return np.zeros(0, np.int64)
    candidates = np.flatnonzero(~functions.has_unwind).tolist()
    return np.array([row for row in candidates if _HASKELL.match(functions.name(row))], np.int64)


def rows_called_by_runtime(aliases: Aliases) -> npt.NDArray[np.int64]:
    """The rows of functions that JavaScript calls through V8 (node's own and those of its addons), by their parameters.

    V8 begins a walk of its stack at the return address of such a call. Where a resolver
    (V8::SetReturnAddressLocationResolver) leads it from the slot to the original, they can be hooked.
    """
    rows = [np.zeros(0, np.int64)]
    for number, table in enumerate(aliases.tables):
        members = np.flatnonzero(aliases.table == number)
        for text in _V8_CALLBACKS:
            named = table.names_with(text, _BY_CONSTANT_REFERENCE, aliases.symbol[members])
            raw = table.raw_names(aliases.symbol[members[named]].tolist())
            # gcc names a file's static constructor after the first function in it.
            named = named[[not name.startswith(b"_GLOBAL__") for name in raw]]
            rows.append(np.searchsorted(aliases.bounds, members[named], side="right") - 1)
    return np.unique(np.concatenate(rows))


def _address(aliases: Aliases, name: bytes) -> int | None:
    for table in aliases.tables:
        for row in table.find_name(name).tolist():
            return int(table.rows["value"][row])
    return None
