"""Threads that are about to execute another program: seized until they have, so that it can be entered first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.processes import runs
from shadowgraph.target import ptrace

__all__ = ["PendingExecs"]

_ALL_CHILDREN = 0x40000000  # __WALL of waitpid(2)


class PendingExecs:
    """The threads that we are the tracer of, and their processes. All of this in the one thread that ptraces."""

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._pids)

    def concerns(self, pid: int) -> bool:
        """Whether a thread of this process is about to execute."""
        return pid in self._pids.values()

    def expect(self, tid: int, pid: int) -> None:
        """Become the tracer of a thread that waits for us to, and executes then."""
        ptrace.seize(tid, ptrace.OPTION_TRACE_EXEC | ptrace.OPTION_MARK_SYSTEM_CALLS)
        self._pids[tid] = pid

    def let_go(self, tid: int) -> None:
        """The exec has failed: stop being the tracer. TraceeEnded if the thread has ended meanwhile."""
        if self._pids.pop(tid, None) is None:
            return
        ptrace.stop(tid)
        ptrace.detach(tid)

    def let_all_go(self) -> None:
        """Leave them: they execute unseen."""
        for tid in list(self._pids):
            with suppress(ShadowgraphError, OSError):  # it has ended
                self.let_go(tid)

    def come(self) -> Iterator[tuple[int, int]]:
        """Processes that have executed, and stand still, or have ended; with their wait statuses.

        What else stops them is passed on.
        """
        for tid, pid in list(self._pids.items()):
            # An exec'ing thread takes over its process's pid.
            for who in dict.fromkeys((tid, pid)):
                try:
                    got, status = os.waitpid(who, os.WNOHANG | _ALL_CHILDREN)
                except ChildProcessError:
                    if not runs(pid):
                        self._pids.pop(tid, None)
                    continue
                if got != who:
                    continue
                if os.WIFSTOPPED(status) and ptrace.event_of(status) != ptrace.EVENT_EXEC:
                    ptrace.cont(who, os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0)
                    break
                self._pids.pop(tid, None)
                yield who, status
                break
