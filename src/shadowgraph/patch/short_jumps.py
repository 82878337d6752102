"""The last step of a plan: functions with room for two bytes, not for five.

Where only the first two to four bytes may be overwritten (the function ends there, or is jumped into behind them, as
memcpy + 3 is), a jump of two bytes reaches a **hole** within 127 bytes, and the hole holds the real jump of five.
It is also taken where it leaves a call in its place that a longer jump would displace (relocate.py). A hole is

- padding between functions that nobody jumps into, behind code that does not run on into it; or
- lent: the five bytes behind the jump of a neighbour, which then displaces at least ten bytes. Nobody executes
  displaced bytes, so they are free while the neighbour is hooked. The neighbour has to be hooked too, silently if it
  was not asked for (:meth:`ModulePlan.with_lenders`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.decode import Kind, decode_steps
from shadowgraph.patch.draft import Draft, Rows
from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.jumps import JumpKind, Jumps
from shadowgraph.patch.owners import NOBODY
from shadowgraph.patch.padding import padding_size
from shadowgraph.patch.recipe import CallForm
from shadowgraph.patch.sizes import JUMP_SIZE, SHORT_JUMP_SIZE

__all__ = ["use_short_jumps"]

_LEAST, _MOST = -128, 127
_LENT = 2 * JUMP_SIZE
_MOST_LENDERS = 8


@dataclass(frozen=True, slots=True)
class _Hole:
    """Five bytes at ``place``; ``lender`` is the row whose displaced bytes they are, with ``recipe``, or NOBODY."""

    place: int
    lender: int
    recipe: int


def use_short_jumps(draft: Draft) -> None:
    """Make hookable what two bytes suffice for and a hole is found for."""
    tight = np.isin(draft.reason, (Reason.TOO_SHORT, Reason.JUMPED_INTO, Reason.OVERLAPS))
    pushing = (draft.reason == 0) & _pushes_calls(draft)
    rows = np.flatnonzero((tight | pushing) & ~draft.fixed & (draft.free >= SHORT_JUMP_SIZE))
    recipes = {row: recipe for row in rows.tolist() if (recipe := _recipe(draft, row)) >= 0}
    recipes = {row: recipe for row, recipe in recipes.items() if not (pushing[row] and _pushes(draft, recipe))}
    if not recipes:
        return
    padding = _Padding(draft)
    lenders = _possible_lenders(draft)
    offers = {row: [*padding.near(row), *(() if pushing[row] else _lent_near(draft, lenders, row))] for row in recipes}
    _leave_out_entered(draft, offers)
    taken = draft.text.marks()
    for place in draft.hole[draft.hole >= 0].tolist():
        taken[place : place + JUMP_SIZE] = 1
    for row in sorted(offers, key=lambda row: len(offers[row])):
        hole = next((hole for hole in offers[row] if not taken[hole.place : hole.place + JUMP_SIZE].any()), None)
        if hole is not None:
            taken[hole.place : hole.place + JUMP_SIZE] = 1
            _assign(draft, row, recipes[row], hole)


def _pushes_calls(draft: Draft) -> npt.NDArray[np.bool_]:
    """Which rows displace a call that they can only push for."""
    pushes = np.array([recipe.call == CallForm.PUSHED for recipe in draft.book.recipes] + [False], np.bool_)
    return pushes[draft.recipe]


def _pushes(draft: Draft, recipe: int) -> bool:
    return draft.book.recipes[recipe].call == CallForm.PUSHED


def _recipe(draft: Draft, row: int) -> int:
    steps = decode_steps(draft.code_of(row), SHORT_JUMP_SIZE)
    if not steps or steps[-1].end < SHORT_JUMP_SIZE:
        return -1
    recipe = draft.book.of(steps, draft.entry(row), SHORT_JUMP_SIZE)
    return -1 if isinstance(recipe, Reason) or _is_led(draft, row, recipe) else recipe


def _is_led(draft: Draft, row: int, recipe: int) -> bool:
    size = draft.book.sizes()[[recipe]]
    return bool(draft.is_led(draft.patch[row : row + 1], size)[0])


def _assign(draft: Draft, row: int, recipe: int, hole: _Hole) -> None:
    draft.reason[row] = 0
    draft.recipe[row] = recipe
    draft.hole[row] = hole.place
    draft.lender[row] = hole.lender
    draft.flags[row] = (draft.flags[row] & ~np.uint16(PlanFlag.PADDING)) | np.uint16(PlanFlag.SHORT_JUMP)
    if hole.lender != NOBODY:
        draft.reason[hole.lender] = 0
        draft.recipe[hole.lender] = hole.recipe
        draft.flags[hole.lender] |= np.uint16(PlanFlag.LENDS)


# --- padding ---


class _Padding:
    """The gaps between owned pieces of code, as far as they are padding; found when asked for."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        owners = draft.owners
        reach = np.maximum.accumulate(owners.end) if len(owners.end) else owners.end
        following = np.append(owners.start[1:], 0)
        room = draft.text.room(reach - 1) - 1
        limit = np.where(following > 0, np.minimum(following, reach + room), reach + room)
        wide = np.flatnonzero(limit - reach >= JUMP_SIZE)
        self._first, self._limit = reach[wide].tolist(), limit[wide].tolist()
        self._before = wide.tolist()

    def near(self, row: int) -> Iterator[_Hole]:
        """Holes in padding that a short jump at the row's patch address reaches, one for each gap."""
        origin = int(self._draft.patch[row]) + SHORT_JUMP_SIZE
        index = bisect_left(self._limit, origin + _LEAST + JUMP_SIZE)
        while index < len(self._first) and self._first[index] <= origin + _MOST:
            first, limit = self._first[index], self._limit[index]
            size = padding_size(self._draft.text.bytes_at(first, min(limit - first, 2 * -_LEAST)))
            place = max(first + self._claimed(self._before[index], first), origin + _LEAST)
            if place <= origin + _MOST and place + JUMP_SIZE <= first + size and self._is_behind_an_end(index):
                yield _Hole(place, NOBODY, -1)
            index += 1

    def _claimed(self, owner: int, first: int) -> int:
        """Bytes at the start of a gap that the jump of a short function before it may overwrite."""
        row = int(self._draft.owners.row[owner])
        return 0 if row == NOBODY else max(int(self._draft.patch[row]) + JUMP_SIZE - first, 0)

    def _is_behind_an_end(self, index: int) -> bool:
        """Whether the code before a gap ends with a jump, a return, or a call of what does not return."""
        owners = self._draft.owners
        owner = self._before[index]
        start, end = int(owners.start[owner]), int(owners.end[owner])
        steps = decode_steps(self._draft.text.bytes_at(start, end - start), end - start)
        if not steps or end != self._first[index]:
            return False
        return steps[-1].ends or steps[-1].kind in (Kind.CALL, Kind.CALL_INDIRECT)


# --- lenders ---


def _possible_lenders(draft: Draft) -> Rows:
    """Rows that might displace more than they do, by patch address."""
    unusable = PlanFlag.WHOLE_LOOP | PlanFlag.PADDING
    possible = ~draft.fixed & ((draft.reason == 0) & (draft.flags & np.uint16(unusable) == 0)) | (
        draft.not_chosen & (draft.functions.refused == 0) & (draft.patch >= 0)
    )
    rows = np.flatnonzero(possible)
    return rows[np.argsort(draft.patch[rows], kind="stable")]


def _lent_near(draft: Draft, lenders: Rows, row: int) -> Iterator[_Hole]:
    """Holes that neighbours could lend, the nearest neighbours first."""
    origin = int(draft.patch[row]) + SHORT_JUMP_SIZE
    patches = draft.patch[lenders]
    low, high = np.searchsorted(patches, [origin + _LEAST - JUMP_SIZE, origin + _MOST - JUMP_SIZE + 1])
    near = lenders[low:high]
    near = near[np.argsort(np.abs(draft.patch[near] - origin), kind="stable")][:_MOST_LENDERS]
    for lender in near.tolist():
        if lender == row:
            continue
        code = draft.code_of(lender)
        steps = decode_steps(code, _LENT) if len(code) >= _LENT else None
        recipe = draft.book.of(steps, draft.entry(lender), _LENT) if steps else Reason.TOO_SHORT
        if not isinstance(recipe, Reason) and not _is_led(draft, lender, recipe) and not _pushes(draft, recipe):
            yield _Hole(int(draft.patch[lender]) + JUMP_SIZE, lender, recipe)


def _leave_out_entered(draft: Draft, offers: dict[int, list[_Hole]]) -> None:
    """Take out the holes that somebody jumps into, or takes the address of."""
    holes = {hole.place: hole for offer in offers.values() for hole in offer}
    marks = draft.text.marks()
    for hole in holes.values():
        first = hole.place if hole.lender == NOBODY else int(draft.patch[hole.lender]) + 1
        marks[first : hole.place + JUMP_SIZE] = 1
    found = draft.find(marks)
    entered = draft.text.marks()
    entered[found.target[~_is_displaced_too(draft, found, holes)]] = 1
    entered[draft.led_to(marks)] = 1
    for row, offer in offers.items():
        offers[row] = [hole for hole in offer if not _is_touched(draft, hole, entered)]


def _is_touched(draft: Draft, hole: _Hole, entered: npt.NDArray[np.uint8]) -> bool:
    first = hole.place if hole.lender == NOBODY else int(draft.patch[hole.lender]) + 1
    return bool(entered[first : hole.place + JUMP_SIZE].any())


def _is_displaced_too(draft: Draft, found: Jumps, holes: dict[int, _Hole]) -> npt.NDArray[np.bool_]:
    """Which jumps lie among the bytes that the lender they lead into displaces, and so go to a copy."""
    lent = sorted((int(draft.patch[hole.lender]), hole.recipe) for hole in holes.values() if hole.lender != NOBODY)
    starts = [patch for patch, _ in lent]
    result = np.zeros(len(found), np.bool_)
    for index in np.flatnonzero(found.kind <= JumpKind.CONDITIONAL).tolist():
        at = bisect_left(starts, int(found.target[index])) - 1
        if at >= 0:
            patch, recipe = lent[at]
            end = patch + draft.book.recipes[recipe].displaced
            result[index] = found.target[index] < end and patch <= found.source[index] and found.end[index] <= end
    return result
