"""Calls that lie where the jump has to: the two share bytes, and the jump leads where the call's bytes say.

A call is best made from its own place (relocate.py). Among the first bytes of a function there is no room for that
behind a jump of five bytes, but the jump's displacement may be made of the call's bytes ("Instruction Punning", PLDI
2017). What is overwritten is read as a jump from its first byte on, and as a call where the thunk comes back to:

    e8 .. .. .. ..      call f             e9 ff 54 24 f8       jmp −131,836,673
                                              ff 54 24 f8       call [rsp-8]

    53 e8 .. .. .. ..   push rbx; call f   e9 f0 ff 54 e4 f8    jmp −464,191,504
                                                 ff 54 e4 f8    call [rsp-8]

The SIB byte says "rsp, no index"; its scale has no meaning then (SDM vol. 2, table 2-3), so there is more than one
place to lead to. There lies a trampoline that leads to the thunk. Which places are free is known in the running program
only: a plan says what might be done, and trampolines.py does it.
"""

from __future__ import annotations

import numpy as np

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.decode import decode_steps
from shadowgraph.patch.draft import Draft
from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.recipe import IN_PLACE_CALL, CallForm
from shadowgraph.patch.relocate import BRANCHES
from shadowgraph.patch.sizes import JUMP_SIZE

__all__ = ["find_overlaps"]


def find_overlaps(draft: Draft) -> None:
    """Give rows that can only push for a call the recipe that makes it from its place."""
    pushes = np.array([recipe.call == CallForm.PUSHED for recipe in draft.book.recipes] + [False], np.bool_)
    whole = draft.flags & np.uint16(PlanFlag.WHOLE_LOOP) != 0
    rows = np.flatnonzero((draft.reason == 0) & pushes[draft.recipe] & (draft.hole < 0) & ~whole & ~draft.fixed)
    for row in rows.tolist():
        steps = decode_steps(draft.code_of(row), JUMP_SIZE)
        assert steps, "it has a recipe, so it has been decoded before"
        end = steps[-1].end
        if any(0 < step.target < end for step in steps if step.kind not in BRANCHES):
            continue  # one of them calls, reads or names a byte that would change
        recipe = draft.book.of(steps, draft.entry(row), end - len(IN_PLACE_CALL))
        if not isinstance(recipe, Reason) and draft.book.recipes[recipe].call == CallForm.IN_PLACE:
            draft.overlap[row] = recipe
