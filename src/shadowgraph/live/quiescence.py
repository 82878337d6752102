"""Waiting until no thread of a process is in a handler that has been taken off, so that its code may go."""

from __future__ import annotations

import time

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.barrier import order_all_threads
from shadowgraph.errors import StartError
from shadowgraph.ops.processes import runs
from shadowgraph.target import ptrace
from shadowgraph.target.stopping import stop_thread

__all__ = ["wait_until_left"]

_LOOK_SECONDS = 0.05
_MOST_SECONDS = 60.0


def wait_until_left(arena: Arena, slot: int) -> None:
    """Wait until no thread is in a handler of the user that had this slot. StartError if one stays there for a minute.

    A thread says that it is inside before it looks whether the user is there. The barrier orders the two for threads
    that are between them: from then on, who is not seen inside will find the user gone.
    """
    order_all_threads()
    deadline = time.monotonic() + _MOST_SECONDS
    looked = time.monotonic()
    while inside := _threads_inside(arena, slot):
        now = time.monotonic()
        if now - looked > _LOOK_SECONDS:
            looked = now
            for entry in inside:
                _forget_if_left(arena, entry)
        if now > deadline:
            tid = int(arena.threads[inside[0]]["tid"])
            raise StartError(
                f"thread {tid} has been in a handler for {_MOST_SECONDS:g} seconds: the handler stays in the process"
            )
        time.sleep(0.0005)


def _threads_inside(arena: Arena, slot: int) -> list[int]:
    live = (arena.threads["state"] == layout.THREAD_LIVE) & (arena.threads["inside"] == slot + 1)
    found: list[int] = np.flatnonzero(live).tolist()
    return found


def _forget_if_left(arena: Arena, entry: int) -> None:
    """A thread that is gone, or has left the handler by longjmp or an exception, stands above where it was called."""
    row = arena.threads[entry]
    pid, tid = int(row["pid"]), int(row["tid"])
    registers = stop_thread(tid, pid=pid) if runs(pid) else None
    if registers is None:
        row["inside"] = 0
        return
    try:
        if registers.rsp > int(row["inside_stack"]):
            row["inside"] = 0
    finally:
        ptrace.detach(tid)
