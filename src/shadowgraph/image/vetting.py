"""What the tables alone say against hooking a function: by the unwind row at its start, by name, by its code."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from shadowgraph.image.functions import Aliases, FunctionTable
from shadowgraph.image.image import Image
from shadowgraph.image.imports import lookup_dynamic
from shadowgraph.image.names import AGENT_SONAME, cold_parent
from shadowgraph.image.reasons import Reason
from shadowgraph.image.return_address import find_return_address_reads
from shadowgraph.image.runtimes import V8_RESOLVER, managed_rows, rows_called_by_runtime
from shadowgraph.image.special import special_symbols
from shadowgraph.image.symbols import SHN_UNDEF
from shadowgraph.image.unwind import UnwindTable

__all__ = ["judge_starts", "refuse_by_code", "refuse_by_name", "refuse_by_place"]

# With these, every function of the program hands its own return address to a hook, for the record only.
_INSTRUMENTATION = (b"__cyg_profile_func_enter", b"__tsan_func_entry")


def judge_starts(start: npt.NDArray[np.uint64], unwind: UnwindTable) -> npt.NDArray[np.uint8]:
    """uint8[n]: what the unwind row at each function's start says. Outside all FDEs nothing is said."""
    row = unwind.indexes(start)
    refused = np.zeros(len(start), np.uint8)
    if not len(unwind):
        return refused
    at_start = (row >= 0) & (unwind.start[row] == start)
    refused[at_start] = unwind.first_row[row[at_start]]
    for index in np.flatnonzero((row >= 0) & ~at_start).tolist():
        refused[index] = unwind.judge(int(start[index]))
    return refused


def refuse_by_name(refused: npt.NDArray[np.uint8], aliases: Aliases) -> None:
    """Put the reason into ``refused`` for every function that any of its names makes special."""
    for number, table in enumerate(aliases.tables):
        members = np.flatnonzero(aliases.table == number)
        positions, reasons = special_symbols(table, aliases.symbol[members])
        refused[np.searchsorted(aliases.bounds, members[positions], side="right") - 1] = reasons


def refuse_by_place(functions: FunctionTable, image: Image) -> None:
    """Refuse where the kernel enters the image, and the code of runtimes that manage their stacks themselves."""
    # Linkers used to write the start of the text as a library's entry point. It is one if the kernel can enter there:
    # libc.so.6 names an interpreter, and prints its version when it is run.
    if image.is_program or image.is_dynamic:
        functions.refused[functions.start == np.uint64(image.entry)] = Reason.NO_CALLER
    if "greenlet" in os.path.basename(image.path):
        # Its switch copies the stack away and returns at once on what is left, and again when the copy is back: which
        # of its functions hold the switch depends on inlining.
        functions.refused[:] = Reason.RETURNS_TWICE
    if image.soname == AGENT_SONAME:
        functions.refused[:] = Reason.SHADOWGRAPH_AGENT
    functions.refused[managed_rows(functions, functions.aliases)] = Reason.MANAGED_STACK
    functions.refused[rows_called_by_runtime(functions.aliases)] = Reason.CALLED_BY_RUNTIME
    if lookup_dynamic(image, V8_RESOLVER) is not None:
        # V8 can be told where a slot's true return address is: the agent does (agent/inject.py).
        functions.refused[functions.refused == Reason.CALLED_BY_RUNTIME] = Reason.NONE


def refuse_by_code(functions: FunctionTable, image: Image, unwind: UnwindTable) -> None:
    """Refuse the functions that read their own return address, in their cold parts too."""
    if _is_instrumented(image, functions.aliases):
        return
    reads = find_return_address_reads(image, unwind)
    functions.return_address_reads = reads
    for address in reads.tolist():
        for row in _owners(functions, address):
            if not functions.refused[row]:
                functions.refused[row] = Reason.LOOKS_AT_RETURN_ADDRESS


def _owners(functions: FunctionTable, address: int) -> list[int]:
    row = functions.find(address)
    if row >= 0:
        return [row]
    part = functions.find_part(address)
    parent = cold_parent(part.name) if part else None
    return functions.find_name(parent) if parent else []


def _is_instrumented(image: Image, aliases: Aliases) -> bool:
    """Whether the program calls such a hook: it imports one, or has one in itself. libc only defines one."""
    for table in aliases.tables:
        for name in _INSTRUMENTATION:
            rows = table.find_name(name)
            if len(rows) and (image.is_program or (table.rows["section"][rows] == SHN_UNDEF).any()):
                return True
    return False
