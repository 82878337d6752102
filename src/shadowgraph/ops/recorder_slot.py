"""The recorder's place in the registry of an arena."""

from __future__ import annotations

import os

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.entries import RECORDER_SLOT
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import StartError
from shadowgraph.ops.condition import Condition
from shadowgraph.ops.joining import join
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.taking_over import take_over
from shadowgraph.target.memory import Memory

__all__ = ["free_for_recorder", "give_back_recorder_slot", "is_taken_off", "join_for_recording", "take_recorder_slot"]


def take_recorder_slot(agent: Agent, selection: Selection) -> None:
    """Register the recorder that drains an arena, before any function that it records is hooked."""
    registry = Registry(agent.arena, agent.zones)
    row = UserRow(layout.USER_RECORDER, "record", selection.text, at_exit=True, is_timed=True, is_simple=True)
    condition = Condition.of(selection.when)
    with registry.locked():
        cells = Cells(agent.arena)
        at = cells.find_pool(condition.size) if condition.size else 0
        row = condition.added_to(row, cells, at)
        registry.add(row.with_pool(at, condition.size), np.zeros(0, np.int64), slot=RECORDER_SLOT)
        registry.set_follows(RECORDER_SLOT, on=selection.names_modules())


def give_back_recorder_slot(agent: Agent) -> None:
    """Take the recorder off. Others may use the functions of this arena yet."""
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        if _is_ours(registry):
            registry.remove(RECORDER_SLOT)


def is_taken_off(agent: Agent) -> bool:
    """Whether somebody else has taken the recorder off (`shadowgraph detach`); another one may be there by now."""
    registry = Registry(agent.arena, agent.zones)
    return registry.has_ended(RECORDER_SLOT) or not _is_ours(registry)


def _is_ours(registry: Registry) -> bool:
    return int(registry.user(RECORDER_SLOT)["controller_pid"]) == os.getpid()


def join_for_recording(pid: int, policy: int) -> tuple[Agent | None, list[float]]:
    """The agent of a process that others use, made ready for a recorder; and for how long processes stood still for it.

    None if nobody uses it. StartError if it has a recorder already.
    """
    memory = Memory(pid)
    try:
        agent = join(pid, memory)
    finally:
        memory.close()
    if agent is None:
        return None, []
    free_for_recorder(agent, pid)
    return agent, take_over(agent, policy, os.getpid())


def free_for_recorder(agent: Agent, pid: int) -> None:
    """StartError if the recorder's slot in the arena of a process is taken."""
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        if RECORDER_SLOT in registry.slots():
            user = registry.user(RECORDER_SLOT)
            owner = int(user["controller_pid"])
            if int(user["kind"]) != layout.USER_RECORDER:
                raise StartError(f"process {pid} has {layout.USERS} users; the last one is that of process {owner}")
            raise StartError(f"process {pid} is being recorded by process {owner} already; end that first")
