"""The recorder's place in the registry of an arena."""

from __future__ import annotations

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.entries import RECORDER_SLOT
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.ops.selection import Selection

__all__ = ["give_back_recorder_slot", "take_recorder_slot"]


def take_recorder_slot(agent: Agent, selection: Selection) -> None:
    """Register the recorder that drains an arena, before any function that it records is hooked."""
    registry = Registry(agent.arena, agent.zones)
    row = UserRow(layout.USER_RECORDER, "record", selection.text, at_exit=True)
    with registry.locked():
        registry.add(row, np.zeros(0, np.int64), slot=RECORDER_SLOT)


def give_back_recorder_slot(agent: Agent) -> bool:
    """Take the recorder off. Returns whether others use the functions of this arena, so that the hooks must stay."""
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        registry.remove(RECORDER_SLOT)
        return bool(registry.slots())
