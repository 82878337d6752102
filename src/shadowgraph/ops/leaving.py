"""Leaving a process that runs: its code as it was, with calls in flight.

What stays in it is the agent, and the thunks and sites through which calls in flight return, until the next recording
of the same process clears them away. Nobody jumps there any more, and nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable

from shadowgraph.agent.inject import Agent, find_agent, guard, read_zones
from shadowgraph.agent.kept import read_kept, take_out
from shadowgraph.agent.registry import Registry
from shadowgraph.agent.standing import Restorers, Standing
from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.borrowing import CALL_SECONDS
from shadowgraph.ops.joining import arena_inode
from shadowgraph.ops.processes import alone_with, runs
from shadowgraph.target.memory import Memory, program_mark
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.stopping import StoppedProcess

__all__ = ["Leaving", "has_users", "leave", "works_with"]

_MOST_PASSES = 100


class Leaving:
    """Leaving all processes of a recording: those that it began with, and those that have forked from them.

    ``sharing`` names the processes. The hooks of one stay if they are ``in_use``, which is asked while nobody else
    changes them; ``freeze`` is called for each while it stands still, without its hooks if they do not stay. Afterwards
    ``stood_still`` and ``notes`` say how it went.
    """

    def __init__(
        self,
        sharing: Callable[[], list[int]],
        in_use: Callable[[int], bool],
        freeze: Callable[[int], None] | None = None,
    ) -> None:
        self.stood_still: list[float] = []
        self.notes: list[str] = []
        self._sharing = sharing
        self._in_use = in_use
        self._freeze = freeze

    def run(self) -> None:
        """Leave them, until there is none that has forked in the meantime from one with hooks."""
        left: set[int] = set()
        for _ in range(_MOST_PASSES):
            new = [pid for pid in self._sharing() if pid not in left]
            if not new:
                return
            for pid in new:
                left.add(pid)
                self._leave(pid)

    def _leave(self, pid: int) -> None:
        try:
            with alone_with(pid):
                others = self._in_use(pid)
                if others and self._freeze is None:
                    return
                freeze = self._freeze
                seconds, foreign = leave(pid, None if freeze is None else lambda: freeze(pid), others=others)
        except (ShadowgraphError, OSError) as error:
            if runs(pid):
                self.notes.append(f"process {pid} keeps its hooks, without being recorded: {error}")
            return
        self.stood_still.append(seconds)
        if foreign:
            self.notes.append(f"process {pid}: {foreign} hooked places have been changed by somebody else, and stay so")


def has_users(agent: Agent, pid: int, but: int | None = None) -> bool:
    """Whether the hooks of a process are in use: its agent has users, or works with another arena by now.

    ``but`` is the slot of one who does not count.
    """
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        others = [slot for slot in registry.slots() if slot != but]
    return bool(others) or not works_with(pid, agent.arena.inode)


def works_with(pid: int, inode: int) -> bool:
    """Whether the arena that the agent of a process works with is the one with this inode."""
    try:
        module = find_agent(pid)
        if module is None:
            return False
        memory = Memory(pid)
        try:
            return arena_inode(pid, read_zones(memory, module)["arena"]) == inode
        finally:
            memory.close()
    except OSError:
        return False  # it has ended


def leave(pid: int, while_stopped: Callable[[], None] | None = None, *, others: bool = False) -> tuple[float, int]:
    """Take all hooks out of a process, whoever has put them in; not if ``others`` use them.

    ``while_stopped`` is called when that is done, before its threads run on. Returns for how long they stood still, in
    seconds, and how many bytes were left alone because somebody else has changed them since.
    """
    memory = Memory(pid)
    try:
        module = find_agent(pid)
        if module is None:
            return 0.0, 0
        zones = read_zones(memory, module)
        if not zones["kept"]:
            return 0.0, 0
        restorers, mark = Restorers.of(memory, zones), program_mark(pid)
        with StoppedProcess(pid) as stop:
            if program_mark(pid) != mark or find_agent(pid) != module:
                return 0.0, 0  # it has executed another program
            blocks = [] if others else [kept for kept in read_kept(memory, zones["kept"]) if kept.is_in_use]
            if zones["guarded"] and not others:
                with RemoteThread(next(iter(stop.registers)), memory, own_stack=True, seconds=CALL_SECONDS) as thread:
                    guard(thread, module, on=False)
            standing = Standing(stop, memory, restorers)
            standing.move([kept.moves for kept in blocks])
            foreign = take_out(memory, zones["kept"], blocks)
            if while_stopped is not None:
                while_stopped()
        return stop.stood_still, foreign
    finally:
        memory.close()
