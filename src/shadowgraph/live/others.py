"""The users of a process, whoever has registered them: looking at them without a stop, and taking them off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.arena import Arena
from shadowgraph.agent.inject import Agent, find_agent, is_same_build, read_zones
from shadowgraph.agent.kept import read_kept
from shadowgraph.agent.registry import Registry
from shadowgraph.agent.rings import forget_recorders
from shadowgraph.errors import StartError, UsageError
from shadowgraph.live.rows import user_row
from shadowgraph.live.unused import leave_if_unused, leave_sharers
from shadowgraph.ops.drain import process_command
from shadowgraph.ops.joining import arena_inode, join
from shadowgraph.ops.processes import alone_with, end_told, runs
from shadowgraph.target import ptrace
from shadowgraph.target.memory import Memory
from shadowgraph.target.modules import Module
from shadowgraph.target.running import refuse_ended
from shadowgraph.target.status import read_status

__all__ = ["Detached", "Users", "detach_users", "read_users"]


class Users:
    """Who uses a process. ``rows`` are as those of ``Target.users``, with the controller's ``command`` while it lives.

    ``hooked``: its code has hooks, if only those that controllers have left which are dead.
    """

    def __init__(self, rows: list[dict[str, Any]], *, hooked: bool) -> None:
        self.rows = rows
        self.hooked = hooked


class Detached:
    """What detach_users() has done: who was taken off, who is left, and whether the hooks have been taken out."""

    def __init__(self, ended: list[dict[str, Any]], left: list[dict[str, Any]], *, unhooked: bool) -> None:
        self.ended = ended
        self.left = left
        self.unhooked = unhooked
        self.notes: list[str] = []


def read_users(pid: int) -> Users:
    """The users of a process, read from its memory: it runs on, and nothing of it changes."""
    found = _find(pid)
    if found is None:
        return Users([], hooked=False)
    memory, module = found
    try:
        with end_told(pid):
            users = _read_whole(memory, module)
            if users is None or (users.hooked and not users.rows):  # a controller may be about to register, or to leave
                with alone_with(pid):
                    users = _read(memory, module)
            return users
    finally:
        memory.close()


def _read_whole(memory: Memory, module: Module) -> Users | None:
    """None if the process is having the agent loaded at this moment."""
    try:
        return _read(memory, module)
    except OSError:
        if not runs(memory.pid):
            raise
        return None


def _read(memory: Memory, module: Module) -> Users:
    zones = read_zones(memory, module)
    if not zones["arena"]:
        return Users([], hooked=False)
    registry = _copy(memory, zones["arena"])
    hooked = any(kept.is_in_use for kept in read_kept(memory, zones["kept"]))
    return Users([_described(registry, slot) for slot in registry.slots()] if hooked else [], hooked=hooked)


def detach_users(pid: int, user: str | None = None) -> Detached:
    """Take off one user, by its name or its slot, or all of them, and the hooks if nobody is left.

    What dead controllers have left goes in any case. Controllers that live notice, and keep what they have counted.
    """
    found = _find(pid)
    if found is None:
        if user is not None:
            raise UsageError(f"process {pid} has no user {user}; nobody uses it")
        return Detached([], [], unhooked=False)
    memory, module = found
    try:
        with end_told(pid):
            with alone_with(pid):
                agent = join(pid, memory)
                done = _end_left(pid, memory, module, user) if agent is None else _end(pid, agent, user)
            if agent is not None and not done.left:
                done.notes = leave_if_unused(agent)
                done.unhooked = True
            elif done.unhooked:
                done.notes = leave_sharers(arena_inode(pid, read_zones(memory, module)["arena"]))
            return done
    finally:
        memory.close()


def _find(pid: int) -> tuple[Memory, Module] | None:
    """The memory of a process and the agent in it; None if it has none. StartError if it cannot be looked at."""
    status = read_status(pid)
    if status is None:
        raise StartError(f"there is no process {pid}")
    if int(status.get("Tgid", pid)) != pid:
        raise StartError(f"{pid} is a thread of process {status['Tgid']}; name that")
    refuse_ended(pid, status)
    try:
        module = find_agent(pid)
        if module is None:
            return None
        memory = Memory(pid)
    except PermissionError as error:
        raise StartError(ptrace.why_not(pid, error)) from None
    except (FileNotFoundError, ProcessLookupError):
        raise StartError(f"process {pid} has just ended") from None
    if not is_same_build(memory, module):
        memory.close()
        raise StartError(
            f"process {pid}: the agent of another version of Shadowgraph is in it ({module.path}); "
            "use that version, or restart the process"
        )
    return memory, module


def _copy(memory: Memory, arena: int) -> Registry:
    """The registry of an arena that a process has at an address, and what belongs to it, as they are now."""
    header = np.frombuffer(memory.read(arena, layout.arena_dtype.itemsize), layout.arena_dtype)[0]

    def table(name: str, count: int, dtype: np.dtype[np.void]) -> Any:
        return np.frombuffer(memory.read(arena + int(header[name]), count * dtype.itemsize), dtype)

    registry = table("registry_at", 1, layout.registry_dtype)[0]
    threads = table("threads_at", int(header["threads"]), layout.shared_thread_dtype)
    known = int(np.flatnonzero(threads["started"]).max(initial=-1)) + 1
    losses = (
        table("losses_at", known * layout.USERS, layout.losses_dtype) if known else np.zeros(0, layout.losses_dtype)
    )
    functions = table("functions_at", int(registry["next_function"]), layout.function_dtype)
    tables = SimpleNamespace(
        registry=registry, threads=threads, functions=functions, losses=losses.reshape(-1, layout.USERS)
    )
    return Registry(cast(Arena, tables), {})  # for looking alone


def _described(registry: Registry, slot: int) -> dict[str, Any]:
    row = user_row(registry, slot)
    return {**row, "command": None if row["state"] == "left behind" else process_command(row["controller"])}


def _end(pid: int, agent: Agent, user: str | None) -> Detached:
    """Take users off that a living controller shares with others."""
    registry = Registry(agent.arena, agent.zones)
    before = [_described(registry, slot) for slot in registry.slots()]
    with registry.locked():
        swept = [row for row in before if row["slot"] not in registry.slots()]
        living = [row for row in before if row["slot"] in registry.slots()]
        chosen = living if user is None else _named(pid, living, user)
        for row in chosen:
            registry.end(row["slot"])
    return Detached([*swept, *chosen], [row for row in living if row not in chosen], unhooked=False)


def _named(pid: int, rows: list[dict[str, Any]], user: str) -> list[dict[str, Any]]:
    found = [row for row in rows if user in (row["name"], str(row["slot"]))]
    if not found:
        there = ", ".join(f"{row['name']} (slot {row['slot']})" for row in rows)
        which = ", which is a kind; name or slot are wanted" if user in {row["kind"] for row in rows} else ""
        raise UsageError(f"process {pid} has no user {user}{which}; it has {there}")
    if len(found) > 1:
        places = ", ".join(f"{row['slot']} (of process {row['controller']})" for row in found)
        raise UsageError(f"process {pid} has {len(found)} users named {user}; name one by its slot: {places}")
    return found


def _end_left(pid: int, memory: Memory, module: Module, user: str | None) -> Detached:
    """Nobody who lives uses the process: what the dead have left is to go, whichever of them had it."""
    zones = read_zones(memory, module)
    users = _read(memory, module)
    if user is not None and not any(user in (row["name"], str(row["slot"])) for row in users.rows):
        raise UsageError(f"process {pid} has no user {user}; nobody uses it")
    done = Detached(users.rows, [], unhooked=users.hooked)
    if users.hooked:
        forget_recorders(memory, zones["arena"])
    return done
