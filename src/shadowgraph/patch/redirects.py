"""Functions that a few long jumps enter behind their first instruction: the jumps are led to the copy instead.

A jump with 32 bits can be given another target by four bytes. Where all that enters a function among its first five
bytes are such jumps, known for certain (a branch that decodes from the start of the code around it), they go to the
displaced instruction's copy in the thunk, and the function gets a plain jump. Tables, calls, and jumps with eight
bits cannot be led elsewhere; nor can a jump that is displaced itself, since it is its copy that runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.draft import Draft
from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.jumps import JumpKind, Jumps
from shadowgraph.patch.owners import NOBODY
from shadowgraph.patch.recipes import LONGEST_WINDOW
from shadowgraph.patch.sizes import FIELD_SIZE, JUMP_SIZE

__all__ = ["Redirect", "redirect_jumps"]

_MOST = 8


@dataclass(frozen=True, slots=True)
class Redirect:
    """The four bytes at ``place`` end a jump to ``target``, a distance from the patch address of ``row``."""

    row: int
    place: int
    target: int


def redirect_jumps(draft: Draft) -> list[Redirect]:
    """Make hookable what is entered by long jumps only; the jumps to be changed, by row."""
    found = draft.jumps_inside
    chosen: list[Redirect] = []
    for row in np.flatnonzero((draft.reason == Reason.JUMPED_INTO) & ~draft.fixed).tolist():
        mine = found.take((found.target > draft.patch[row]) & (found.target < draft.patch[row] + JUMP_SIZE))
        if row in draft.referenced or draft.free[row] == 0 or not 0 < len(mine) <= _MOST:
            continue
        targets = (mine.target - draft.patch[row]).tolist()
        recipe = draft.book.recipes[draft.recipe[row]]
        if _can_be_led(draft, mine) and all(recipe.has_instruction_at(target) for target in targets):
            places = (mine.end - FIELD_SIZE).tolist()
            chosen += [Redirect(row, place, target) for place, target in zip(places, targets, strict=True)]
    return _without_displaced(draft, chosen)


def _can_be_led(draft: Draft, jumps: Jumps) -> bool:
    """Whether all are jumps with 32 bits, within code that somebody owns."""
    long = jumps.end - jumps.source > FIELD_SIZE
    return bool((long & (jumps.kind <= JumpKind.CONDITIONAL) & (jumps.owner != NOBODY)).all())


def _without_displaced(draft: Draft, chosen: list[Redirect]) -> list[Redirect]:
    """Leave out rows of which a jump lies among bytes that are, or will be, displaced; take the others."""
    rows = sorted({redirect.row for redirect in chosen})
    # Rows that were not chosen here may be in another plan, with any window.
    unknown = np.flatnonzero(draft.not_chosen & (draft.patch >= 0))
    hooked = np.union1d(np.union1d(draft.hooked, unknown), np.array(rows, np.int64))
    hooked = hooked[np.argsort(draft.patch[hooked], kind="stable")]
    places = np.array([redirect.place for redirect in chosen], np.int64)
    taken = np.maximum(draft.displaced(hooked), np.where(draft.reason[hooked] == 0, JUMP_SIZE, LONGEST_WINDOW))
    index = np.searchsorted(draft.patch[hooked], places + FIELD_SIZE - 1, side="right") - 1
    hidden = (index >= 0) & (places < draft.patch[hooked][index] + taken[index]) if len(hooked) else places < 0
    refused = {redirect.row for redirect, is_hidden in zip(chosen, hidden.tolist(), strict=True) if is_hidden}
    kept = [redirect for redirect in chosen if redirect.row not in refused]
    taken_rows = [row for row in rows if row not in refused]
    draft.reason[taken_rows] = 0
    draft.flags[taken_rows] |= np.uint16(PlanFlag.REDIRECTED)
    return kept
