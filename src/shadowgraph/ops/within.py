"""Whether threads that stand still are in the agent, or on their way there."""

from __future__ import annotations

from shadowgraph.agent.kept import read_kept
from shadowgraph.agent.standing import Standing
from shadowgraph.patch import HEAD_OFFSETS, HEAD_START
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.modules import Module

__all__ = ["places_in_agent"]


def places_in_agent(standing: Standing, pid: int, memory: Memory, module: Module, table: int) -> list[int]:
    """Places in the agent, and in thunks on the way there, at which threads stand: they are about to use what it has.

    ``module`` is the agent, ``table`` is where its table of hooks lies (agent/kept.py).
    """
    text = [
        (mapping.start, mapping.end)
        for mapping in read_mappings(pid)
        if module.low <= mapping.start < module.high and "x" in mapping.permissions
    ]
    blocks = [(kept.base, kept.base + kept.size) for kept in read_kept(memory, table)]
    return [
        pc
        for pc in standing.places()
        if any(low <= pc < high for low, high in text)
        or (any(low <= pc < high for low, high in blocks) and _is_in_head(memory, pc))
    ]


def _is_in_head(memory: Memory, pc: int) -> bool:
    return any(memory.read(pc - offset, len(HEAD_START)) == HEAD_START for offset in HEAD_OFFSETS)
