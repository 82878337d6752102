"""Every branch from anywhere in an image to places of interest, above all to the first bytes of its functions.

A jump into a function's first five bytes makes the function unpatchable, and such jumps exist: hand-written code enters
a neighbour behind its first instruction (memcpy + 3), loops begin behind a one-byte push. Decoding all text would find
them, and be wrong where text holds data. So it is done the other way round: numpy looks at every byte of the text as if
it were a branch and keeps those whose target is marked. These few are then decoded, from the start of the function that
they lie in, to see whether an instruction really is there. Where that cannot be told (no function covers the place, or
undecodable bytes precede it) the answer is yes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.decode import INVALID_LENGTH, LONGEST_INSTRUCTION, instruction_lengths
from shadowgraph.patch.owners import NOBODY, Owners
from shadowgraph.patch.text import Marks, Places, Text

__all__ = ["JumpKind", "Jumps", "confirmed", "find_jumps", "no_jumps"]

_CHUNK = 1 << 20
# Bytes that may stand before an opcode: segment, operand and address size, lock, repeat, REX.
_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3, *range(0x40, 0x50)})


class JumpKind(IntEnum):
    """What an instruction does with a place: go there, perhaps go there, call it, or take its address."""

    JUMP = 0
    CONDITIONAL = 1
    CALL = 2
    ADDRESS = 3


@dataclass(frozen=True, slots=True)
class Jumps:
    """Columns of equal length.

    ``source`` and ``end``: places of the opcode and of the next instruction; ``target``: the marked place; ``kind``:
    :class:`JumpKind`; ``owner``: index among the owners of the piece of code that the source lies in, or NOBODY.
    """

    source: Places
    end: Places
    target: Places
    kind: npt.NDArray[np.uint8]
    owner: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)

    def take(self, mask: npt.NDArray[np.bool_]) -> Jumps:
        """Those of the mask only."""
        return Jumps(self.source[mask], self.end[mask], self.target[mask], self.kind[mask], self.owner[mask])


def no_jumps() -> Jumps:
    """Columns of length 0."""
    none = np.zeros(0, np.int64)
    return Jumps(none, none, none, np.zeros(0, np.uint8), none)


def find_jumps(text: Text, owners: Owners, marks: Marks) -> Jumps:
    """Every place that, if an instruction begins there, branches to a marked place or takes its address with `lea`.

    Whether an instruction does begin there is for :func:`confirmed` to say.
    """
    found = [
        _search(text, marks, start, min(start + _CHUNK, last))
        for first, last in text.ranges
        for start in range(first, last, _CHUNK)
    ]
    if not found:
        return no_jumps()
    source, end, target = (np.concatenate([part[column] for part in found]) for column in range(3))
    return Jumps(source, end, target, _kinds()[text.data[source]], owners.at(source))


def confirmed(text: Text, owners: Owners, candidates: Jumps) -> npt.NDArray[np.bool_]:
    """Which candidates are instructions, as far as can be told; True where it cannot."""
    result = np.ones(len(candidates), np.bool_)
    known = np.flatnonzero(candidates.owner != NOBODY)
    order = known[np.argsort(candidates.owner[known], kind="stable")]
    bounds = np.flatnonzero(np.diff(candidates.owner[order], prepend=NOBODY, append=NOBODY))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[first:last]
        owner = int(candidates.owner[rows[0]])
        base = int(owners.start[owner])
        sources, ends = (candidates.source[rows] - base).tolist(), (candidates.end[rows] - base).tolist()
        # With room for an instruction that begins in the last candidate and is longer.
        code = text.bytes_at(base, min(int(owners.end[owner]) - base, max(ends) + LONGEST_INSTRUCTION))
        result[rows] = _are_instructions(code, sources, ends)
    return result


def _search(text: Text, marks: Marks, start: int, stop: int) -> tuple[Places, Places, Places]:
    """Source, end and target of what could be branches to marked places, from one stretch of text."""
    dwords = text.dwords()
    shape = _shapes()[text.data[start:stop]]
    short = np.flatnonzero(shape == 1) + start
    near = np.flatnonzero(shape == 2) + start
    second = np.flatnonzero(shape >= 3) + start
    follower = text.data[second + 1]
    # 0f 8x disp32: jcc. 8d with ModRM "rip + disp32": lea. c7 f8 disp32: xbegin.
    is_long = np.where(
        shape[second - start] == 3, (follower & 0xF0) == 0x80, _is_address_form(text.data[second], follower)
    )
    second = second[is_long]
    end = np.concatenate([short + 2, near + 5, second + 6])
    source = np.concatenate([short, near, second])
    distance = np.concatenate(
        [text.data[short + 1].view(np.int8), dwords[near + 1], dwords[second + 2]], dtype=np.int64
    )
    target = end + distance
    # One comparison for both bounds: a negative place is a huge unsigned one.
    inside = np.flatnonzero(target.view(np.uint64) < np.uint64(text.size))
    hits = inside[marks[target[inside]] != 0]
    return source[hits], end[hits], target[hits]


def _is_address_form(opcode: npt.NDArray[np.uint8], follower: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    is_lea = (opcode == 0x8D) & ((follower & 0xC7) == 0x05)
    is_xbegin = (opcode == 0xC7) & (follower == 0xF8)
    result: npt.NDArray[np.bool_] = is_lea | is_xbegin
    return result


def _shapes() -> npt.NDArray[np.uint8]:
    """First opcode byte to shape: a branch with 8 bits (1), 32 (2), 32 behind a second byte (3, 4), or none (0)."""
    table = np.zeros(256, np.uint8)
    table[[*range(0x70, 0x80), 0xE0, 0xE1, 0xE2, 0xE3, 0xEB]] = 1
    table[[0xE8, 0xE9]] = 2
    table[0x0F] = 3
    table[[0x8D, 0xC7]] = 4
    return table


def _kinds() -> npt.NDArray[np.uint8]:
    """First opcode byte to JumpKind."""
    table = np.full(256, JumpKind.CONDITIONAL, np.uint8)
    table[[0xE9, 0xEB]] = JumpKind.JUMP
    table[0xE8] = JumpKind.CALL
    table[[0x8D, 0xC7]] = JumpKind.ADDRESS
    return table


def _are_instructions(code: bytes, sources: list[int], ends: list[int]) -> list[bool]:
    lengths = instruction_lengths(code)
    decoded = len(code)
    if INVALID_LENGTH in lengths:
        lengths = lengths[: lengths.index(INVALID_LENGTH)]
        decoded = sum(lengths)
    boundaries = list(accumulate(lengths, initial=0))
    # Code that decodes to its very end has no instruction across the end.
    doubtful_from = decoded if decoded < len(code) else max(ends)
    return [
        end > doubtful_from or _is_instruction(code, boundaries, source, end)
        for source, end in zip(sources, ends, strict=True)
    ]


def _is_instruction(code: bytes, boundaries: list[int], source: int, end: int) -> bool:
    """Whether an instruction whose opcode stands at ``source``, behind prefixes at most, ends at ``end``."""
    index = bisect_left(boundaries, end)
    if index in (0, len(boundaries)) or boundaries[index] != end:
        return False
    begin = boundaries[index - 1]
    return begin <= source and all(byte in _PREFIXES for byte in code[begin:source])
