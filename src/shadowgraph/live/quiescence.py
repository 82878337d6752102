"""Waiting until no thread of a process is in a handler that has been taken off, so that its code may go."""

from __future__ import annotations

import time

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.barrier import order_all_threads
from shadowgraph.errors import StartError
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.processes import runs
from shadowgraph.stack.frame import FrameKind, Lost
from shadowgraph.stack.trace import Unwinder
from shadowgraph.target import ptrace
from shadowgraph.target.memory import Memory
from shadowgraph.target.ptrace import Registers
from shadowgraph.target.stopping import stop_thread

__all__ = ["wait_until_left"]

_LOOK_SECONDS = 0.05
_MOST_SECONDS = 60.0
_MOST_FRAMES = 1 << 16


def wait_until_left(arena: Arena, slot: int, known_modules: KnownModules) -> None:
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
                _forget_if_left(arena, entry, known_modules)
        if now > deadline:
            tid = int(arena.threads[inside[0]]["tid"])
            raise StartError(
                f"thread {tid} has been in a handler for {_MOST_SECONDS:g} seconds: the handler stays in the process"
            )
        time.sleep(0.0005)


def _threads_inside(arena: Arena, slot: int) -> list[int]:
    live = (arena.threads["state"] == layout.THREAD_LIVE) & (
        arena.threads["inside"] & np.uint64(layout.INSIDE_SLOT) == slot + 1
    )
    found: list[int] = np.flatnonzero(live).tolist()
    return found


def _forget_if_left(arena: Arena, entry: int, known_modules: KnownModules) -> None:
    """A thread that is gone, or has left the handler by longjmp or an exception, is not inside."""
    row = arena.threads[entry]
    pid, tid = int(row["pid"]), int(row["tid"])
    registers = stop_thread(tid, pid=pid) if runs(pid) else None
    if registers is None:
        row["inside"] = row["busy"] = 0
        return
    try:
        if _is_outside(pid, registers, known_modules):
            row["inside"] = row["busy"] = 0
    finally:
        ptrace.detach(tid)


def _is_outside(pid: int, registers: Registers, known_modules: KnownModules) -> bool:
    """Whether a thread is certainly in nothing of ours: its stack can be followed to its end, and all is the program's.

    Where its stack pointer is says nothing: it may be deeper by now in other calls, or on a signal stack for a moment.
    """
    memory = Memory(pid)
    try:
        walk = Unwinder(memory, known_modules).walk(registers)
        walk.run(_MOST_FRAMES)
        return all(frame.kind is not FrameKind.AGENT for frame in walk.frames)
    except (Lost, OSError):
        return False
    finally:
        memory.close()
