"""Going along with processes of a target that execute other programs, whose first call is seen.

As in a recording (ops/recording.py): the agent asks before the system call, the thread is seized, and where the exec
has happened the new program is entered while it stands at its entry, behind other controllers if these are asked first
(ops/handover.py). Each user gets somebody there who stands for it (:meth:`User.another`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shadowgraph.agent import layout
from shadowgraph.agent.rings import RECORDER_SLOTS
from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.execs import refuse_confined, refuse_rights
from shadowgraph.ops.handover import Entrance, TakenOver, asked_besides, hand_over, not_entered
from shadowgraph.ops.notes import Notes, enumerated
from shadowgraph.ops.pending_execs import PendingExecs
from shadowgraph.ops.processes import find_process, find_thread
from shadowgraph.target import launch, ptrace
from shadowgraph.target.vet import vet_process

if TYPE_CHECKING:
    from shadowgraph.live.program import Program

__all__ = ["Execs"]

# Where several controllers are asked, one after the other answers: those of recorders first.
_ORDER = [*RECORDER_SLOTS, *(slot for slot in range(layout.USERS) if slot not in RECORDER_SLOTS)]


class Execs:
    """The execs of one target. ``enter`` puts its users on a program that a process runs now instead of a former one.

    It stands at its entry, and is our tracee if we are the first to enter it. ``ended`` is told of a process that has
    ended on the way there, and its wait status.
    """

    def __init__(
        self,
        enter: Callable[[int, Program, bool], Program],
        ended: Callable[[int, int], None],
    ) -> None:
        self._enter = enter
        self._ended = ended
        self._told = Notes()
        self._pending: PendingExecs[Program] = PendingExecs()
        self._is_closed = False
        self._silent: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._pending)

    def concerns(self, pid: int) -> bool:
        """Whether a thread of this process is about to execute, and is ours."""
        return self._pending.concerns(pid)

    def leave(self, program: Program) -> bool:
        """Whether a process of a program is about to execute, and is ours."""
        return self._pending.leave(program)

    def answer(self, program: Program, event: Any, slots: list[int]) -> bool:
        """Do what a thread waits for that is about to execute; False if others have to do something first."""
        first = next((slot for slot in _ORDER if event["waits"][slot]), None)
        if first not in slots:
            return False
        pid, tid = _who_asks(event, program)
        registry = program.hooking.registry
        assert registry is not None
        try:
            if int(event["kind"]) == layout.EVENT_EXEC_FAILED:
                self._pending.fail(tid, pid)
            elif self._is_closed:
                pass
            elif event["followed_by"]:
                self._pending.later.expect(pid, registry.arena.inode, program, int(event["followed_by"]))
            else:
                refuse_confined(pid)
                refuse_rights(pid, event["arguments"])
                self._pending.expect(tid, pid, program, asked_besides(registry, event))
                event["followed_by"] = os.getpid()
        except ptrace.TraceeEnded as ended:
            self._ended(pid, ended.status)
        except (ShadowgraphError, OSError) as error:
            self._told.unfollowed(str(error))  # it has ended, or may not be traced: it is let go
        return True

    def follow(self) -> None:
        """Enter the programs of processes that have executed."""
        for pid, status, program in self._pending.come():
            program.left_by(pid)
            if os.WIFSTOPPED(status):
                self._follow(pid, program)
            else:
                self._ended(pid, status)
        for pid, program, entrance in self._pending.later.come():
            program.left_by(pid)
            if entrance is not None:
                self._follow_behind(entrance, program)
            else:
                self._told.say(not_entered(pid))

    def _follow_behind(self, entrance: Entrance | TakenOver, program: Program) -> None:
        try:
            self._enter(entrance.pid, program, False)
            self._told.say(*entrance.remarks)
        except Exception as error:
            self._told.unfollowed(_said(error))
        finally:
            entrance.close()

    def _follow(self, pid: int, program: Program) -> None:
        asked = self._pending.asked(pid)
        try:
            vet_process(pid)
            launch.run_to_entry(pid, len(asked))
            entered = self._enter(pid, program, True)
            former, agent = program.hooking.registry, entered.hooking.agent
            if former is not None and agent is not None:
                hand_over(pid, former, agent, asked)
        except Exception as error:
            status = launch.end_behind(error, pid)
            if status is not None:
                self._ended(pid, status)
                return
            ptrace.detach(pid)
            self._told.unfollowed(_said(error))
        else:
            ptrace.detach(pid)

    def close(self) -> None:
        """Follow nobody any more. Programs are to ask us nothing any more before."""
        self._is_closed = True
        for pid in self._pending.later.gone():
            self._told.say(not_entered(pid))
        self._pending.let_all_go()

    def silent(self, functions: str, program: str) -> None:
        """A user has none of its functions in a program that was executed."""
        self._silent.setdefault(functions, set()).add(os.path.basename(program))

    @property
    def remarks(self) -> list[str]:
        """Where nobody has gone along, and who has found nothing in which programs."""
        return [
            *self._told.sentences(),
            *(
                f"{functions}: no such function is in {enumerated(sorted(programs))}, "
                + ("which was executed" if len(programs) == 1 else "which were executed")
                for functions, programs in self._silent.items()
            ),
        ]


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, ShadowgraphError | OSError) else f"internal error: {error!r}"


def _who_asks(event: Any, program: Program) -> tuple[int, int]:
    """The pid and tid of the thread behind an event, which knows itself by those of its own PID namespace."""
    pid, tid = int(event["pid"]), int(event["tid"])
    registry = program.hooking.registry
    assert registry is not None
    real = find_process(pid, registry.arena.inode)
    return (pid, tid) if real is None or real == pid else (real, find_thread(real, tid) or tid)
