"""What the agent asks about while users are on a process: libraries that it loads, and programs that it executes.

A thread that has loaded one, or is about to execute, rings and waits (native/agent/event.c). While it does, every
controller hooks what its own users want, one after the other; then it goes on. Controllers that have died, or do
nothing for three seconds, are not waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry

__all__ = ["Bell", "asked"]

_BEAT_SECONDS = 0.05


class Bell:
    """A thread that hears the agent ring and shows it that we live; ``ring`` is called for each event."""

    def __init__(self, registry: Registry, pid: int, ring: Callable[[], None]) -> None:
        self.registry = registry
        self._pid = pid
        self._ring = ring
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shadowgraph bell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()

    def _slots(self) -> list[int]:
        users = self.registry.arena.registry["users"]
        there = (users["kind"] != layout.USER_FREE) & (users["kind"] != layout.USER_EXPECTED)
        ours = (users["controller_pid"] == self._pid) & there
        found: list[int] = np.flatnonzero(ours).tolist()
        return found

    def _run(self) -> None:
        arena = self.registry.arena
        while not self._stop.is_set():
            bell = int(arena.header["bell"])
            slots = self._slots()
            for slot in slots:
                arena.beat(slot)
            if asked(self.registry, slots):
                self._ring()
                self._stop.wait(0.001)
            else:
                arena.wait(_BEAT_SECONDS, bell)


def asked(registry: Registry, slots: list[int]) -> list[np.void]:
    """The events of threads that wait for users in these slots."""
    return registry.arena.asked(slots, [layout.EVENT_LOADED, layout.EVENT_EXEC, layout.EVENT_EXEC_FAILED])
