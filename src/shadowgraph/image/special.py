"""Functions that must not be hooked because of what they are, known by name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.image.reasons import Reason
from shadowgraph.image.symbols import SymbolTable

__all__ = ["reason_by_name", "refuse_by_name"]

_EXACT: dict[str, Reason] = {
    name: reason
    for reason, names in {
        Reason.RETURNS_TWICE: "setjmp _setjmp __sigsetjmp sigsetjmp savectx vfork __vfork __libc_vfork getcontext __getcontext",
        Reason.SWITCHES_STACKS: "setcontext swapcontext __setcontext __swapcontext makecontext longjmp siglongjmp _longjmp __longjmp",
        Reason.LOOKS_AT_RETURN_ADDRESS: "dlsym dlvsym dlopen dlmopen __libc_dlopen_mode",
        Reason.NO_CALLER: "_start _dl_start_user __restore_rt",
        Reason.COMPILER_HOOK: "mcount _mcount __fentry__",
    }.items()
    for name in names.split()
}


def reason_by_name(name: str) -> Reason:
    """What speaks against hooking a function of this name (as the file spells it); NONE if nothing does."""
    return _EXACT.get(name, Reason.NONE)


def refuse_by_name(
    refused: npt.NDArray[np.uint8],
    tables: list[SymbolTable],
    table: npt.NDArray[np.uint8],
    symbol: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
) -> None:
    """Write the reason into ``refused`` for every row that one of whose names is special."""
    for name, reason in _EXACT.items():
        for number, symbols in enumerate(tables):
            hits = np.isin(symbol, symbols.find_name(name.encode())) & (table == number)
            refused[np.searchsorted(bounds, np.flatnonzero(hits), side="right") - 1] = reason
