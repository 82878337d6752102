"""Which functions of an image can be hooked by a jump of five bytes, and what that jump displaces.

A function is patched at its first byte, or behind `endbr64`, so that indirect branch tracking still finds one. The jump
replaces five bytes; displaced are the whole instructions that cover them. Refused, each with a reason that a user can read:

- what the function table refuses already;
- code that does not decode, or holds an instruction that cannot run elsewhere (see relocate.py);
- functions shorter than the jump, unless they end in a ret or jmp and padding that belongs to nobody follows;
- functions within whose first instructions another function begins;
- functions whose bytes 1 to 4 behind the patch address somebody jumps to or takes the address of (see jumps.py). Bytes behind
  the fifth stay as they are and may be jumped to.

Jumps to the patch address itself are welcome: from another function such a jump is a tail call, and is traced as one. From
within the function it is a loop or a tail call to itself, which machine code does not tell apart (see loops.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.image.reasons import Reason
from shadowgraph.patch import jumps
from shadowgraph.patch.jumps import Jumps
from shadowgraph.patch.relocate import JUMP_SIZE, Recipe
from shadowgraph.patch.text import Text
from shadowgraph.patch.windows import RecipeBook, has_padding, read_windows, skip_endbr64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shadowgraph.image.functions import FunctionTable
    from shadowgraph.image.image import Image

__all__ = ["ModulePlan", "PlanFlag", "plan_module"]

_INNER, _ENTRY = 1, 2


class PlanFlag(IntFlag):
    """What the patcher of a running program should know about a function.

    MULTI_INSTRUCTION  a thread may stand between the overwritten instructions, and must then be moved (pc map)
    PADDING            the function is shorter than five bytes: padding behind it is overwritten too
    EMULATED_CALL      a displaced call pushes its return address: not to be used where a hardware shadow stack is on
    SELF_JUMP          it jumps to its own entry at the entry's stack depth; each such jump is traced as a tail call
    BEHIND_ENDBR64     the patch address is four bytes behind the function's start
    """

    NONE = 0
    MULTI_INSTRUCTION = 1
    PADDING = 2
    EMULATED_CALL = 4
    SELF_JUMP = 8
    BEHIND_ENDBR64 = 16


@dataclass(frozen=True)
class ModulePlan:
    """One row for each row of the function table, whether it was asked for or not.

    ``patch_address``  uint64, image address of the five bytes to be replaced
    ``displaced``      uint16, bytes of original code that run in the thunk; 0 if not hookable
    ``hookable``       bool
    ``reason``         uint8, :class:`Reason`; 0 if hookable, NOT_CHOSEN for rows outside of ``only``
    ``flags``          uint8, :class:`PlanFlag`
    ``original``       uint8[n, 5], the bytes the file has at the patch address
    ``recipe``         int32, index into ``recipes``, −1 if not hookable
    """

    path: str
    patch_address: npt.NDArray[np.uint64]
    displaced: npt.NDArray[np.uint16]
    hookable: npt.NDArray[np.bool_]
    reason: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    original: npt.NDArray[np.uint8]
    recipe: npt.NDArray[np.int32]
    recipes: list[Recipe]

    @property
    def window(self) -> npt.NDArray[np.uint16]:
        """uint16[n]: from the patch address, the bytes that are overwritten or displaced, whichever is more; 0 if not hookable."""
        return np.where(self.hookable, np.maximum(self.displaced, JUMP_SIZE), 0).astype(np.uint16)


def plan_module(
    image: Image, functions: FunctionTable, only: Sequence[int] | npt.NDArray[np.integer] | None = None
) -> ModulePlan:
    """Plan the functions of an image, or the rows ``only`` of them (indexes). The whole text is searched for jumps either way."""
    planner = _Planner(image, functions, only)
    planner.read_first_instructions()
    planner.look_for_jumps()
    return planner.result()


class _Planner:
    def __init__(
        self, image: Image, functions: FunctionTable, only: Sequence[int] | npt.NDArray[np.integer] | None
    ) -> None:
        self.image = image
        self.text = Text(image)
        self.functions = functions
        count = len(functions)
        self.start = self.text.places(functions.start)
        self.end = self.start + functions.size.astype(np.int64)
        self.reason = np.where(self.start < 0, np.uint8(Reason.NOT_CODE), np.uint8(0))
        self.reason = np.where(functions.refused != 0, functions.refused, self.reason).astype(np.uint8)
        if only is not None:
            chosen = np.zeros(count, np.bool_)
            chosen[np.asarray(only, np.int64)] = True
            self.reason[~chosen] = Reason.NOT_CHOSEN
        self.patch = np.where(self.start >= 0, skip_endbr64(self.text, np.maximum(self.start, 0)), -1)
        self.flags = np.where(self.patch != self.start, np.uint8(PlanFlag.BEHIND_ENDBR64), np.uint8(0))
        self.recipe = np.full(count, -1, np.int32)
        self.book = RecipeBook()
        # Functions and the pieces left out of the table, as bounds for decoding and as owners of bytes.
        part_starts = self.text.places(np.array([part.start for part in functions.parts], np.uint64))
        part_sizes = np.array([part.size for part in functions.parts], np.int64)
        starts = np.concatenate([self.start, part_starts])
        ends = np.concatenate([self.end, part_starts + part_sizes])
        order = np.argsort(starts, kind="stable")
        order = order[starts[order] >= 0]
        self.owner_start, self.owner_end = starts[order], ends[order]
        self.owner_row = np.where(order < count, order, -1)

    @property
    def open(self) -> npt.NDArray[np.int64]:
        """Rows that nothing speaks against so far."""
        return np.flatnonzero(self.reason == 0)

    def read_first_instructions(self) -> None:
        rows = self.open
        end = np.minimum(self.end[rows], self.start[rows] + self.text.room(self.start[rows]))
        self.recipe[rows], self.reason[rows] = read_windows(
            self.text, self.patch[rows], self.start[rows], end, self.book
        )
        rows = self.open
        displaced = self.displaced_of(rows)
        following = self._next_owner(self.start[rows])
        self.reason[rows[following < self.patch[rows] + displaced]] = Reason.OVERLAPS
        for row, size, limit in zip(rows.tolist(), displaced.tolist(), following.tolist(), strict=True):
            if size < JUMP_SIZE and self.reason[row] == 0:
                self._claim_padding(row, size, limit)

    def _claim_padding(self, row: int, size: int, limit: int) -> None:
        place = int(self.patch[row]) + size
        limit = min(limit, place + int(self.text.room(np.array([place]))[0]))
        if has_padding(self.text, place, limit, JUMP_SIZE - size):
            self.flags[row] |= np.uint8(PlanFlag.PADDING)
        else:
            self.reason[row] = Reason.TOO_SHORT

    def displaced_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        sizes = np.array([recipe.displaced for recipe in self.book.recipes] + [0], np.int64)
        return sizes[self.recipe[rows]]

    def _next_owner(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The first start of anything behind each place."""
        starts = np.append(self.owner_start, np.iinfo(np.int64).max)
        return starts[np.searchsorted(self.owner_start, places, side="right")]

    def _owner(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Index among the owners of the innermost that holds each place, −1 where nobody does."""
        index = np.searchsorted(self.owner_start, places, side="right") - 1
        inside = (index >= 0) & (places < self.owner_end[np.maximum(index, 0)])
        return np.where(inside, index, -1)

    def look_for_jumps(self) -> None:
        marked = np.zeros(len(self.text.data), np.uint8)
        rows = self.open
        marked[self.start[rows]] = _ENTRY
        marked[self.patch[rows]] = _ENTRY
        for offset in range(1, JUMP_SIZE):
            marked[self.patch[rows] + offset] = _INNER
        candidates = jumps.find_jumps(self.text, marked)
        owner = self._owner(candidates.source)
        to_entry = marked[candidates.target] == _ENTRY
        own_row = np.where(owner >= 0, self.owner_row[owner], -1)
        own_entry = to_entry & ~candidates.returns & (own_row >= 0)
        own_entry &= (self.start[own_row] == candidates.target) | (self.patch[own_row] == candidates.target)
        worth = ~to_entry | own_entry
        candidates, owner, own_entry = candidates.chosen(worth), owner[worth], own_entry[worth]
        start = np.where(owner >= 0, self.owner_start[owner], -1)
        confirmed = jumps.confirm(self.text, candidates, start, self.owner_end[owner])
        rows = np.where(own_entry, own_row[worth], self._rows_at(candidates.target))
        self._judge(candidates.chosen(confirmed), rows[confirmed], own_entry[confirmed])
        referenced = jumps.find_references(
            self.image, self.text, np.where(marked == _INNER, marked, 0).astype(np.uint8)
        )
        self.reason[self._rows_at(referenced)] = Reason.JUMPED_INTO

    def _rows_at(self, targets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The row in whose overwritten bytes each target lies."""
        rows = self.open
        rows = rows[np.argsort(self.patch[rows], kind="stable")]
        at = np.searchsorted(self.patch[rows], targets, side="right") - 1
        return rows[at]

    def _judge(self, found: Jumps, rows: npt.NDArray[np.int64], own_entry: npt.NDArray[np.bool_]) -> None:
        """Refuse rows that are jumped into, unless the jump is displaced itself and goes to another displaced instruction."""
        displaced = self.displaced_of(rows)
        within = (found.source >= self.patch[rows]) & (found.end <= self.patch[rows] + displaced) & ~found.returns
        refused = rows[~within & ~own_entry]
        self.flags[rows[~within & own_entry]] |= np.uint8(PlanFlag.SELF_JUMP)
        self.reason[refused] = Reason.JUMPED_INTO

    def result(self) -> ModulePlan:
        hookable = self.reason == 0
        recipes = self.book.recipes
        self.recipe[~hookable] = -1
        multiple = [any(0 < row.original < JUMP_SIZE for row in recipe.rows) for recipe in recipes] + [False]
        emulated = [recipe.emulates_call for recipe in recipes] + [False]
        self.flags |= np.where(np.array(multiple)[self.recipe], np.uint8(PlanFlag.MULTI_INSTRUCTION), np.uint8(0))
        self.flags |= np.where(np.array(emulated)[self.recipe], np.uint8(PlanFlag.EMULATED_CALL), np.uint8(0))
        place = np.maximum(self.patch, 0)
        return ModulePlan(
            path=self.image.path,
            patch_address=np.where(self.patch >= 0, place + self.text.base, self.functions.start).astype(np.uint64),
            displaced=self.displaced_of(np.arange(len(self.recipe))).astype(np.uint16),
            hookable=hookable,
            reason=self.reason,
            flags=np.where(hookable, self.flags, 0).astype(np.uint8),
            original=self.text.data[place[:, None] + np.arange(JUMP_SIZE)],
            recipe=self.recipe,
            recipes=recipes,
        )
