"""Every jump, call or reference from anywhere in an image to the first bytes of its functions.

A jump into the middle of a function's first five bytes makes the function unpatchable, and such jumps exist: hand-written
code enters a neighbour behind its first instruction (memcpy + 3), loops begin behind a one-byte push. Decoding all text
would find them, and be wrong where text holds data. So it is done the other way round: numpy looks at every byte of the text as
if it were a branch and keeps those whose target is marked; these few are then decoded, from the start of the function
they lie in, to see whether an instruction really is there. Where that cannot be told (no function covers the place, or it
holds undecodable bytes) the answer is yes.

References count like jumps: `lea label(%rip)`, absolute addresses in data (computed goto, jump tables of programs at fixed
addresses, relocation addends) and jump tables of 32-bit distances. At -Os and -O1 loop heads are not aligned, and a
`switch` in a loop may send a case straight to a head behind a two-byte first instruction, so tables are not ruled out by
thought alone. Landing pads are: an unwinder enters them with the frame of the call that threw, which is at least eight
bytes deeper than at the entry (calls keep the stack aligned), while code that is also reached from the entry by falling
through has the entry's depth there; and pad 0 of a call-site table means "none".
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.decode import INVALID_LENGTH, instruction_lengths
from shadowgraph.patch.text import Text

if TYPE_CHECKING:
    from shadowgraph.image.image import Image

__all__ = ["Jumps", "find_jumps", "find_references"]

Places = npt.NDArray[np.int64]

_CHUNK = 1 << 20
# Bytes that may stand before an opcode: segment, operand and address size, lock, repeat, REX.
_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3, *range(0x40, 0x50)})
_CALL = 0xE8


@dataclass(frozen=True, slots=True)
class Jumps:
    """Branches or references: ``source`` and ``end`` are the places of the opcode and of the next instruction, ``target``
    that of the marked byte; ``returns`` is set for calls.
    """

    source: Places
    end: Places
    target: Places
    returns: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.source)

    def chosen(self, mask: npt.NDArray[np.bool_]) -> Jumps:
        """Those of the mask only."""
        return Jumps(self.source[mask], self.end[mask], self.target[mask], self.returns[mask])


def find_jumps(text: Text, marked: npt.NDArray[np.uint8]) -> Jumps:
    """Every place that would, if an instruction began there, branch to (or take the address of) a marked place.

    ``marked`` is uint8[len(text.data)], not zero where marked. To be confirmed by :func:`confirm`.
    """
    found: list[tuple[Places, Places, Places, npt.NDArray[np.bool_]]] = []
    dwords = text.dwords()
    shapes = _shape_table()
    for first, last in text.ranges:
        for start in range(first, last, _CHUNK):
            data = text.data[start : min(start + _CHUNK, last)]
            shape = shapes[data]
            for code, opcode_size in ((1, 1), (2, 1), (4, 2), (8, 2)):
                places = np.flatnonzero(shape & code) + start
                second = text.data[places + 1]
                if code == 1:
                    end = places + 2
                    target = end + second.view(np.int8)
                else:
                    keep = _second_byte_fits(code, second)
                    if keep is not None:
                        places = places[keep]
                    end = places + opcode_size + 4
                    target = end + dwords[places + opcode_size]
                _keep_marked(found, text, marked, places, end, target)
    columns = [
        np.concatenate([part[column] for part in found]) if found else np.zeros(0, np.int64) for column in range(4)
    ]
    return Jumps(columns[0], columns[1], columns[2], columns[3].astype(np.bool_))


def _keep_marked(
    found: list[tuple[Places, Places, Places, npt.NDArray[np.bool_]]],
    text: Text,
    marked: npt.NDArray[np.uint8],
    places: Places,
    end: Places,
    target: Places,
) -> None:
    # One comparison for both bounds: a negative place is a huge unsigned one.
    inside = np.flatnonzero(target.view(np.uint64) < np.uint64(text.size))
    hits = inside[marked[target[inside]] != 0]
    if len(hits):
        found.append((places[hits], end[hits], target[hits], text.data[places[hits]] == _CALL))


def _shape_table() -> npt.NDArray[np.uint8]:
    """First opcode byte to bits: 1 an 8-bit branch, 2 a 32-bit branch, 4 a 32-bit branch after 0f, 8 lea or xbegin."""
    table = np.zeros(256, np.uint8)
    table[[*range(0x70, 0x80), 0xE0, 0xE1, 0xE2, 0xE3, 0xEB]] = 1
    table[[_CALL, 0xE9]] = 2
    table[0x0F] = 4
    table[[0x8D, 0xC7]] = 8
    return table


def _second_byte_fits(code: int, second: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_] | None:
    if code == 4:
        return (second & 0xF0) == 0x80
    if code == 8:
        # lea reg, [rip + disp32], or xbegin (c7 f8 rel32). `mov [rip + disp32], imm32` is c7 05 and harmless here.
        return ((second & 0xC7) == 0x05) | (second == 0xF8)
    return None


def find_references(image: Image, text: Text, marked: npt.NDArray[np.uint8]) -> Places:
    """Marked places (each once, in order) whose address is stored in data or reached through a table of 32-bit distances."""
    found = [_addresses_in_data(image, text, marked), _table_entries(image, text, marked)]
    return np.unique(np.concatenate(found))


def _addresses_in_data(image: Image, text: Text, marked: npt.NDArray[np.uint8]) -> Places:
    found = [np.zeros(0, np.int64)]
    for segment in image.segments:
        if segment.executable or segment.file_size < 8:
            continue
        skip = -segment.address % 8
        size = (segment.file_size - skip) // 8 * 8
        words = np.frombuffer(image.read(segment.address + skip, size), "<u8")
        places = words - np.uint64(text.base)
        places = places[places < np.uint64(text.size)].astype(np.int64)
        found.append(places[marked[places] != 0])
    return np.concatenate(found)


def _table_entries(image: Image, text: Text, marked: npt.NDArray[np.uint8]) -> Places:
    """Follow every `lea` target as if a table of distances from itself began there, as far as its entries lie in text."""
    tables = _lea_targets(text)
    found = [np.zeros(0, np.int64)]
    for segment in image.segments:
        if segment.writable or segment.file_size < 4:
            continue
        data = np.frombuffer(image.read(segment.address, segment.file_size), np.uint8)
        dwords = np.ndarray((len(data) - 3,), np.dtype("<i4"), data, strides=(1,))
        offset = segment.address - text.base
        alive = tables[(tables >= offset) & (tables < offset + len(dwords))]
        entry = alive.copy()
        while len(alive):
            target = alive + dwords[entry - offset]
            good = (target >= 0) & (target < text.size)
            found.append(target[good][marked[target[good]] != 0])
            entry += 4
            good &= entry - offset < len(dwords)
            alive, entry = alive[good], entry[good]
    return np.concatenate(found)


def _lea_targets(text: Text) -> Places:
    dwords = text.dwords()
    found = [np.zeros(0, np.int64)]
    for first, last in text.ranges:
        places = np.flatnonzero(text.data[first : last - 1] == 0x8D) + first
        places = places[(text.data[places + 1] & 0xC7) == 0x05]
        found.append(places + 6 + dwords[places + 2])
    return np.unique(np.concatenate(found))


def confirm(text: Text, candidates: Jumps, start: Places, end: Places) -> npt.NDArray[np.bool_]:
    """Which candidates are instructions. ``start`` and ``end`` bound the function around each (start −1: there is none)."""
    confirmed = np.ones(len(candidates), np.bool_)
    known = np.flatnonzero(start >= 0)
    order = known[np.lexsort((candidates.source[known], start[known]))]
    groups = np.flatnonzero(np.diff(start[order], prepend=-1))
    for first, last in zip(groups, [*groups[1:], len(order)], strict=True):
        rows = order[first:last]
        sources = candidates.source[rows].tolist()
        ends = candidates.end[rows].tolist()
        base = int(start[rows[0]])
        code = text.bytes_at(base, min(int(end[rows[0]]), max(ends) + 15) - base)
        confirmed[rows] = _are_instructions(code, [s - base for s in sources], [e - base for e in ends])
    return confirmed


def _are_instructions(code: bytes, sources: list[int], ends: list[int]) -> list[bool]:
    lengths = instruction_lengths(code)
    doubtful_from = len(code)
    if INVALID_LENGTH in lengths:
        first = lengths.index(INVALID_LENGTH)
        doubtful_from = sum(lengths[:first])
        lengths = lengths[:first]
    boundaries = list(accumulate(lengths, initial=0))
    return [
        end > doubtful_from or _is_instruction(code, boundaries, source, end)
        for source, end in zip(sources, ends, strict=True)
    ]


def _is_instruction(code: bytes, boundaries: list[int], source: int, end: int) -> bool:
    """Whether an instruction whose opcode stands at ``source`` ends at ``end``: only prefixes may precede the opcode."""
    at_end = bisect_left(boundaries, end)
    if at_end == 0 or at_end == len(boundaries) or boundaries[at_end] != end:
        return False
    begin = boundaries[at_end - 1]
    return begin <= source and all(byte in _PREFIXES for byte in code[begin:source])
