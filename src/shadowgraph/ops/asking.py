"""Having threads ask before they go on with a library that they have loaded."""

from __future__ import annotations

from shadowgraph.agent.inject import Agent, set_ask_when_loaded
from shadowgraph.ops.processes import sharers
from shadowgraph.target.memory import Memory

__all__ = ["ask_when_loaded"]


def ask_when_loaded(agent: Agent) -> None:
    """In all processes that share the agent's arena: each has a word for it, which those that it forks inherit."""
    for pid in sharers(agent.arena.inode, 0):
        try:
            memory = Memory(pid)
        except OSError:
            continue  # it has ended
        try:
            set_ask_when_loaded(memory, agent.module)
        except OSError:
            continue
        finally:
            memory.close()
