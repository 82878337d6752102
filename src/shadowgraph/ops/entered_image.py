"""One executed program that is being recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.drain import Drain
from shadowgraph.ops.leaving import has_users
from shadowgraph.ops.processes import find_thread, sharers, shares, start_time
from shadowgraph.ops.recorder_slot import is_taken_off

__all__ = ["EnteredImage"]


@dataclass
class EnteredImage:
    """One executed program: the process that was entered, and those that forked from it."""

    process: EnteredProcess
    drain: Drain
    _began: int = field(init=False)

    def __post_init__(self) -> None:
        self._began = start_time(self.process.pid) or 0

    def lives(self) -> bool:
        """Whether any process shares the arena: also one that has forked and not called a traced function yet."""
        return shares(self.process.pid, self.drain.arena.inode) or bool(self.sharing())

    def has_users(self, pid: int) -> bool:
        """Whether the hooks of one of its processes are in use by others."""
        self.drain.others_stay = has_users(self.drain.arena, pid)
        return self.drain.others_stay

    def is_taken_off(self) -> bool:
        """Whether somebody else has taken the recorder off."""
        return is_taken_off(self.process.agent)

    def sharing(self) -> list[int]:
        """The processes that share the arena."""
        return sharers(self.drain.arena.inode, self._began)

    def who_asks(self, event: Any) -> tuple[int, int]:
        """The pid and tid of the thread behind an event, which knows itself by those of its own PID namespace."""
        pid, tid = int(event["pid"]), int(event["tid"])
        real = self.drain.pid_of(pid)
        return (pid, tid) if real is None or real == pid else (real, find_thread(real, tid) or tid)
