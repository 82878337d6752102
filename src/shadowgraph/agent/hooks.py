"""Hooking functions of a stopped process: thunks near the module, then a jump at each function's start."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.exchange import Exchange
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.kept import keep, tables_of
from shadowgraph.agent.registry import Registry
from shadowgraph.agent.rings import Rings
from shadowgraph.agent.trampolines import (
    Surroundings,
    map_trampolines,
    read_surroundings,
    trampoline_pages,
    write_trampolines,
)
from shadowgraph.errors import StartError
from shadowgraph.image.reasons import Reason
from shadowgraph.patch import ModulePlan, PlanFlag, ThunkBlock, encode_thunks, share_bytes, thunk_space
from shadowgraph.patch.thunks import HEAD_SIZE
from shadowgraph.target.memory import Mapping, Memory, find_gap, read_mappings
from shadowgraph.target.modules import Module
from shadowgraph.target.remote import RemoteThread

__all__ = [
    "Hooks",
    "JumpState",
    "Jumps",
    "Placed",
    "Request",
    "hook",
    "lay_out",
    "lay_out_again",
    "map_all",
    "set_recorder",
    "write_jumps",
]

_PAGE = 4096
_SYS_MMAP, _SYS_MPROTECT, _SYS_MUNMAP = 9, 10, 11
_READ, _WRITE, _EXEC = 1, 2, 4
_PRIVATE_ANONYMOUS = 0x02 | 0x20
_PRIVATE_ANONYMOUS_FIXED = _PRIVATE_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE


@dataclass(frozen=True)
class Request:
    """Rows of a plan to hook, with the id, flags and variant that go into each one's function record.

    ``values`` maps an index into ``rows`` to the struct sg_values that says what to capture of its calls. ``recorder``:
    they get the recorder in this slot for a user at once; else they have none until somebody registers.
    """

    rows: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]
    variants: npt.NDArray[np.int64]
    values: dict[int, bytes] = field(default_factory=dict)
    recorder: int | None = 0

    def without(self, left_out: npt.NDArray[np.bool_]) -> Request:
        """The request less those rows that a mask says."""
        if not left_out.any():
            return self
        kept = np.flatnonzero(~left_out)
        number = {index: number for number, index in enumerate(kept.tolist())}
        values = {number[index]: value for index, value in self.values.items() if index in number}
        return replace(
            self,
            rows=self.rows[kept],
            ids=self.ids[kept],
            flags=self.flags[kept],
            variants=self.variants[kept],
            values=values,
        )


class JumpState(Enum):
    """What is where jumps were written: they, the code as it was (of a module that came again), or others' bytes."""

    THERE = 0
    GONE = 1
    FOREIGN = 2


@dataclass(frozen=True)
class Hooks:
    """What was done to one module. ``refused`` maps rows of the plan to the reason found in the running process.

    ``table`` is where the process has the function records. ``plan`` is that of the module with what the surroundings
    allow, for ``bias``; the same can be done again by it in a process that has the ``file`` at the same place.
    """

    module: Module
    thunks: ThunkBlock
    thunk_base: int
    table: int
    refused: dict[int, Reason]
    plan: ModulePlan | None = None
    bias: int = 0
    file: tuple[int, ...] = ()

    def is_of(self, module: Module) -> bool:
        """Whether a loaded module is the one that these hooks are for: the same file at the same place."""
        return (module.path, module.base, _identity(module)) == (self.module.path, self.module.base, self.file)

    def are_in(self, memory: Memory, bases: Container[int]) -> bool:
        """Whether these very thunks are in a process, which has blocks of thunks at ``bases``."""
        if self.thunk_base not in bases:
            return False
        head = self.thunks.code[:HEAD_SIZE]  # with the place of a record that no other thunk has
        return memory.read(self.thunk_base, len(head)) == head

    def jump_state(self, memory: Memory) -> JumpState:
        """Whether the jumps that lead to these thunks are in a process that has the module."""
        thunks = self.thunks
        if not len(thunks.patch_address):
            return JumpState.THERE
        size = int(thunks.patch_size[0])
        found = memory.read(int(thunks.patch_address[0]), size)
        for state, bytes_then in ((JumpState.THERE, thunks.replacement), (JumpState.GONE, thunks.original)):
            if found == bytes_then[0, :size].tobytes():
                return state
        return JumpState.FOREIGN


def hook(thread: RemoteThread, module: Module, bias: int, plan: ModulePlan, request: Request, agent: Agent) -> Hooks:
    """Hook functions of a module; every thread of the process must be stopped, none within bytes about to change."""
    pid = thread.memory.pid
    placed = lay_out(pid, read_mappings(pid), module, bias, plan, request, agent.zones)
    placed.map(thread)
    placed.map_way_back(thread)
    placed.fill(thread.memory)
    placed.fill_records(agent)
    write_jumps(thread.memory, placed.hooks)
    return placed.hooks


@dataclass
class Placed:
    """What is to be written for the hooks of a module, beside the jumps, and where.

    ``mappings`` are all that it takes. ``recorder`` and ``values`` are those of the request, the latter by function
    number. ``patches`` and ``moves`` are the way back (agent/kept.py); where they lie is known once they are mapped.
    """

    hooks: Hooks
    plan: ModulePlan
    bias: int
    size: int
    recorder: int | None
    values: dict[int, bytes]
    patches: npt.NDArray[np.void]
    moves: npt.NDArray[np.void]
    kept_at: int
    mappings: list[Mapping]
    tables: int = 0

    def map(self, thread: RemoteThread) -> None:
        """Map thunks and trampolines where they were laid out; FileExistsError, and nothing mapped, if taken."""
        base, module = self.hooks.thunk_base, self.hooks.module
        got = thread.system_call(_SYS_MMAP, base, self.size, _READ | _WRITE, _PRIVATE_ANONYMOUS_FIXED, -1, 0)
        if got != base:
            raise StartError(f"{module.path}: memory for its thunks was not mapped where it was asked for")
        thread.system_call(_SYS_MPROTECT, base, self.size, _READ | _EXEC)
        try:
            map_trampolines(thread, self.plan, self.bias)
        except FileExistsError:
            thread.system_call(_SYS_MUNMAP, base, self.size)
            raise

    def unmap(self, thread: RemoteThread) -> None:
        """Undo map()."""
        for mapping in self.mappings:
            thread.system_call(_SYS_MUNMAP, mapping.start, mapping.end - mapping.start)

    def map_way_back(self, thread: RemoteThread) -> None:
        """Map the tables of the way back, wherever there is room, and write the trampolines."""
        size = self._tables_size
        self.tables = thread.system_call(_SYS_MMAP, 0, size, _READ | _WRITE, _PRIVATE_ANONYMOUS, -1, 0)
        write_trampolines(thread, self.hooks.thunks, self.kept_at)

    @property
    def entries(self) -> dict[int, int]:
        """The number of each function that is to be hooked, by the address of its jump."""
        entries = self.patches[self.patches["is_entry"] != 0]
        return dict(zip(entries["address"].tolist(), entries["number"].tolist(), strict=True))

    @property
    def _tables_size(self) -> int:
        return _pages(self.patches.nbytes + self.moves.nbytes)

    def fill(self, memory: Memory) -> None:
        """Write everything, and note in the process what takes it out again. Threads may run."""
        thunks = self.hooks.thunks
        memory.write(self.hooks.thunk_base, thunks.code)
        memory.write(self.tables, self.patches.tobytes() + self.moves.tobytes())
        returned_into = bool((self.plan.flags[thunks.chosen] & np.uint16(PlanFlag.REAL_CALL)).any())
        keep(
            memory,
            self.kept_at,
            {
                "base": self.hooks.thunk_base,
                "size": self.size,
                "patches": self.tables,
                "moves": self.tables + self.patches.nbytes,
                "patch_count": len(self.patches),
                "move_count": len(self.moves),
                "flags": layout.KEPT_RETURNED_INTO if returned_into else 0,
                "tables_size": self._tables_size,
            },
        )

    def fill_records(self, agent: Agent) -> None:
        """Write the function records, before anything leads to them.

        Each is written once: all processes that share the arena go by it whose thunks lead there.
        """
        thunks, arena = self.hooks.thunks, agent.arena
        numbers = thunks.records["id"]
        with arena.locked():
            if arena.functions["body"][numbers].any():
                raise StartError(f"{self.hooks.module.path}: its functions' numbers are in use in this process")
            if self.recorder is not None and self.values:
                Rings(arena, self.recorder).put_values(self.values)
            arena.functions[numbers] = thunks.records
            if len(numbers):
                arena.registry["next_function"] = max(int(arena.registry["next_function"]), int(numbers.max()) + 1)
            Registry(arena, agent.zones).lead(numbers)


def map_all(thread: RemoteThread, placed: Sequence[Placed]) -> bool:
    """Map what several modules' hooks take; False, with nothing mapped, if a place is not free any more."""
    for index, place in enumerate(placed):
        try:
            place.map(thread)
        except FileExistsError:
            for mapped in placed[:index]:
                mapped.unmap(thread)
            return False
    for place in placed:
        place.map_way_back(thread)
    return True


def lay_out(
    pid: int,
    mappings: list[Mapping],
    module: Module,
    bias: int,
    plan: ModulePlan,
    request: Request,
    zones: dict[str, int],
) -> Placed:
    """Make everything for the hooks of a module, for places that are free in these mappings; touches nothing."""
    plan, request, unlawful = _adapt(plan, request, bias, read_surroundings(pid, pid, mappings))
    trampolines = [Mapping(start, start + size, "r-xp", 0, "") for start, size in trampoline_pages(plan, bias)]
    size = _pages(thunk_space(plan, request.rows))
    taken = sorted([*mappings, *trampolines], key=lambda mapping: mapping.start)
    base = find_gap(taken, module.low, module.high, size)
    if base is None:
        raise StartError(f"{module.path}: no free memory for {size} bytes of thunks within 2 GiB of it")
    thunks = encode_thunks(plan, request.rows, bias, base, zones["functions"], request.ids, request.flags)
    thunks.records["variant"] = request.variants
    values = {}
    for index, items in request.values.items():
        thunks.records["flags"][index] |= layout.FLAG_VALUES | layout.FLAG_VECTORS
        values[int(request.ids[index])] = items
    if request.recorder is not None:
        set_recorder(thunks.records, request.recorder)
    refused = unlawful | {int(request.rows[row]): Reason.OUT_OF_REACH for row in thunks.out_of_reach}
    hooks = Hooks(module, thunks, base, zones["functions"], refused, plan, bias, _identity(module))
    return _placed(hooks, plan, request.recorder, values, zones)


def lay_out_again(hooks: Hooks, zones: dict[str, int]) -> Placed:
    """The same hooks, with the records that they have, for another process that has the module at the same place."""
    assert hooks.plan is not None
    return _placed(replace(hooks, refused={}), hooks.plan, None, {}, zones)


def _placed(
    hooks: Hooks, plan: ModulePlan, recorder: int | None, values: dict[int, bytes], zones: dict[str, int]
) -> Placed:
    base, size = hooks.thunk_base, _pages(len(hooks.thunks.code))
    ranges = [(base, size), *trampoline_pages(plan, hooks.bias)]
    own = [Mapping(start, start + length, "r-xp", 0, "") for start, length in ranges]
    return Placed(hooks, plan, hooks.bias, size, recorder, values, *tables_of(hooks.thunks), zones["kept"], own)


def _identity(module: Module) -> tuple[int, ...]:
    """What tells the file of a module from one that replaces it."""
    try:
        status = os.stat(module.opened)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def set_recorder(records: npt.NDArray[np.void], slot: int) -> None:
    """Make the recorder in a slot the user of all functions that are not hooked for the agent's own needs alone."""
    bit = np.uint64(1 << slot)
    traced = records["flags"] & layout.FLAG_SILENT == 0
    records["users"] = np.where(traced, bit, np.uint64(0))[:, None]
    records["callers"] = np.where(traced & (records["flags"] & layout.FLAG_CALLER != 0), bit, np.uint64(0))


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


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


class Jumps:
    """The jumps of a module whose thunks are in place, compared with what the process has, and not yet written.

    ``usable`` is bool[p]: which patches will be. Those are left alone whose bytes are not what the file has, and those
    that need one of them.
    """

    def __init__(self, memory: Memory, hooks: Hooks) -> None:
        self._memory = memory
        self._thunks = thunks = hooks.thunks
        self._exchange = Exchange(thunks.patch_address, thunks.patch_size)
        self._exchange.read(memory)
        self.usable = thunks.usable(~self._exchange.holds(thunks.original))
        for index in np.flatnonzero(~self.usable).tolist():
            hooks.refused[int(thunks.chosen[thunks.patched[index]])] = Reason.FOREIGN_BYTES

    def write(self) -> None:
        """Write them."""
        self._exchange.write(self._memory, self._thunks.replacement, self.usable)


def write_jumps(memory: Memory, hooks: Hooks) -> None:
    """Write the jumps of a module in which no thread stands among the bytes that are about to change."""
    Jumps(memory, hooks).write()
