"""The registry of users in an arena, looked at: who is there, on which functions, and what they have lost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena

__all__ = ["Registered"]

_MANY_THREADS = 512


class Registered:
    """The users of one arena. Who changes them holds its lock (registry.py)."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._row = arena.registry
        self._users = arena.registry["users"]

    @property
    def tick_base(self) -> int:
        """The tick from which the times of all users count."""
        return int(self.arena.header["tick_base"])

    def slots(self) -> list[int]:
        """The slots in use, in the order in which their users registered. Those that somebody has ended are not."""
        used = set(self._taken(but=layout.USER_ENDED | layout.USER_LEFT))
        order = [slot for slot in self._row["order"].tolist() if slot in used]
        return [*dict.fromkeys(order), *sorted(used - set(order))]

    def user(self, slot: int) -> np.void:
        """The row (struct sg_user) of a slot."""
        row: np.void = self._users[slot]
        return row

    def is_alone(self, slot: int) -> bool:
        """Whether the user of a slot is the only one, and nobody has come since it has."""
        others = np.flatnonzero(self._users["kind"] != layout.USER_FREE).tolist()
        return others in ([], [slot]) and int(self._row["epochs"].max()) <= int(self._row["epochs"][slot])

    def is_armed(self, slot: int) -> bool:
        """Whether calls go to the user of a slot."""
        return bool(int(self._row["armed"]) >> slot & 1)

    def has_fault(self, slot: int) -> bool:
        """Whether the handler of a slot's user has died of a signal."""
        return bool(int(self._row["faulted"]) >> slot & 1)

    def has_ended(self, slot: int) -> bool:
        """Whether the user of a slot has been taken off by another controller, and not yet by its own."""
        return bool(int(self._users[slot]["flags"]) & layout.USER_ENDED)

    def losses_of(self, slot: int) -> dict[str, int]:
        """What the user of a slot has lost, over all threads."""
        rows = self._losses(slot)
        return {name: int(rows[name].sum()) for name in rows.dtype.names or ()}

    def _losses(self, slot: int) -> npt.NDArray[np.void]:
        """Those of all threads there have been; looking at the others would take memory for them.

        Threads take the first entry that is free (native/agent/thread.c), so behind many that nobody has had are none.
        """
        started, end = self.arena.threads["started"], 0
        while (known := np.flatnonzero(started[end : end + _MANY_THREADS])).size:
            end += int(known[-1]) + 1
        found: npt.NDArray[np.void] = self.arena.losses[:end, slot]
        return found

    def functions_of(self, slot: int) -> npt.NDArray[np.int64]:
        """The numbers of the functions that the user of a slot is on."""
        masks = self._functions["users"][:, int(self._row["side"]) & 1]
        found: npt.NDArray[np.int64] = np.flatnonzero(masks >> np.uint64(slot) & np.uint64(1))
        return found

    def callers_of(self, slot: int) -> npt.NDArray[np.int64]:
        """Those of the functions of the user of a slot of which it wants only calls from the executable."""
        found: npt.NDArray[np.int64] = np.flatnonzero(self._functions["callers"] >> np.uint64(slot) & np.uint64(1))
        return found

    @property
    def _functions(self) -> npt.NDArray[np.void]:
        return self.arena.functions[: int(self._row["next_function"])]

    def has_recorder(self) -> bool:
        """Whether anybody records."""
        return bool((self.arena.rings["controller_pid"] != 0).any())

    def _is_recorder(self, slot: int) -> bool:
        return int(self._users[slot]["kind"]) == layout.USER_RECORDER

    def _taken(self, but: int = 0) -> list[int]:
        """The slots that are not free, but for those with a flag."""
        kinds, flags = self._users["kind"].tolist(), self._users["flags"].tolist()
        return [slot for slot, kind in enumerate(kinds) if kind != layout.USER_FREE and not flags[slot] & but]
