"""The recorder's place in the registry of an arena, and the rings that go with it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.inject import Agent, Settings
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.agent.rings import set_up_first, set_up_later
from shadowgraph.ops.condition import Condition
from shadowgraph.ops.joining import join
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.taking_over import take_over
from shadowgraph.target.memory import Memory

__all__ = [
    "Joined",
    "claim_place",
    "end_recorder",
    "give_back_recorder_slot",
    "is_taken_off",
    "join_for_recording",
    "stop_answering",
    "take_first_place",
    "take_recorder_slot",
]

_FIRST = 0


@dataclass(frozen=True)
class Joined:
    """The agent of a process that others use, with a place for one more recorder: its slot, and rings of its own."""

    agent: Agent
    slot: int
    stops: list[float]


def take_first_place(agent: Agent, selection: Selection, settings: Settings, *, follow: bool) -> None:
    """Register the recorder for whom an arena has been made, before any function that it records is hooked."""
    set_up_first(agent.arena, settings)
    take_recorder_slot(agent, selection, _FIRST, follow=follow)


def take_recorder_slot(agent: Agent, selection: Selection, slot: int, *, follow: bool, limited: bool = False) -> None:
    """Register a recorder that has a place, before any function that it records is hooked.

    ``follow``: into programs that it executes. ``limited``: a limit of depth or time is its own, not the agent's.
    """
    registry = Registry(agent.arena, agent.zones)
    row = UserRow(layout.USER_RECORDER, "record", selection.text, at_exit=True, is_timed=True, is_simple=True)
    row = replace(row, is_limited=limited)
    condition = Condition.of(selection.when)
    with registry.locked():
        cells = Cells(agent.arena)
        at = cells.find_pool(condition.size) if condition.size else 0
        row = condition.added_to(row, cells, at)
        registry.add(row.with_pool(at, condition.size), np.zeros(0, np.int64), slot=slot)
        registry.set_follows(slot, on=selection.names_modules(), execs=follow)


def stop_answering(agent: Agent, slot: int) -> None:
    """Our recorder is asked nothing any more, and what waits for its answer goes on."""
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        if _is_ours(registry, slot):
            registry.set_follows(slot, on=False)
            agent.arena.answer_all(slot)


def end_recorder(agent: Agent, slot: int) -> None:
    """Take our recorder off: no call reaches it any more. It keeps its place and its rings until it gives them back."""
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        if _is_ours(registry, slot) and not registry.has_ended(slot):
            registry.end(slot)


def give_back_recorder_slot(agent: Agent, slot: int) -> None:
    """Give our recorder's place back, with its rings. Others may use the functions of this arena yet."""
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        if _is_ours(registry, slot):
            registry.remove(slot)


def is_taken_off(agent: Agent, slot: int) -> bool:
    """Whether somebody else has taken our recorder off (`shadowgraph detach`)."""
    registry = Registry(agent.arena, agent.zones)
    return registry.has_ended(slot) or not _is_ours(registry, slot)


def _is_ours(registry: Registry, slot: int) -> bool:
    user = registry.user(slot)
    left = int(user["flags"]) & layout.USER_LEFT
    return int(user["controller_pid"]) == os.getpid() and int(user["kind"]) == layout.USER_RECORDER and not left


def join_for_recording(pid: int, settings: Settings) -> Joined | None:
    """The agent of a process that others use, with a place for a recorder; None if nobody uses it."""
    memory = Memory(pid)
    try:
        agent = join(pid, memory)
    finally:
        memory.close()
    return None if agent is None else claim_place(agent, settings)


def claim_place(agent: Agent, settings: Settings) -> Joined:
    """A place for one more recorder in an arena, with empty rings. StartError if there are too many."""
    registry = Registry(agent.arena, agent.zones)
    with registry.locked():
        slot = registry.claim_recorder()
    try:
        stops = take_over(agent, slot)
        with registry.locked():
            set_up_later(agent.arena, slot, settings)
    except BaseException:
        give_back_recorder_slot(agent, slot)
        raise
    return Joined(agent, slot, stops)
