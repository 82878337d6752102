"""Several controllers go along with a process that executes another program: one enters it first, the others behind it.

The first one is the tracer, and loads the agent while the program stands at its entry (:mod:`pending_execs`). Then it
notes in the new registry who else is expected, and has the program's thread wait in the agent, as it waits for answers
to any other event (native/agent/event.c): so nobody who has died, or does nothing, keeps the program from beginning.
Meanwhile the others join the first one, one after the other, as they join others in a process that runs.

If the first one is killed before that, or cannot enter it, the program waits at its doorstep for the others
(target/doorstep.py), who attach to it there. In the moment between the question and the exec there is no doorstep yet:
they come while the program runs, and say so.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Agent, agent_function
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.joining import join
from shadowgraph.ops.processes import alone_with, runs, shares
from shadowgraph.target.doorstep import Doorstep
from shadowgraph.target.memory import Memory
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.status import read_status

__all__ = [
    "Entrance",
    "LaterEntries",
    "Others",
    "TakenOver",
    "asked_besides",
    "hand_over",
    "not_entered",
]

_LOOK_SECONDS = 0.005
_BEAT_SECONDS = 0.05
_NOBODY_SECONDS = 1.0  # without a tracer and without the agent: nobody has entered the program
_DOORSTEP_SECONDS = 10.0  # on the way to its doorstep, or in its agent, which waits for three seconds at most
_ASK_SECONDS = 5.0  # without being asked in a program that has been let go: it has begun without us

_Source = TypeVar("_Source")


Others = frozenset[tuple[int, int, int]]  # controllers: pid, start, thread


def asked_besides(registry: Registry, event: Any) -> Others:
    """Who else is asked about an exec, when it is our turn: who comes to the process later hears nothing of it."""
    rows = registry.arena.registry["users"][np.flatnonzero(event["waits"])]
    return _controllers(rows[~_are_ours(rows)])


def hand_over(pid: int, former: Registry, agent: Agent, asked: Others) -> None:
    """Let other controllers enter a program that we have entered, before it begins; it stands at its doorstep or entry.

    These are those of them that have been ``asked``, as we have, and still follow execs in the program which the
    process has left. To be let go of next.
    """
    registry = Registry(agent.arena, agent.zones)
    with former.locked():  # whoever leaves meanwhile looks here next (LaterEntries.close)
        others = _others_that_follow(former) & asked
        if others:
            with registry.locked():
                for other in sorted(others):
                    registry.expect(*other)
    memory = Memory(pid)
    try:
        door = Doorstep.find(memory)
        if door is not None:
            door.expect(len(others))
        if others:
            with RemoteThread(pid, memory) as thread:
                thread.leave_calling(agent_function(agent.module, "sg_wait_for_others"))
    finally:
        memory.close()


def _others_that_follow(registry: Registry) -> Others:
    rows = registry.arena.registry["users"][registry.slots()]
    return _controllers(rows[(rows["flags"] & layout.USER_FOLLOWS_EXEC != 0) & ~_are_ours(rows)])


def _controllers(rows: npt.NDArray[np.void]) -> Others:
    names = ("controller_pid", "controller_start", "controller_thread")
    return frozenset(zip(*(rows[name].tolist() for name in names), strict=True))


def _are_ours(rows: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which users are those of this controller: a process may have several, each with a thread of its own."""
    same = rows["controller_thread"] == threading.get_native_id()
    ours: npt.NDArray[np.bool_] = same & (rows["controller_pid"] == os.getpid())
    return ours


def not_entered(pid: int) -> str:
    """What there is to say of a process that we have not gone along with."""
    return f"process {pid} has executed another program, which another controller was to enter first, and has not"


class Entrance:
    """A program in which we are expected: until it is closed, it waits for us, or is about to."""

    remarks: tuple[str, ...] = ()  # what there is to say of it

    def __init__(self, pid: int, agent: Agent, slot: int) -> None:
        self.pid = pid
        self.agent = agent
        self.registry = Registry(agent.arena, agent.zones)
        self._slot = slot
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="shadowgraph entrance", daemon=True)
        self._heart.start()

    @classmethod
    def find(cls, pid: int, former: int) -> Entrance | None:
        """That of a process which has left the arena with the inode ``former``, if there is one already."""
        try:
            memory = Memory(pid)
        except OSError:
            return None
        try:
            agent = join(pid, memory)
        except (ShadowgraphError, OSError):
            return None  # it is being entered, or has ended
        finally:
            memory.close()
        if agent is None or agent.arena.inode == former:
            return None
        users = agent.arena.registry["users"]
        ours = (users["kind"] == layout.USER_EXPECTED) & _are_ours(users)
        found = np.flatnonzero(ours & (users["flags"] & layout.USER_LEFT == 0))
        return cls(pid, agent, int(found[0])) if len(found) else None

    def is_open(self) -> bool:
        """Whether the program's thread waits for us."""
        return bool(self.agent.arena.asked([self._slot], [layout.EVENT_ENTERED]))

    def close(self) -> None:
        """We have entered it, or will not."""
        self._stop.set()
        self._heart.join()
        with self.registry.locked():
            with suppress(OSError):  # it has ended
                _expect_one_less(self.pid)
            self.registry.expect_no_more(self._slot)

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_SECONDS):
            self.agent.arena.beat(self._slot)


class TakenOver:
    """A program that the first one was to enter, and has not: until this is closed, it does not begin.

    Without a doorstep it has begun.
    """

    def __init__(self, pid: int, door: Doorstep | None, memory: Memory | None) -> None:
        self.pid = pid
        self.remarks = () if door is not None else (_entered_late(pid),)
        self._door, self._memory = door, memory
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="shadowgraph doorstep", daemon=True)
        self._heart.start()

    @classmethod
    def find(cls, pid: int) -> TakenOver | None:
        """That of a process which waits at its doorstep."""
        try:
            memory = Memory(pid)
        except OSError:
            return None
        door = Doorstep.find(memory)
        try:
            if door is not None and door.expected and door.is_waited_at():
                return cls(pid, door, memory)
        except OSError:
            pass  # it has ended
        memory.close()
        return None

    def close(self) -> None:
        """We have entered it, or will not; the last one of those who are expected lets it begin."""
        self._stop.set()
        self._heart.join()
        if self._memory is None:
            return
        with suppress(ShadowgraphError, OSError), alone_with(self.pid):
            _expect_one_less(self.pid)
        self._memory.close()

    def _beat(self) -> None:
        number = os.getpid()  # not that of another one of us
        while self._door is not None and not self._stop.wait(_BEAT_SECONDS):
            number += 1
            with suppress(OSError):
                self._door.beat(number)


def _expected(pid: int) -> int:
    """How many controllers a program is to wait for at its doorstep, where it may not have come to yet."""
    memory = Memory(pid)
    try:
        door = Doorstep.find(memory)
        return 0 if door is None else door.expected
    finally:
        memory.close()


def _expect_one_less(pid: int) -> None:
    memory = Memory(pid)
    try:
        door = Doorstep.find(memory)
        if door is not None and door.expected:
            door.expect(door.expected - 1)
    finally:
        memory.close()


def _entered_late(pid: int) -> str:
    return (
        f"process {pid} has executed another program, which another controller was to enter first, and has been "
        "killed: the calls of its first moments are not seen"
    )


@dataclass
class _Waiting(Generic[_Source]):
    former: int
    source: _Source
    first: int  # who is to enter it
    entrance: Entrance | None = None
    taken_over: TakenOver | None = None
    looked: float = 0.0
    untraced: float | None = None  # since when


class LaterEntries(Generic[_Source]):
    """Processes whose exec another controller sees to. ``source`` is what they leave."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting[_Source]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def concerns(self, pid: int) -> bool:
        """Whether a process is one of them."""
        return pid in self._waiting

    def leave(self, source: _Source) -> bool:
        """Whether any of them leaves this."""
        return any(waiting.source is source for waiting in self._waiting.values())

    def expect(self, pid: int, former: int, source: _Source, first: int) -> None:
        """A process is about to execute; ``former`` is the inode of the arena that it leaves, ``first`` enters it."""
        self._waiting[pid] = _Waiting(former, source, first)

    def forget(self, pid: int) -> None:
        """The exec has failed."""
        self._waiting.pop(pid, None)

    def come(self) -> Iterator[tuple[int, _Source, Entrance | TakenOver | None]]:
        """Processes whose program waits for us, or for somebody: it is to be let go by closing what tells of it.

        Where that is nothing: those that have gone on without us.
        """
        for pid, waiting in list(self._waiting.items()):
            if time.monotonic() - waiting.looked < _LOOK_SECONDS:
                continue
            if self._is_decided(pid, waiting):
                self._waiting.pop(pid, None)
                yield pid, waiting.source, waiting.taken_over or waiting.entrance
            waiting.looked = time.monotonic()

    def gone(self) -> list[int]:
        """Those that have ended, and have not waited for us before."""
        return [pid for pid in self._waiting if not runs(pid)]

    def close(self) -> None:
        """Enter no program any more. What we have left is told to ask us nothing any more before."""
        for pid, waiting in self._waiting.items():
            entrance = waiting.entrance or Entrance.find(pid, waiting.former) or TakenOver.find(pid)
            if entrance is not None:
                entrance.close()
        self._waiting.clear()

    def _is_decided(self, pid: int, waiting: _Waiting[_Source]) -> bool:
        """Whether the program waits for us, or will not any more."""
        if shares(pid, waiting.former):
            return False
        now, status = time.monotonic(), read_status(pid)
        if status is None or not runs(pid):
            self._give_up(waiting)
            return True
        # By the first one, until it has noted whom it expects. One in another PID namespace may have no number here.
        is_traced = status["TracerPid"] != "0" or status["State"].startswith("t")
        waiting.entrance = waiting.entrance or Entrance.find(pid, waiting.former)
        if waiting.entrance is not None and waiting.entrance.is_open():
            return True
        waiting.untraced = None if is_traced else waiting.untraced or now
        if waiting.untraced is None:
            return False
        try:
            limit = _ASK_SECONDS if waiting.entrance is not None else _NOBODY_SECONDS
            if _expected(pid):
                waiting.taken_over, limit = TakenOver.find(pid), _DOORSTEP_SECONDS
            elif waiting.entrance is None and not runs(waiting.first):
                waiting.taken_over = TakenOver(pid, None, None)
        except OSError:
            limit = 0.0  # it has ended
        if waiting.taken_over is None and now - waiting.untraced < limit:
            return False
        self._give_up(waiting)
        return True

    def _give_up(self, waiting: _Waiting[_Source]) -> None:
        if waiting.entrance is not None:
            with suppress(ShadowgraphError, OSError):
                waiting.entrance.close()
            waiting.entrance = None
