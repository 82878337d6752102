"""Which functions of an image can be hooked by a jump, and what that jump displaces.

A function is patched at its first byte, or behind `endbr64`, so that indirect branch tracking still finds one. The jump
replaces five bytes; displaced are the whole instructions that cover them. Refused, each with a reason that a user can
read:

- what the function table refuses, and cold parts that only the whole text gives away (cold.py);
- code that does not decode, or holds an instruction that cannot run elsewhere (relocate.py);
- functions shorter than the jump, unless they end in a ret or jmp and padding that belongs to nobody follows
  (windows.py);
- functions within whose first instructions another function begins;
- functions whose bytes 1 to 4 behind the patch address somebody jumps to or takes the address of (collisions.py). The
  bytes from the fifth on stay as they are, so they may be jumped to.

Jumps to the patch address itself are welcome: from another function such a jump is a tail call, and is traced as one.
A function's jumps back to its own entry, or among its own first instructions, are loops: see loops.py. What has room
for two bytes only may still be reached by a short jump (short_jumps.py), and what few long jumps lead into may have
them led elsewhere (redirects.py). A call among the first bytes is made from its own place where there is room for that
(relocate.py), or where the running program has room elsewhere (overlaps.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.collisions import resolve_collisions
from shadowgraph.patch.draft import Draft
from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.module_plan import REDIRECT, ModulePlan
from shadowgraph.patch.overlaps import find_overlaps
from shadowgraph.patch.owners import NOBODY
from shadowgraph.patch.recipe import IN_PLACE_CALL, CallForm, Recipe
from shadowgraph.patch.redirects import Redirect, redirect_jumps
from shadowgraph.patch.short_jumps import use_short_jumps
from shadowgraph.patch.sizes import JUMP_SIZE
from shadowgraph.patch.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shadowgraph.image.functions import FunctionTable
    from shadowgraph.image.image import Image

__all__ = ["ModulePlan", "plan_module"]


def plan_module(
    image: Image,
    functions: FunctionTable,
    only: Sequence[int] | npt.NDArray[np.integer] | None = None,
    previous: ModulePlan | None = None,
    *,
    real_calls: bool = False,
) -> ModulePlan:
    """Plan the functions of an image, or the rows ``only`` of them. The whole text is searched for jumps either way.

    Of the other rows none is hookable, save for those that have to lend a hole to one of ``only``. What is hooked in
    one process at a time must come from one plan, since functions share holes and one may change another's jumps. A
    plan grows by being passed as ``previous``: what it says of the rows it was made for stays, the rest of ``only``
    is added.

    ``real_calls`` allows calls from thunks where a call cannot be made from its own place, for thunks that have unwind
    information of their own.
    """
    draft = Draft(image, functions, only, previous, real_calls=real_calls)
    read_windows(draft)
    resolve_collisions(draft)
    use_short_jumps(draft)
    find_overlaps(draft)
    redirects = _redirect_rows(draft, redirect_jumps(draft))
    if previous is not None:
        redirects = np.concatenate([previous.redirects, redirects])
        redirects = redirects[np.argsort(redirects["row"], kind="stable")]
    return _finished(draft, redirects)


def _finished(draft: Draft, redirects: npt.NDArray[np.void]) -> ModulePlan:
    hookable = draft.reason == 0
    recipes = draft.book.recipes
    recipe = np.where(hookable, draft.recipe, -1).astype(np.int32)
    flags = draft.flags | _flags_of_recipes(recipes)[recipe]
    flags |= np.where(draft.patch != draft.start, np.uint16(PlanFlag.BEHIND_ENDBR64), np.uint16(0))
    place, hole = np.maximum(draft.patch, 0), np.maximum(draft.hole, 0)
    in_place = hookable & (flags & np.uint16(PlanFlag.CALL_IN_PLACE) != 0)
    overlap = np.where(hookable, draft.overlap, -1)
    call = place + draft.book.sizes()[np.where(in_place, recipe, overlap)] - len(IN_PLACE_CALL)
    call = np.where(in_place | (overlap >= 0), call, 0)
    base, data = draft.text.base, draft.text.data
    return ModulePlan(
        path=draft.image.path,
        patch_address=np.where(draft.patch >= 0, place + base, draft.functions.start).astype(np.uint64),
        displaced=draft.book.sizes()[recipe].astype(np.uint16),
        hookable=hookable,
        reason=draft.reason,
        flags=np.where(hookable, flags, 0).astype(np.uint16),
        original=data[place[:, None] + np.arange(JUMP_SIZE)],
        recipe=recipe,
        hole=np.where(hookable & (draft.hole >= 0), hole + base, 0).astype(np.uint64),
        hole_original=data[hole[:, None] + np.arange(JUMP_SIZE)],
        lender=np.where(hookable, draft.lender, NOBODY),
        call_address=np.where(in_place, call + base, 0).astype(np.uint64),
        call_original=data[call[:, None] + np.arange(JUMP_SIZE)],
        overlap=overlap.astype(np.int32),
        trampoline=np.zeros(len(place), np.int64),
        redirects=redirects,
        recipes=recipes,
    )


def _redirect_rows(draft: Draft, redirects: list[Redirect]) -> npt.NDArray[np.void]:
    rows = np.zeros(len(redirects), REDIRECT)
    rows["row"] = [redirect.row for redirect in redirects]
    places = np.array([redirect.place for redirect in redirects], np.int64)
    rows["address"] = places + draft.text.base
    rows["target"] = [redirect.target for redirect in redirects]
    rows["original"] = draft.text.data[places[:, None] + np.arange(JUMP_SIZE)]
    return rows[np.argsort(rows["row"], kind="stable")]


_FLAG_OF_CALL = {
    CallForm.IN_PLACE: PlanFlag.CALL_IN_PLACE,
    CallForm.PUSHED: PlanFlag.EMULATED_CALL,
    CallForm.REAL: PlanFlag.REAL_CALL,
    CallForm.OF_NEXT: PlanFlag.NONE,
}


def _flags_of_recipes(recipes: list[Recipe]) -> npt.NDArray[np.uint16]:
    """uint16[recipes + 1]: the flags that follow from a recipe, none at index −1."""
    flags = np.zeros(len(recipes) + 1, np.uint16)
    for index, recipe in enumerate(recipes):
        if any(row.starts and 0 < row.original < JUMP_SIZE for row in recipe.rows):
            flags[index] |= np.uint16(PlanFlag.MULTI_INSTRUCTION)
        if recipe.call is not None:
            flags[index] |= np.uint16(_FLAG_OF_CALL[recipe.call])
    return flags
