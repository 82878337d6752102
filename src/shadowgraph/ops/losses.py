"""What a recorder has lost, thread by thread, from its own beginning on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.agent.arena import Arena

__all__ = ["Losses"]

_KINDS = ("missed", "dropped", "filtered")


class Losses:
    """The counts of one recorder's losses in an arena, less what was there before it came.

    Those of slot 0 stand in the table of threads and begin anew with each thread; those of other slots count on.
    """

    def __init__(self, arena: Arena, slot: int) -> None:
        self._arena = arena
        self._slot = slot
        # By entry of the table of threads: when its last thread began, and what it had lost by then.
        self._before = {entry: self._now(entry) for entry in np.flatnonzero(arena.threads["started"]).tolist()}
        self._nobodys_before = self._nobodys_now()
        self._overcounted = 0  # dropped calls that another thread has counted: one on which a coroutine went on

    def _now(self, entry: int) -> tuple[int, npt.NDArray[np.int64]]:
        row = self._arena.threads[entry] if self._slot == 0 else self._arena.losses[entry, self._slot]
        return int(self._arena.threads["started"][entry]), np.array([int(row[name]) for name in _KINDS])

    def _nobodys_now(self) -> tuple[int, int]:
        return int(self._arena.header["missed"]), int(self._arena.header["dropped"])

    def of_thread(self, entry: int, started: int, uncounted: int) -> dict[str, int]:
        """What the thread that has an entry since ``started`` has lost, once it is over.

        ``uncounted`` are dropped calls that the agent has not counted.
        """
        now = self._now(entry)
        began, before = self._before.get(entry, (0, np.zeros(len(_KINDS), np.int64)))
        missed, dropped, filtered = (now[1] - before if self._slot != 0 or began == started else now[1]).tolist()
        self._before[entry] = now
        return {"missed": missed, "dropped": self._dropped(dropped + uncounted), "filtered": filtered}

    def of_nobody(self) -> tuple[int, int]:
        """Missed and dropped calls of threads that had no entry."""
        (missed, dropped), before = self._nobodys_now(), self._nobodys_before
        return missed - before[0], self._dropped(dropped - before[1])

    def _dropped(self, counted: int) -> int:
        """A number of dropped calls without what was counted too much elsewhere."""
        counted -= self._overcounted
        self._overcounted = max(-counted, 0)
        return max(counted, 0)
