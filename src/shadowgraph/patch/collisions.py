"""The second step of a plan: who jumps into the bytes that a function's jump would replace, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shadowgraph.image.functions import Source
from shadowgraph.image.reasons import PLANNER_FIRST, Reason
from shadowgraph.patch.cold import cold_rows
from shadowgraph.patch.decode import Kind, decode_steps, uses_red_zone
from shadowgraph.patch.draft import Draft, Rows
from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.jumps import JumpKind, Jumps
from shadowgraph.patch.loops import whole_loop
from shadowgraph.patch.owners import NOBODY
from shadowgraph.patch.sizes import JUMP_SIZE
from shadowgraph.patch.text import Marks, Places

__all__ = ["resolve_collisions"]

# What is marked for the search: bytes that would be overwritten, and entries.
_INNER, _ENTRY = 1, 2


def resolve_collisions(draft: Draft) -> None:
    """Take back what others jump into, turn loops at the entry into one displaced piece, set cold parts apart."""
    rows = draft.open
    nameless = np.flatnonzero((draft.functions.source == Source.UNWIND) & ~draft.not_chosen & ~draft.fixed)
    nameless = nameless[(draft.reason[nameless] == 0) | (draft.reason[nameless] >= PLANNER_FIRST)]
    marks, inner = draft.text.marks(), draft.text.marks()
    marks[draft.start[rows]] = marks[draft.patch[rows]] = marks[draft.start[nameless]] = _ENTRY
    for offset in range(1, JUMP_SIZE):
        inner[draft.patch[rows] + offset] = marks[draft.patch[rows] + offset] = _INNER
    found = draft.find(marks, _worth_decoding(draft, marks, nameless))
    draft.reason[cold_rows(draft, nameless, found)] = Reason.COLD_PART
    from_parts = _judge_jumps_to_entries(draft, found.take(marks[found.target] == _ENTRY))
    _judge_jumps_inside(draft, found.take(marks[found.target] == _INNER))
    _judge_references(draft, draft.led_to(inner))
    _settle_loops(draft, from_parts)


def _worth_decoding(draft: Draft, marks: Marks, nameless: Rows) -> Callable[[Jumps], npt.NDArray[np.bool_]]:
    """Of what goes to entries: jumps of the function itself or of cold parts, and all that goes to nameless ones."""
    is_nameless = np.zeros(len(draft.functions) + 1, np.bool_)
    is_nameless[nameless] = True

    def judge(found: Jumps) -> npt.NDArray[np.bool_]:
        target = draft.owners.rows_at(found.target)
        source, is_jump = draft.source_row(found), found.kind <= JumpKind.CONDITIONAL
        own = is_jump & ((source == target) | ((source == NOBODY) & (found.owner != NOBODY)))
        worth: npt.NDArray[np.bool_] = own | (marks[found.target] == _INNER) | is_nameless[target]
        return worth

    return judge


def _judge_jumps_to_entries(draft: Draft, found: Jumps) -> Rows:
    """Mark the functions that jump to their own entry from behind their displaced instructions (SELF_JUMP).

    A jump from a cold part is the function's own if the function jumps into that part; the rows of such are returned.
    """
    found = found.take((found.owner != NOBODY) & (found.kind <= JumpKind.CONDITIONAL))
    row, source = draft.owners.rows_at(found.target), draft.source_row(found)
    own = (row != NOBODY) & (row == source) & (found.end > draft.patch[row] + draft.displaced(row))
    own &= ~draft.fixed[row]
    draft.flags[row[own]] |= np.uint16(PlanFlag.SELF_JUMP)
    from_part = np.flatnonzero((row != NOBODY) & (source == NOBODY))
    pairs = zip(row[from_part].tolist(), found.owner[from_part].tolist(), strict=True)
    return np.array(sorted({row for row, part in pairs if _jumps_into(draft, row, part)}), np.int64)


def _jumps_into(draft: Draft, row: int, part: int) -> bool:
    """Whether a function jumps into a piece of code, given as an index among the owners."""
    code, patch = draft.code_of(row), int(draft.patch[row])
    first, end = int(draft.owners.start[part]) - patch, int(draft.owners.end[part]) - patch
    steps = decode_steps(code, len(code)) or []
    return any(step.kind in (Kind.JUMP, Kind.CONDITIONAL) and first <= step.target < end for step in steps)


def _judge_jumps_inside(draft: Draft, found: Jumps) -> None:
    """Shorten what may be overwritten of each row that is jumped into, and say so as its reason.

    What is displaced together with its target goes to the copy (relocate.py) and does not count.
    """
    rows = draft.open
    index = draft.row_within(rows, np.full(len(rows), JUMP_SIZE), found.target)
    found, row = found.take(index != NOBODY), rows[index[index != NOBODY]]
    own = (draft.source_row(found) == row) & (found.kind <= JumpKind.CONDITIONAL)
    displaced_too = own & (found.source >= draft.patch[row]) & (found.end <= draft.patch[row] + draft.displaced(row))
    # Between functions data cannot be told from code: what seems to jump into an instruction from there is data.
    is_data = (found.owner == NOBODY) & ~_is_boundary(draft, row, found.target)
    counts = ~displaced_too & ~is_data
    draft.jumps_inside = found.take(counts)
    _shorten(draft, row[counts], found.target[counts])


def _judge_references(draft: Draft, places: Places) -> None:
    """The same for what tables lead to: that is always the start of an instruction."""
    rows = np.flatnonzero(((draft.reason == 0) | (draft.reason == Reason.JUMPED_INTO)) & ~draft.fixed)
    index = draft.row_within(rows, np.full(len(rows), JUMP_SIZE), places)
    places, row = places[index != NOBODY], rows[index[index != NOBODY]]
    real = _is_boundary(draft, row, places)
    draft.referenced.update(row[real].tolist())
    _shorten(draft, row[real], places[real])


def _shorten(draft: Draft, rows: Rows, targets: Places) -> None:
    np.minimum.at(draft.free, rows, targets - draft.patch[rows])
    draft.reason[rows] = Reason.JUMPED_INTO


def _is_boundary(draft: Draft, rows: Rows, places: Places) -> npt.NDArray[np.bool_]:
    """Whether an instruction that the row displaces begins at each place."""
    offsets = (places - draft.patch[rows]).tolist()
    recipes = draft.recipe[rows].tolist()
    known = [draft.book.recipes[r].has_instruction_at(offset) for r, offset in zip(recipes, offsets, strict=True)]
    return np.array(known, np.bool_)


# --- loops at the entry ---


def _settle_loops(draft: Draft, from_parts: Rows) -> None:
    """Displace loops at the entry whole where possible; trust the others if the unwind table vouches for them."""
    looping = (draft.flags & PlanFlag.SELF_JUMP) != 0
    rows = np.flatnonzero((((draft.reason == 0) & looping) | (draft.reason == Reason.JUMPED_INTO)) & ~draft.fixed)
    rows = rows[np.argsort(draft.patch[rows], kind="stable")]
    recipes = np.array([_whole_loop_recipe(draft, row) for row in rows.tolist()], np.int64)
    rows, recipes = rows[recipes >= 0], recipes[recipes >= 0]
    sizes = draft.book.sizes()[recipes]
    entered = _is_entered(draft, rows, sizes) | draft.is_led(draft.patch[rows], sizes)
    rows, recipes = rows[~entered], recipes[~entered]
    draft.recipe[rows] = recipes
    draft.reason[rows] = 0
    draft.flags[rows] = (draft.flags[rows] & ~np.uint16(PlanFlag.SELF_JUMP)) | np.uint16(PlanFlag.WHOLE_LOOP)
    draft.flags[from_parts[~draft.fixed[from_parts]]] |= np.uint16(PlanFlag.SELF_JUMP)
    for row in np.flatnonzero(((draft.flags & PlanFlag.SELF_JUMP) != 0) & ~draft.fixed).tolist():
        if not draft.functions.has_unwind[row] or uses_red_zone(draft.code_of(row)):
            draft.free[row] = 0
            if draft.reason[row] == 0:
                draft.reason[row] = Reason.JUMPED_INTO


def _whole_loop_recipe(draft: Draft, row: int) -> int:
    window = int(draft.displaced(np.array([row]))[0])
    steps = whole_loop(draft.code_of(row), draft.entry(row), window)
    recipe = draft.book.of(steps, draft.entry(row)) if steps else Reason.NOT_RELOCATABLE
    return -1 if isinstance(recipe, Reason) else recipe


def _is_entered(draft: Draft, rows: Rows, sizes: Places) -> npt.NDArray[np.bool_]:
    """Whether anything from outside of the first ``sizes`` bytes of each row leads to those behind the first one."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    marks = draft.text.marks()
    for patch, size in zip(draft.patch[rows].tolist(), sizes.tolist(), strict=True):
        marks[patch + 1 : patch + size] = _INNER
    found = draft.find(marks)
    index = draft.row_within(rows, sizes, found.target)
    found, index = found.take(index != NOBODY), index[index != NOBODY]
    first = draft.patch[rows][index]
    inside = (found.source >= first) & (found.end <= first + sizes[index]) & (found.kind <= JumpKind.CONDITIONAL)
    referenced = draft.row_within(rows, sizes, draft.led_to(marks))
    return np.isin(np.arange(len(rows)), np.concatenate([index[~inside], referenced]))
