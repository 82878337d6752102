"""Threads that are about to execute another program: seized until they have, so that it can be entered first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.handover import LaterEntries, Others
from shadowgraph.ops.processes import runs
from shadowgraph.target import ptrace

__all__ = ["PendingExecs"]

_ALL_CHILDREN = 0x40000000  # __WALL of waitpid(2)

_Source = TypeVar("_Source")


class PendingExecs(Generic[_Source]):
    """The threads that we are the tracer of, and their processes. All of this in the one thread that ptraces.

    A source is what they leave. ``later`` are processes whose new program others enter before us.
    """

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}
        self._sources: dict[int, _Source] = {}  # by thread
        self._asked: dict[int, Others] = {}  # by process
        self.later: LaterEntries[_Source] = LaterEntries()

    def __bool__(self) -> bool:
        return bool(self._pids or self.later)

    def concerns(self, pid: int) -> bool:
        """Whether a thread of this process is about to execute."""
        return pid in self._pids.values() or self.later.concerns(pid)

    def leave(self, source: _Source) -> bool:
        """Whether any of these processes leaves this."""
        return any(one is source for one in self._sources.values()) or self.later.leave(source)

    def expect(self, tid: int, pid: int, source: _Source, asked: Others) -> None:
        """Become the tracer of a thread that waits for us to, and executes then; who else is ``asked`` comes later."""
        ptrace.seize(tid, ptrace.OPTION_TRACE_EXEC | ptrace.OPTION_MARK_SYSTEM_CALLS)
        self._pids[tid], self._sources[tid], self._asked[pid] = pid, source, asked

    def asked(self, pid: int) -> Others:
        """Who was asked besides us about the exec of a process that has come."""
        return self._asked.pop(pid, frozenset())

    def fail(self, tid: int, pid: int) -> None:
        """The exec has failed: stop being the tracer. TraceeEnded if the thread has ended meanwhile."""
        self.later.forget(pid)
        self._asked.pop(pid, None)
        if self._forget(tid) is None:
            return
        ptrace.stop(tid)
        ptrace.detach(tid)

    def _forget(self, tid: int) -> _Source | None:
        self._pids.pop(tid, None)
        return self._sources.pop(tid, None)

    def let_all_go(self) -> None:
        """Leave them: they execute unseen. What they leave is to ask us nothing any more before."""
        for tid, pid in list(self._pids.items()):
            with suppress(ShadowgraphError, OSError):  # it has ended
                self.fail(tid, pid)
        self.later.close()

    def come(self) -> Iterator[tuple[int, int, _Source]]:
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
                        self._forget(tid)
                    continue
                if got != who:
                    continue
                if os.WIFSTOPPED(status) and ptrace.event_of(status) != ptrace.EVENT_EXEC:
                    ptrace.cont(who, os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0)
                    break
                source = self._forget(tid)
                if source is not None:
                    yield who, status, source
                break
