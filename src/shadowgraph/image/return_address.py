"""Functions that read their own return address, found by their code: names do not tell them in stripped files.

Between entry and return of a hooked call the slot at CFA − 8 holds our return site. Who reads it there (the dynamic
linker's dlsym, an unwinder's first step, a sanitizer's report, setjmp) would act upon the wrong address. The unwind
table says how far the CFA lies from rsp at each instruction, so that a load from the slot is known by its displacement.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.image.cfi import RBP, RSP
from shadowgraph.image.elf import Bytes
from shadowgraph.image.image import Image, TextRange
from shadowgraph.image.unwind import UnwindTable

__all__ = ["find_return_address_reads"]

# Prologues push up to six registers and make room; loads from a smaller depth than a function's deepest are only of
# interest while it is on its way there. Longer prologues exist, but not with a look at the return address in between.
PROLOGUE_BYTES = 64
LONGEST_LOAD = 8


def find_return_address_reads(image: Image, unwind: UnwindTable) -> npt.NDArray[np.uint64]:
    """uint64[m], sorted: the addresses of all instructions ``mov reg64, [slot]``, and of functions that pop their slot.

    Only code that the unwind table covers can be judged.
    """
    found: list[int] = []
    if not len(unwind):
        return np.zeros(0, np.uint64)
    for text in image.text:
        if text.is_plt or len(text.data) <= LONGEST_LOAD:
            continue
        loads = _loads(text.data)
        pcs, displacements = _loads_from_rsp(text, loads)
        found += _confirmed(unwind, *_plausible(unwind, pcs, displacements), RSP)
        pcs = _loads_above_rbp(text, loads)
        pcs = pcs[unwind.may_use_rbp[unwind.indexes(pcs)]]
        found += _confirmed(unwind, pcs, np.full(len(pcs), 8), RBP)
    found += unwind.start[unwind.moves_return_address()].tolist()
    return np.array(sorted(found), np.uint64)


def _loads(code: Bytes) -> npt.NDArray[np.int64]:
    """Offsets of what may be the opcode 8B of a 64-bit load: a REX prefix with W, without X and B, stands before it."""
    opcode = np.flatnonzero(code[1:-LONGEST_LOAD] == 0x8B) + 1
    loads: npt.NDArray[np.int64] = opcode[(code[opcode - 1] & 0xFB) == 0x48]
    return loads


def _loads_from_rsp(
    text: TextRange, loads: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Addresses and displacements of the loads from [rsp + displacement]: ModRM rm = 100, SIB = 24."""
    code = text.data
    mode = code[loads + 1] >> 6
    chosen = ((code[loads + 1] & 7) == 4) & (mode < 3) & (code[loads + 2] == 0x24)
    loads, mode = loads[chosen], mode[chosen]
    words = np.ascontiguousarray(code[loads[:, None] + np.arange(3, 7)]).view("<i4")[:, 0].astype(np.int64)
    bytes_ = code[loads + 3].view(np.int8).astype(np.int64)
    displacement = np.where(mode == 0, 0, np.where(mode == 1, bytes_, words))
    return (loads - 1 + text.address).astype(np.uint64), displacement


def _loads_above_rbp(text: TextRange, loads: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Addresses of the loads from [rbp + 8], where the return address is in a function with a frame pointer."""
    chosen = loads[((text.data[loads + 1] & 0xC7) == 0x45) & (text.data[loads + 2] == 8)]
    addresses: npt.NDArray[np.uint64] = (chosen - 1 + text.address).astype(np.uint64)
    return addresses


def _plausible(
    unwind: UnwindTable, pcs: npt.NDArray[np.uint64], displacements: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Those loads that may be of the slot: at a function's deepest, or at a lesser depth while it gets there."""
    row = unwind.indexes(pcs)
    known = (row >= 0) & (displacements >= 0)
    pcs, displacements, row = pcs[known], displacements[known], row[known]
    at_deepest = displacements + 8 == unwind.deepest[row]
    early = (pcs - unwind.start[row] < PROLOGUE_BYTES) & (displacements + 8 < unwind.deepest[row])
    kept = at_deepest | early
    return pcs[kept], displacements[kept]


def _confirmed(
    unwind: UnwindTable, pcs: npt.NDArray[np.uint64], displacements: npt.NDArray[np.int64], register: int
) -> list[int]:
    """Those loads whose address, by the unwind row in force, is CFA − 8."""
    confirmed = []
    for pc, displacement in zip(pcs.tolist(), displacements.tolist(), strict=True):
        row = unwind.rule_at(pc)
        if row is not None and (row.register, row.offset - 8) == (register, displacement):
            confirmed.append(pc)
    return confirmed
