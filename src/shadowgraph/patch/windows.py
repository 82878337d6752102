"""The first instructions of each function: which bytes a jump would displace, and whether they can run elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.decode import LONGEST_INSTRUCTION, Step, decode_steps
from shadowgraph.patch.relocate import JUMP_SIZE, Recipe, relocate
from shadowgraph.patch.text import Places, Text

__all__ = ["ENDBR64", "LONGEST_WINDOW", "RecipeBook", "has_padding", "read_windows", "skip_endbr64"]

ENDBR64 = b"\xf3\x0f\x1e\xfa"
LONGEST_WINDOW = JUMP_SIZE - 1 + LONGEST_INSTRUCTION
_INT3 = 0xCC
# The nops that assemblers pad code with, long ones first (SDM vol. 2, NOP; GNU as, x86 .p2align), behind any 66 and 2e.
_NOPS = (
    b"\x0f\x1f\x80\0\0\0\0",
    b"\x0f\x1f\x84\0\0\0\0\0",
    b"\x0f\x1f\x44\0\0",
    b"\x0f\x1f\x40\0",
    b"\x0f\x1f\0",
    b"\x90",
)
# ld and lld align functions to 16 bytes unless told otherwise; a longer run of zeros behind code is data.
_ALIGNMENT = 16


@dataclass
class RecipeBook:
    """Every distinct recipe once. A recipe follows from its bytes, so most functions find theirs by their first bytes."""

    recipes: list[Recipe] = field(default_factory=list)
    _known: dict[tuple[bytes, int], int] = field(default_factory=dict)
    _by_prefix: dict[tuple[bytes, int], int] = field(default_factory=dict)

    PREFIX = 8

    def window(self, code: bytes, entry: int) -> int | Reason:
        """Index of the recipe for the first whole instructions of ``code`` that cover a jump (or all of ``code`` if it is shorter).

        ``code`` must end where the function does, or be at least LONGEST_WINDOW long; ``entry``: see :func:`relocate`.
        """
        prefix = (code[: self.PREFIX], entry)
        found = self._by_prefix.get(prefix)
        if found is not None:
            return found
        steps = decode_steps(code, JUMP_SIZE)
        if not steps:
            return Reason.UNDECODABLE
        index = self.of(steps, entry)
        if not isinstance(index, Reason) and self.recipes[index].displaced <= self.PREFIX <= len(code):
            self._by_prefix[prefix] = index
        return index

    def of(self, steps: list[Step], entry: int) -> int | Reason:
        """Index of the recipe for these instructions, or why they cannot be moved."""
        if len(steps) and steps[-1].end < JUMP_SIZE and not steps[-1].ends:
            return Reason.TOO_SHORT
        key = (b"".join(step.code for step in steps), entry)
        found = self._known.get(key)
        if found is not None:
            return found
        recipe = relocate(steps, entry)
        if isinstance(recipe, Reason):
            return recipe
        self.recipes.append(recipe)
        self._known[key] = len(self.recipes) - 1
        return self._known[key]


def skip_endbr64(text: Text, start: Places) -> Places:
    """Where each function may be patched: behind `endbr64` if it begins with one, which indirect branches need to find."""
    first = text.data[start[:, None] + np.arange(len(ENDBR64))]
    begins = (first == np.frombuffer(ENDBR64, np.uint8)).all(axis=1)
    return start + np.where(begins, len(ENDBR64), 0)


def read_windows(
    text: Text, patch: Places, start: Places, end: Places, book: RecipeBook
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Recipe index and reason for each function; the index is −1 where the reason is not 0."""
    recipe = np.full(len(patch), -1, np.int32)
    reason = np.zeros(len(patch), np.uint8)
    code = text.data[patch[:, None] + np.arange(LONGEST_WINDOW)].tobytes()
    room = np.minimum(end - patch, LONGEST_WINDOW).tolist()
    entries = (start - patch).tolist()
    for row, (size, entry) in enumerate(zip(room, entries, strict=True)):
        at = row * LONGEST_WINDOW
        found = book.window(code[at : at + size], entry) if size > 0 else Reason.TOO_SHORT
        if isinstance(found, Reason):
            reason[row] = found
        else:
            recipe[row] = found
    return recipe, reason


def has_padding(text: Text, place: int, limit: int, wanted: int) -> bool:
    """Whether the ``wanted`` bytes from ``place`` on are padding: int3, nops, or zeros up to the next aligned function.

    ``limit`` is the first place behind that belongs to somebody.
    """
    if place + wanted > limit:
        return False
    gap = text.bytes_at(place, min(limit - place, 2 * _ALIGNMENT))
    if not any(gap[:wanted]):
        return not any(gap) and limit - place < _ALIGNMENT
    position = 0
    while position < wanted:
        size = _nop_size(gap[position:])
        if size == 0:
            return False
        position += size
    return True


def _nop_size(code: bytes) -> int:
    if code[:1] == bytes((_INT3,)):
        return 1
    prefixes = len(code) - len(code.lstrip(b"\x66\x2e"))
    rest = code[prefixes:]
    return next((prefixes + len(nop) for nop in _NOPS if rest.startswith(nop)), 0)
