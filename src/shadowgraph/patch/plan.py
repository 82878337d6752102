"""Which functions of an image can be hooked by a jump of five bytes, and what that jump displaces.

A function is patched at its first byte, or behind `endbr64`, so that indirect branch tracking still finds one. The jump
replaces five bytes; displaced are the whole instructions that cover them. Refused, each with a reason that a user can
read:

- what the function table refuses, and cold parts that only the whole text gives away (cold.py);
- code that does not decode, or holds an instruction that cannot run elsewhere (relocate.py);
- functions shorter than the jump, unless they end in a ret or jmp and padding that belongs to nobody follows;
- functions within whose first instructions another function begins;
- functions whose bytes 1 to 4 behind the patch address somebody jumps to or takes the address of (jumps.py,
  references.py). The bytes from the fifth on stay as they are, so they may be jumped to.

Jumps to the patch address itself are welcome: from another function such a jump is a tail call, and is traced as one. A
function's jumps back to its own entry, or among its own first instructions, are loops: see loops.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.image.functions import Source
from shadowgraph.image.reasons import PLANNER_FIRST, Reason
from shadowgraph.patch.cold import cold_rows
from shadowgraph.patch.jumps import JumpKind, Jumps, confirmed, find_jumps
from shadowgraph.patch.loops import whole_loop
from shadowgraph.patch.owners import NOBODY, Owners
from shadowgraph.patch.references import addresses_in_data, targets_of_tables
from shadowgraph.patch.relocate import JUMP_SIZE, Recipe
from shadowgraph.patch.text import Marks, Places, Text
from shadowgraph.patch.windows import RecipeBook, has_padding, read_windows, skip_endbr64

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shadowgraph.image.functions import FunctionTable
    from shadowgraph.image.image import Image

__all__ = ["ModulePlan", "PlanFlag", "plan_module"]

_Rows = npt.NDArray[np.int64]

# What is marked for the search: bytes that will be overwritten, and entries, of which jumps (or everything) are wanted.
_INNER, _ENTRY = 1, 2
_MIDDLE = 1


class PlanFlag(IntFlag):
    """What the patcher of a running program should know about a function.

    MULTI_INSTRUCTION  a thread may stand between the overwritten instructions, and must then be moved (pc map)
    PADDING            the function is shorter than five bytes: padding behind it is overwritten too
    EMULATED_CALL      a displaced call pushes its return address: not to be used where a hardware shadow stack is on
    SELF_JUMP          it jumps to its own entry at the entry's stack depth; each such jump is traced as a tail call
    BEHIND_ENDBR64     the patch address is four bytes behind the function's start
    WHOLE_LOOP         a loop at the entry is displaced as a whole: a thread anywhere in the displaced bytes must be moved,
                       or it would jump back into the overwritten ones
    """

    NONE = 0
    MULTI_INSTRUCTION = 1
    PADDING = 2
    EMULATED_CALL = 4
    SELF_JUMP = 8
    BEHIND_ENDBR64 = 16
    WHOLE_LOOP = 32


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
        """uint16[n]: bytes from the patch address that are overwritten or displaced; 0 if not hookable."""
        return np.where(self.hookable, np.maximum(self.displaced, JUMP_SIZE), 0).astype(np.uint16)


def plan_module(
    image: Image, functions: FunctionTable, only: Sequence[int] | npt.NDArray[np.integer] | None = None
) -> ModulePlan:
    """Plan the functions of an image, or the rows ``only`` of them. The whole text is searched for jumps either way."""
    planner = _Planner(image, functions, only)
    planner.read_first_instructions()
    planner.look_for_jumps()
    return planner.result()


class _Planner:
    def __init__(
        self, image: Image, functions: FunctionTable, only: Sequence[int] | npt.NDArray[np.integer] | None
    ) -> None:
        self.image = image
        self.functions = functions
        self.text = Text(image)
        self.owners = Owners(self.text, functions)
        self.start = self.text.places(functions.start)
        self.end = self.start + functions.size.astype(np.int64)
        self.end = np.minimum(self.end, self.start + self.text.room(self.start))
        self.patch = np.where(self.start >= 0, skip_endbr64(self.text, np.maximum(self.start, 0)), -1)
        self.reason = np.where(self.start < 0, np.uint8(Reason.NOT_CODE), np.uint8(0))
        self.reason = np.where(functions.refused != 0, functions.refused, self.reason).astype(np.uint8)
        if only is not None:
            chosen = np.zeros(len(functions), np.bool_)
            chosen[np.asarray(only, np.int64)] = True
            self.reason[~chosen] = Reason.NOT_CHOSEN
        self.flags = np.where(self.patch != self.start, np.uint8(PlanFlag.BEHIND_ENDBR64), np.uint8(0))
        self.recipe = np.full(len(functions), -1, np.int32)
        self.book = RecipeBook()

    @property
    def open(self) -> _Rows:
        """Rows that nothing speaks against so far."""
        return np.flatnonzero(self.reason == 0)

    def displaced(self, rows: _Rows) -> Places:
        """How many bytes of each row's code are displaced."""
        sizes = np.array([recipe.displaced for recipe in self.book.recipes] + [0], np.int64)
        return sizes[self.recipe[rows]]

    # --- one function at a time ---

    def read_first_instructions(self) -> None:
        """Recipes for the windows of all functions, as if nobody jumped into them."""
        rows = self.open
        patch, start = self.patch[rows], self.start[rows]
        self.recipe[rows], self.reason[rows] = read_windows(self.text, patch, start, self.end[rows], self.book)
        rows = self.open
        displaced = self.displaced(rows)
        following = self.owners.next_start(self.start[rows])
        overlapped = following < self.patch[rows] + displaced
        self.reason[rows[overlapped]] = Reason.OVERLAPS
        short = ~overlapped & (displaced < JUMP_SIZE)
        for row, size, limit in zip(rows[short].tolist(), displaced[short], following[short], strict=True):
            place = int(self.patch[row] + size)
            limit = min(limit, place + int(self.text.room(np.array([place]))[0]))
            if has_padding(self.text, place, limit, JUMP_SIZE - size):
                self.flags[row] |= np.uint8(PlanFlag.PADDING)
            else:
                self.reason[row] = Reason.TOO_SHORT

    # --- all functions together ---

    def look_for_jumps(self) -> None:
        """Take back what others jump into; turn loops at the entry into one displaced piece."""
        rows = self.open
        nameless = np.flatnonzero(
            (self.functions.source == Source.UNWIND) & ((self.reason == 0) | (self.reason >= PLANNER_FIRST))
        )
        nameless = nameless[self.reason[nameless] != Reason.NOT_CHOSEN]
        marks = self.text.marks()
        marks[self.start[rows]] = marks[self.patch[rows]] = marks[self.start[nameless]] = _ENTRY
        inner = self.text.marks()
        for offset in range(1, JUMP_SIZE):
            inner[self.patch[rows] + offset] = marks[self.patch[rows] + offset] = _INNER
        found = self._find(marks, self._is_worth_decoding(marks, nameless))
        self.reason[cold_rows(self.image, self.text, self.owners, nameless, found)] = Reason.COLD_PART
        self._judge(found, marks)
        referenced = self._references(inner)
        row = self._patched_row(referenced)
        row = row[(row != NOBODY) & self._is_boundary(row, referenced)]
        self.reason[row] = Reason.JUMPED_INTO

    def _find(self, marks: Marks, wanted: Callable[[Jumps], npt.NDArray[np.bool_]] | None = None) -> Jumps:
        candidates = find_jumps(self.text, self.owners, marks)
        if wanted is not None:
            candidates = candidates.take(wanted(candidates))
        return candidates.take(confirmed(self.text, self.owners, candidates))

    def _references(self, marks: Marks) -> Places:
        in_data = addresses_in_data(self.image, self.text, marks, self.owners)
        return np.concatenate([in_data, targets_of_tables(self.image, self.text, self.owners, marks)])

    def _is_worth_decoding(self, marks: Marks, nameless: _Rows) -> Callable[[Jumps], npt.NDArray[np.bool_]]:
        """Of what goes to entries: a function's own jumps, and everything that goes to nameless ones."""
        is_nameless = np.zeros(len(self.functions) + 1, np.bool_)
        is_nameless[nameless] = True

        def judge(found: Jumps) -> npt.NDArray[np.bool_]:
            target = self.owners.rows_at(found.target)
            own = (found.kind <= JumpKind.CONDITIONAL) & (self._source_row(found) == target)
            return (marks[found.target] == _INNER) | own | is_nameless[target]

        return judge

    def _source_row(self, found: Jumps) -> _Rows:
        return np.where(found.owner == NOBODY, NOBODY, self.owners.row[found.owner])

    def _patched_row(self, places: Places) -> _Rows:
        """The open row among whose overwritten bytes each place is, behind the first; NOBODY if there is none."""
        rows = self.open
        if not len(rows):
            return np.full(len(places), NOBODY)
        row = rows[np.searchsorted(self.patch[rows], places, side="right") - 1]
        offset = places - self.patch[row]
        return np.where((offset > 0) & (offset < JUMP_SIZE), row, NOBODY)

    def _is_boundary(self, rows: _Rows, places: Places) -> npt.NDArray[np.bool_]:
        """Whether an instruction that the row displaces begins at each place: no table names anything else."""
        known = [
            row != NOBODY and self.book.recipes[self.recipe[row]].has_instruction_at(place - int(self.patch[row]))
            for row, place in zip(rows.tolist(), places.tolist(), strict=True)
        ]
        return np.array(known, np.bool_)

    def _judge(self, found: Jumps, marks: Marks) -> None:
        """Decide about each row that is jumped into, or jumps to its own entry."""
        source_row = self._source_row(found)
        to_entry = marks[found.target] == _ENTRY
        row = np.where(to_entry, source_row, self._patched_row(found.target))
        own = (source_row == row) & (found.kind <= JumpKind.CONDITIONAL)
        keep = (row != NOBODY) & np.where(to_entry, own & (self.owners.rows_at(found.target) == row), True)
        keep &= self.reason[row] == 0
        # Between functions data cannot be told from code: what seems to jump into an instruction there is data.
        keep &= to_entry | (found.owner != NOBODY) | self._is_boundary(row, found.target)
        # What is displaced together with its target goes to the copy (relocate.py).
        window_end = self.patch[row] + self.displaced(row)
        keep &= ~(own & (found.source >= self.patch[row]) & (found.end <= window_end))
        row, own, to_entry = row[keep], own[keep], to_entry[keep]
        self.reason[row[~own]] = Reason.JUMPED_INTO
        loops = np.unique(row[own])
        loops = loops[self.reason[loops] == 0]
        moved = self._move_loops(loops)
        stuck_inside = np.isin(loops, row[own & ~to_entry]) & ~moved
        self.reason[loops[stuck_inside]] = Reason.JUMPED_INTO
        trusted = self.functions.has_unwind[loops]
        self.reason[loops[~moved & ~stuck_inside & ~trusted]] = Reason.JUMPED_INTO
        self.flags[loops[~moved & ~stuck_inside & trusted]] |= np.uint8(PlanFlag.SELF_JUMP)

    def _move_loops(self, rows: _Rows) -> npt.NDArray[np.bool_]:
        """Give each row whose loop at the entry can be moved as a whole its recipe; True where that was possible."""
        moved = np.zeros(len(rows), np.bool_)
        recipes = np.full(len(rows), -1, np.int64)
        for index, row in enumerate(rows.tolist()):
            end = min(int(self.end[row]), int(self.owners.next_start(self.start[row : row + 1])[0]))
            entry, window = int(self.start[row] - self.patch[row]), int(self.displaced(rows[index : index + 1])[0])
            steps = whole_loop(self.text, int(self.patch[row]), end, entry, window)
            recipe = self.book.of(steps, entry) if steps else Reason.NOT_RELOCATABLE
            if not isinstance(recipe, Reason):
                recipes[index], moved[index] = recipe, True
        moved &= ~self._is_entered_behind(rows, recipes)
        self.recipe[rows[moved]] = recipes[moved]
        self.flags[rows[moved]] |= np.uint8(PlanFlag.WHOLE_LOOP)
        return moved

    def _is_entered_behind(self, rows: _Rows, recipes: _Rows) -> npt.NDArray[np.bool_]:
        """Whether anything outside of the displaced bytes leads to those behind the first five."""
        marks = self.text.marks()
        end = self.patch[rows].copy()
        for index, recipe in enumerate(recipes.tolist()):
            if recipe >= 0:
                end[index] += self.book.recipes[recipe].displaced
                marks[self.patch[rows[index]] + JUMP_SIZE : end[index]] = _MIDDLE
        if not marks.any():
            return np.zeros(len(rows), np.bool_)
        found = self._find(marks)
        index = np.searchsorted(self.patch[rows], found.target, side="right") - 1
        inside = (found.source >= self.patch[rows][index]) & (found.end <= end[index])
        inside &= found.kind <= JumpKind.CONDITIONAL
        references = self._references(marks)
        entered = np.concatenate([index[~inside], np.searchsorted(self.patch[rows], references, side="right") - 1])
        return np.isin(np.arange(len(rows)), entered)

    def result(self) -> ModulePlan:
        """The plan as it stands."""
        hookable = self.reason == 0
        recipes = self.book.recipes
        self.recipe[~hookable] = -1
        self.flags |= _flags_of_recipes(recipes)[self.recipe]
        place = np.maximum(self.patch, 0)
        return ModulePlan(
            path=self.image.path,
            patch_address=np.where(self.patch >= 0, place + self.text.base, self.functions.start).astype(np.uint64),
            displaced=self.displaced(np.arange(len(self.recipe))).astype(np.uint16),
            hookable=hookable,
            reason=self.reason,
            flags=np.where(hookable, self.flags, 0).astype(np.uint8),
            original=self.text.data[place[:, None] + np.arange(JUMP_SIZE)],
            recipe=self.recipe,
            recipes=recipes,
        )


def _flags_of_recipes(recipes: list[Recipe]) -> npt.NDArray[np.uint8]:
    flags = np.zeros(len(recipes) + 1, np.uint8)
    for index, recipe in enumerate(recipes):
        if any(row.starts and 0 < row.original < JUMP_SIZE for row in recipe.rows):
            flags[index] |= np.uint8(PlanFlag.MULTI_INSTRUCTION)
        if recipe.emulates_call:
            flags[index] |= np.uint8(PlanFlag.EMULATED_CALL)
    return flags
