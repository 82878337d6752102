"""The barrier between what we have written and what threads of the target are about to look at."""

from __future__ import annotations

import ctypes
import time

__all__ = ["order_all_threads"]

_SYS_MEMBARRIER = 324
_GLOBAL = 1  # MEMBARRIER_CMD_GLOBAL
_DRAIN_SECONDS = 0.02

_syscall = ctypes.CDLL(None).syscall


def order_all_threads() -> None:
    """When this returns, each thread has passed a point where its stores are seen and its loads see ours.

    A thread that says what it is about to do, and then looks whether it may, needs no barrier of its own then: whom we
    do not see saying so will look after this (membarrier(2)). It takes some ten milliseconds.
    """
    if _syscall(_SYS_MEMBARRIER, _GLOBAL, 0, 0) != 0:  # a sandbox forbids it, or the kernel has nohz_full
        # What orders two instructions wrongly is a store that waits in its processor's buffer. None waits so long.
        time.sleep(_DRAIN_SECONDS)
