"""One executed program that is being recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.entries import RECORDER_SLOT
from shadowgraph.agent.registry import Registry
from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.drain import Drain
from shadowgraph.ops.leaving import Leaving, has_users
from shadowgraph.ops.processes import find_thread, sharers, shares, start_time
from shadowgraph.ops.recorder_slot import give_back_recorder_slot, is_taken_off

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

    def leave(self) -> Leaving:
        """Take the recorder off, and the hooks if nobody else uses them."""
        leaving = Leaving(self.sharing, self._has_others, self._freeze)
        leaving.run()
        give_back_recorder_slot(self.process.agent)  # if no process of it was left
        return leaving

    def _has_others(self, pid: int) -> bool:
        self.drain.others_stay = has_users(self.process.agent, pid, but=RECORDER_SLOT)
        return self.drain.others_stay

    def _freeze(self, pid: int) -> None:
        """The process stands still: of all functions what was called until now is recorded, and nothing later."""
        give_back_recorder_slot(self.process.agent)
        self.drain.freeze(pid)

    def is_taken_off(self) -> bool:
        """Whether somebody else has taken the recorder off."""
        return is_taken_off(self.process.agent)

    def sharing(self) -> list[int]:
        """The processes that share the arena."""
        return sharers(self.drain.arena.inode, self._began)

    def has_served(self, event: np.void) -> bool:
        """Whether we have looked at what a thread has loaded, which waits for others yet."""
        return int(event["kind"]) == layout.EVENT_LOADED and bool(int(event["arguments"][0]) >> RECORDER_SLOT & 1)

    def answer(self, event: np.void) -> None:
        """Let the thread behind an event go on, as far as we are concerned."""
        if int(event["kind"]) == layout.EVENT_LOADED:
            agent = self.process.agent
            Registry(agent.arena, agent.zones).answer_loaded(event, [RECORDER_SLOT])
        else:
            event["state"] = layout.EVENT_ANSWERED
            self.drain.arena.answer()

    def who_asks(self, event: Any) -> tuple[int, int]:
        """The pid and tid of the thread behind an event, which knows itself by those of its own PID namespace."""
        pid, tid = int(event["pid"]), int(event["tid"])
        real = self.drain.pid_of(pid)
        return (pid, tid) if real is None or real == pid else (real, find_thread(real, tid) or tid)
