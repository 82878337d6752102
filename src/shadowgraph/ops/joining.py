"""Joining others who use the agent of a process: finding its arena where a living controller has it open."""

from __future__ import annotations

import os

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.inject import Agent, find_agent, is_same_build, read_zones
from shadowgraph.agent.registry import process_start
from shadowgraph.errors import StartError
from shadowgraph.target.memory import Memory, read_mappings

__all__ = ["arena_inode", "join", "live_controllers"]


def arena_inode(pid: int, address: int) -> int:
    """The inode of the memory that is mapped at an address of a process, 0 if none is."""
    return next((m.inode for m in read_mappings(pid) if m.start <= address < m.end), 0)


def live_controllers(memory: Memory, arena: int) -> list[int]:
    """The pids of living processes that have users in the registry of an arena, which a process has at an address."""
    header = np.frombuffer(memory.read(arena, layout.arena_dtype.itemsize), layout.arena_dtype)[0]
    place = arena + int(header["registry_at"])
    registry = np.frombuffer(memory.read(place, layout.registry_dtype.itemsize), layout.registry_dtype)[0]
    users = registry["users"]
    gone = users["flags"] & (layout.USER_ENDED | layout.USER_LEFT) != 0
    users = users[(users["kind"] != layout.USER_FREE) & ~gone]
    pairs = zip(users["controller_pid"].tolist(), users["controller_start"].tolist(), strict=True)
    return [pid for pid, start in dict.fromkeys(pairs) if process_start(pid) == start]


def join(pid: int, memory: Memory) -> Agent | None:
    """The agent of a process, if somebody who lives uses it; None if it is not there, or out of use."""
    module = find_agent(pid)
    if module is None:
        return None
    if not is_same_build(memory, module):
        raise StartError(
            f"process {pid}: the agent of another version of Shadowgraph is in it ({module.path}); restart the process"
        )
    zones = read_zones(memory, module)
    if not zones["arena"]:
        return None
    controllers = live_controllers(memory, zones["arena"])
    if not controllers:
        return None
    inode = arena_inode(pid, zones["arena"])
    for controller in controllers:
        file = _open_arena(controller, inode)
        if file is not None:
            return Agent(module, Arena(file), zones["enter"], zones)
    raise StartError(
        f"process {pid} is in use by process {controllers[0]}, whose files may not be opened; ask its owner"
    )


def _open_arena(controller: int, inode: int) -> int | None:
    """Another opening of the arena's file, from where a controller has it open."""
    folder = f"/proc/{controller}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for name in names:
        try:
            if os.stat(f"{folder}/{name}").st_ino != inode or "shadowgraph" not in os.readlink(f"{folder}/{name}"):
                continue
            return os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
    return None
