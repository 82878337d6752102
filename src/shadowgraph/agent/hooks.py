"""Hooking functions of a stopped process: thunks near the module, then a jump at each function's start."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.exchange import Exchange
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.kept import keep, tables_of
from shadowgraph.agent.trampolines import Surroundings, map_trampolines, read_surroundings, write_trampolines
from shadowgraph.errors import StartError
from shadowgraph.image.reasons import Reason
from shadowgraph.patch import ModulePlan, PlanFlag, ThunkBlock, encode_thunks, share_bytes, thunk_space
from shadowgraph.target.memory import Memory, find_gap, read_mappings
from shadowgraph.target.modules import Module
from shadowgraph.target.remote import RemoteThread

__all__ = ["Hooks", "Request", "hook", "place", "restore", "write_jumps"]

_PAGE = 4096
_SYS_MMAP, _SYS_MPROTECT = 9, 10
_READ, _WRITE, _EXEC = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x02 | 0x20
_PRIVATE_ANONYMOUS_FIXED = _PRIVATE_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE


@dataclass(frozen=True)
class Request:
    """Rows of a plan to hook, with the id, flags and variant that go into each one's function record.

    ``values`` maps an index into ``rows`` to the struct sg_values that says what to capture of its calls.
    """

    rows: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]
    variants: npt.NDArray[np.int64]
    values: dict[int, bytes] = field(default_factory=dict)

    def without(self, left_out: npt.NDArray[np.bool_]) -> Request:
        """The request less those rows that a mask says."""
        if not left_out.any():
            return self
        kept = np.flatnonzero(~left_out)
        number = {index: number for number, index in enumerate(kept.tolist())}
        values = {number[index]: value for index, value in self.values.items() if index in number}
        return Request(self.rows[kept], self.ids[kept], self.flags[kept], self.variants[kept], values)


@dataclass(frozen=True)
class Hooks:
    """What was done to one module. ``refused`` maps rows of the plan to the reason found in the running process."""

    module: Module
    thunks: ThunkBlock
    thunk_base: int
    record_base: int
    refused: dict[int, Reason]


def hook(thread: RemoteThread, module: Module, bias: int, plan: ModulePlan, request: Request, agent: Agent) -> Hooks:
    """Hook functions of a module; every thread of the process must be stopped, none within bytes about to change."""
    hooks = place(thread, module, bias, plan, request, agent)
    write_jumps(thread.memory, hooks)
    return hooks


def place(thread: RemoteThread, module: Module, bias: int, plan: ModulePlan, request: Request, agent: Agent) -> Hooks:
    """Do everything for the hooks of a module that changes nothing of it: thunks, records, the way back."""
    memory = thread.memory
    plan, request, unlawful = _adapt(plan, request, bias, read_surroundings(thread.tid, memory.pid))
    map_trampolines(thread, plan, bias)
    code_size = _pages(thunk_space(plan, request.rows))
    record_size = _pages(len(request.rows) * layout.FUNCTION_RECORD_SIZE)
    values = b"".join(request.values.values())
    size = code_size + record_size + _pages(len(values))
    base = _map_near(thread, module, size)
    thunks = encode_thunks(plan, request.rows, bias, base, base + code_size, request.ids, agent.enter, request.flags)
    thunks.records["variant"] = request.variants
    for number, index in enumerate(request.values):
        thunks.records["flags"][index] |= layout.FLAG_VALUES
        thunks.records["values"][index] = base + code_size + record_size + number * layout.values_dtype.itemsize
    memory.write(base + code_size + record_size, values)
    memory.write(base, thunks.code)
    memory.write(base + code_size, thunks.records.tobytes())
    thread.system_call(_SYS_MPROTECT, base, code_size, _READ | _EXEC)
    write_trampolines(thread, thunks, agent.zones["kept"])
    _keep(thread, agent, plan, thunks, base, size)
    refused = unlawful | {int(request.rows[row]): Reason.OUT_OF_REACH for row in thunks.out_of_reach}
    return Hooks(module, thunks, base, base + code_size, refused)


def _adapt(
    plan: ModulePlan, request: Request, bias: int, surroundings: Surroundings
) -> tuple[ModulePlan, Request, dict[int, Reason]]:
    """Plan and request as the running process allows, and what it does not.

    Calls are made from their place where there is room for their trampolines. Those that can only be pushed for are
    left out where a hardware shadow stack would end the program for it.
    """
    plan = share_bytes(plan, request.rows, bias, surroundings.occupied)
    unlawful = (plan.flags[request.rows] & np.uint16(PlanFlag.EMULATED_CALL)) != 0
    unlawful &= surroundings.has_shadow_stack
    refused = dict.fromkeys(request.rows[unlawful].tolist(), Reason.PUSHED_CALL)
    return plan, request.without(unlawful), refused


def _keep(thread: RemoteThread, agent: Agent, plan: ModulePlan, thunks: ThunkBlock, base: int, size: int) -> None:
    """Write down in the process what takes these hooks out again."""
    patches, moves = tables_of(thunks)
    tables_size = _pages(patches.nbytes + moves.nbytes)
    tables = thread.system_call(_SYS_MMAP, 0, tables_size, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    thread.memory.write(tables, patches.tobytes() + moves.tobytes())
    returned_into = bool((plan.flags[thunks.chosen] & np.uint16(PlanFlag.REAL_CALL)).any())
    keep(
        thread.memory,
        agent.zones["kept"],
        {
            "base": base,
            "size": size,
            "patches": tables,
            "moves": tables + patches.nbytes,
            "patch_count": len(patches),
            "move_count": len(moves),
            "flags": layout.KEPT_RETURNED_INTO if returned_into else 0,
            "tables_size": tables_size,
        },
    )


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def write_jumps(memory: Memory, hooks: Hooks) -> npt.NDArray[np.bool_]:
    """Write the jumps of a module whose thunks are in place; bool[p]: which patches have been written.

    Those are left alone whose bytes are not what the file has, and those that need one of them. All are compared before
    the first byte is changed.
    """
    thunks = hooks.thunks
    exchange = Exchange(thunks.patch_address, thunks.patch_size)
    exchange.read(memory)
    usable = thunks.usable(~exchange.holds(thunks.original))
    exchange.write(memory, thunks.replacement, usable)
    for index in np.flatnonzero(~usable).tolist():
        hooks.refused[int(thunks.chosen[thunks.patched[index]])] = Reason.FOREIGN_BYTES
    return usable


def restore(thread: RemoteThread, hooks: Hooks) -> None:
    """Hook a module again that has been unloaded and loaded at the same place since: its thunks are still there."""
    thunks = hooks.thunks
    if not len(thunks.patch_address):
        return
    size = int(thunks.patch_size[0])
    if thread.memory.read(int(thunks.patch_address[0]), size) != thunks.replacement[0, :size].tobytes():
        write_jumps(thread.memory, hooks)


def _map_near(thread: RemoteThread, module: Module, size: int) -> int:
    """Private memory for thunks and function records, within a jump's reach of the module."""
    base = find_gap(read_mappings(thread.memory.pid), module.low, module.high, size)
    if base is None:
        raise StartError(f"{module.path}: no free memory for {size} bytes of thunks within 2 GiB of it")
    got = thread.system_call(_SYS_MMAP, base, size, _READ | _WRITE, _PRIVATE_ANONYMOUS_FIXED, -1, 0)
    if got != base:
        raise StartError(f"{module.path}: memory for its thunks was not mapped where it was asked for")
    return base
