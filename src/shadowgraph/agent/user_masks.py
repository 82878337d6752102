"""What the registry says of all users at once: words with a bit for each slot, by which the agent's paths go.

The words that a thread of the target reads are written by single aligned stores, and in an order that it may rely on:
before a user has any call, all of them tell of it; and before they stop to, ``since`` says that nobody is there.
"""

from __future__ import annotations

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.user_row import UserRow

__all__ = ["UserMasks"]

_ALL = (1 << 64) - 1
_MASKS = (
    *("live", "at_entry", "at_exit", "counters", "with_data", "with_instances", "conditional"),
    *("timed", "timed_at_exit", "told_time", "told_at_entry", "told_at_exit"),
    *("simple", "measures", "frugal", "limited"),
)
_FRUGAL_STEP = 16  # what a user with frugal handlers keeps lies at a multiple of that


class UserMasks:
    """The words of one registry (struct sg_registry), which its controllers change with its lock held."""

    def __init__(self, row: np.void) -> None:
        self._row = row

    def set(self, mask: str, slot: int, on: bool) -> None:
        """Set one bit or clear it."""
        value = int(self._row[mask])
        self._row[mask] = value | 1 << slot if on else value & ~(1 << slot) & _ALL

    def describe(self, slot: int, user: UserRow, *, is_simple: bool) -> None:
        """Tell of a user that has no calls yet what its calls take. Its row is written."""
        flags = user.fields.get("flags", 0)
        told = {
            "faulted": False,
            "at_entry": user.at_entry,
            "at_exit": user.at_exit,
            "counters": user.shares_counter,
            "with_data": user.with_data,
            "with_instances": user.with_instances,
            "conditional": user.is_conditional,
            "timed": user.is_timed or user.start_is_timed,
            "timed_at_exit": user.is_timed or user.end_is_timed,
            "told_time": user.time_is_told,
            "told_at_entry": bool(flags & layout.USER_ENTRY_LOOKS),
            "told_at_exit": bool(flags & layout.USER_EXIT_LOOKS),
            "simple": is_simple,
            "measures": is_simple and user.is_timed and user.at_exit and not user.at_entry,
            "frugal": is_simple and user.is_frugal and self._has_room(slot),
            "limited": user.is_limited,
        }
        for mask, on in told.items():
            self.set(mask, slot, on)
        self.serve_quickly()

    def begin(self, slot: int, epoch: int) -> None:
        """From now on exits reach the user of a slot, if their calls have that epoch or a later one."""
        self.set("live", slot, True)
        self._row["since"][slot] = epoch

    def clear(self, slot: int) -> None:
        """Nobody is in this slot any more."""
        self._row["since"][slot] = layout.NOBODY
        for mask in _MASKS:
            self.set(mask, slot, False)
        self.serve_quickly()

    def serve_quickly(self) -> None:
        """Let the paths of frugal handlers serve these, or nobody where they see to too little."""
        too_little = bool(self._row["has_order"]) or bool(self._row["with_instances"])
        frugal = 0 if too_little else int(self._row["frugal"])
        self._row["quick_frugal"] = frugal
        quiet = frugal & ~int(self._row["with_data"])
        for end, clock in (("entry", "timed"), ("exit", "timed_at_exit")):
            at_end = quiet & int(self._row[f"at_{end}"]) & ~int(self._row[clock]) & ~int(self._row[f"told_at_{end}"])
            self._row[f"loud_at_{end}"] = ~at_end & _ALL

    def _has_room(self, slot: int) -> bool:
        """Whether what users with frugal handlers keep of a call has room beside what this one keeps."""
        frugal = int(self._row["frugal"]) & int(self._row["live"]) | 1 << slot
        sizes = [int(self._row["users"][one]["data_size"]) for one in range(layout.USERS) if frugal >> one & 1]
        return sum(-(-size // _FRUGAL_STEP) * _FRUGAL_STEP for size in sizes) <= layout.FRUGAL_DATA_LIMIT
