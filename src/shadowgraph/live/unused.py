"""Taking the hooks out of a process, and of those that have forked from it, when nobody uses them any more."""

from __future__ import annotations

from contextlib import ExitStack

from shadowgraph.agent.inject import Agent, find_agent, read_zones
from shadowgraph.agent.registry import Registry
from shadowgraph.ops.joining import arena_inode
from shadowgraph.ops.leaving import Leaving
from shadowgraph.ops.processes import alone_with, runs, sharers
from shadowgraph.target.memory import Memory

__all__ = ["leave_if_unused", "leave_sharers"]


def leave_if_unused(pid: int, agent: Agent) -> list[str]:
    """Take all hooks out that go with this agent's arena, if it has no users; remarks on what did not go as it should.

    A process in which somebody has begun anew since, with another arena, is left alone.
    """
    with ExitStack() as stack:
        if runs(pid):
            stack.enter_context(alone_with(pid))
        registry = Registry(agent.arena, agent.zones)
        with registry.locked():
            if registry.slots():
                return []
        return leave_sharers(agent.arena.inode)


def leave_sharers(inode: int) -> list[str]:
    """Take all hooks out of the processes whose agent works with the arena of this inode; remarks as above."""
    leaving = Leaving(lambda: [one for one in sharers(inode, 0) if _uses(one, inode)], lambda _: None)
    leaving.run()
    return leaving.notes


def _uses(pid: int, inode: int) -> bool:
    """Whether the arena that a process's agent works with is this one."""
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
