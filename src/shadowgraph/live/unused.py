"""Taking the hooks out of a process, and of those that have forked from it, when nobody uses them any more."""

from __future__ import annotations

from collections.abc import Callable

from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry
from shadowgraph.ops.leaving import Leaving, has_users, works_with
from shadowgraph.ops.processes import sharers

__all__ = ["leave_if_unused", "leave_sharers"]


def leave_if_unused(agent: Agent) -> list[str]:
    """Take all hooks out that go with this agent's arena, if it has no users; remarks on what did not go as it should.

    A process in which somebody has begun anew since, with another arena, is left alone.
    """
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        if registry.slots():
            return []
    return _leave(agent.arena.inode, lambda pid: has_users(agent, pid))


def leave_sharers(inode: int) -> list[str]:
    """The same where all users are dead, of the processes whose agent works with the arena of this inode."""
    return _leave(inode, lambda pid: not works_with(pid, inode))


def _leave(inode: int, in_use: Callable[[int], bool]) -> list[str]:
    leaving = Leaving(lambda: [one for one in sharers(inode, 0) if works_with(one, inode)], in_use)
    leaving.run()
    return leaving.notes
