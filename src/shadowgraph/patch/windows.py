"""The first step of a plan: each function's first instructions by themselves, as if nobody jumped into them."""

from __future__ import annotations

import numpy as np

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.draft import Draft, Rows
from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.padding import padding_size
from shadowgraph.patch.recipes import LONGEST_WINDOW
from shadowgraph.patch.sizes import JUMP_SIZE

__all__ = ["read_windows"]

# As far as padding is looked through behind a function shorter than the jump.
_GAP = 32


def read_windows(draft: Draft) -> None:
    """Give every open row a recipe or a reason."""
    rows = draft.open
    _find_recipes(draft, rows)
    rows = rows[draft.reason[rows] == 0]
    displaced = draft.displaced(rows)
    following = draft.owners.next_start(draft.start[rows])
    draft.reason[rows[draft.is_led(draft.patch[rows], displaced)]] = Reason.NOT_RELOCATABLE
    overlapped = following < draft.patch[rows] + displaced
    draft.reason[rows[overlapped]] = Reason.OVERLAPS
    draft.free[rows] = np.minimum(draft.free[rows], following - draft.patch[rows])
    for row in rows[~overlapped & (displaced < JUMP_SIZE)].tolist():
        _claim_padding(draft, row)


def _find_recipes(draft: Draft, rows: Rows) -> None:
    patch = draft.patch[rows]
    code = draft.text.data[patch[:, None] + np.arange(LONGEST_WINDOW)].tobytes()
    room = np.minimum(draft.end[rows] - patch, LONGEST_WINDOW).tolist()
    entries = (draft.start[rows] - patch).tolist()
    found = [
        draft.book.window(code[at : at + size], entry) if size > 0 else Reason.TOO_SHORT
        for at, size, entry in zip(range(0, len(code), LONGEST_WINDOW), room, entries, strict=True)
    ]
    refused = np.array([isinstance(recipe, Reason) for recipe in found], np.bool_)
    number = np.array(found, np.int64)
    draft.reason[rows[refused]] = number[refused]
    draft.recipe[rows[~refused]] = number[~refused]


def _claim_padding(draft: Draft, row: int) -> None:
    """For a function that ends before its jump would: take the bytes behind it, if they are nobody's padding."""
    place = int(draft.patch[row] + draft.displaced(np.array([row]))[0])
    limit = min(int(draft.owners.next_start(draft.start[row : row + 1])[0]), place + _GAP)
    limit = min(limit, place + int(draft.text.room(np.array([place]))[0]))
    if padding_size(draft.text.bytes_at(place, limit - place)) >= int(draft.patch[row]) + JUMP_SIZE - place:
        draft.flags[row] |= np.uint16(PlanFlag.PADDING)
    else:
        draft.reason[row] = Reason.TOO_SHORT
