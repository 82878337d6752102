"""A recorder that comes to where another one was before: nothing of that one must reach it (R11).

Threads may still hold ring segments of the former recorder, and calls that it has seen begin may be in flight. Each
process that shares the arena is stopped for a moment, at a time when none of its threads stands in the agent; its rings
begin anew, and its calls in flight lose their recorder.
"""

from __future__ import annotations

import time

import numpy as np

from shadowgraph.agent.inject import Agent, agent_function, find_agent
from shadowgraph.agent.rings import ring_of
from shadowgraph.agent.standing import Restorers, Standing
from shadowgraph.errors import StartError
from shadowgraph.ops.borrowing import CALL_SECONDS
from shadowgraph.ops.in_flight import take_off_recorder
from shadowgraph.ops.processes import runs, sharers
from shadowgraph.ops.within import places_in_agent
from shadowgraph.target.memory import Memory
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.stopping import StoppedProcess

__all__ = ["take_over"]

_SECONDS = 10.0


def take_over(agent: Agent, slot: int) -> list[float]:
    """Make a slot that is ours ready for a new recorder; returns for how long processes stood still for it.

    Where nobody has had its rings before, there is nothing to be done.
    """
    if int(agent.arena.rings[ring_of(slot)]["generation"]) == 0:
        return []
    return [_reset(pid, agent, slot) for pid in sharers(agent.arena.inode, 0)]


def _reset(pid: int, agent: Agent, slot: int) -> float:
    memory = Memory(pid)
    deadline = time.monotonic() + _SECONDS
    try:
        module = find_agent(pid)
        if module is None:
            return 0.0
        restorers = Restorers.of(memory, agent.zones)
        while True:
            with StoppedProcess(pid) as stop:
                busy = places_in_agent(Standing(stop, memory, restorers), pid, memory, module, agent.zones["kept"])
                if not busy:
                    tid = next(iter(stop.registers))
                    with RemoteThread(tid, memory, own_stack=True, seconds=CALL_SECONDS) as thread:
                        thread.call(agent_function(module, "sg_rings_reset"), ring_of(slot))
                    entries = np.flatnonzero(agent.arena.threads["pid"] == pid).tolist()
                    take_off_recorder(agent.arena, entries, slot)
            if not busy:
                return stop.stood_still
            if time.monotonic() > deadline:
                raise StartError(
                    f"process {pid}: for {_SECONDS:g} seconds a traced call has stood at {busy[0]:#x}, in the middle "
                    "of its entry or return (below a signal handler, or stopped)"
                )
            time.sleep(0.001)
    except OSError:
        if runs(pid):
            raise
        return 0.0
    finally:
        memory.close()
