"""Hooking functions of a stopped process: thunks near the module, then a jump at each function's start."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.errors import StartError
from shadowgraph.image.reasons import Reason
from shadowgraph.patch import ModulePlan, ThunkBlock, encode_thunks, thunk_space
from shadowgraph.target.memory import find_gap, read_mappings
from shadowgraph.target.modules import Module
from shadowgraph.target.remote import RemoteThread

__all__ = ["Hooks", "Request", "hook", "restore"]

_PAGE = 4096
_SYS_MMAP, _SYS_MPROTECT = 9, 10
_READ, _WRITE, _EXEC = 1, 2, 4
_PRIVATE_ANONYMOUS_FIXED = 0x02 | 0x20 | 0x100000  # MAP_FIXED_NOREPLACE


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


@dataclass(frozen=True)
class Hooks:
    """What was done to one module. ``refused`` maps rows of the plan to the reason found in the running process."""

    module: Module
    thunks: ThunkBlock
    thunk_base: int
    record_base: int
    refused: dict[int, Reason]


def hook(thread: RemoteThread, module: Module, bias: int, plan: ModulePlan, request: Request, enter: int) -> Hooks:
    """Hook functions of a module; every thread of the process must be stopped, none within bytes about to change."""
    memory = thread.memory
    code_size = -(-thunk_space(plan, request.rows) // _PAGE) * _PAGE
    record_size = -(-len(request.rows) * layout.FUNCTION_RECORD_SIZE // _PAGE) * _PAGE
    values = b"".join(request.values.values())
    base = _map_near(thread, module, code_size + record_size + -(-len(values) // _PAGE) * _PAGE)
    thunks = encode_thunks(plan, request.rows, bias, base, base + code_size, request.ids, enter, request.flags)
    thunks.records["variant"] = request.variants
    for place, index in enumerate(request.values):
        thunks.records["flags"][index] |= layout.FLAG_VALUES
        thunks.records["values"][index] = base + code_size + record_size + place * layout.values_dtype.itemsize
    memory.write(base + code_size + record_size, values)
    memory.write(base, thunks.code)
    memory.write(base + code_size, thunks.records.tobytes())
    thread.system_call(_SYS_MPROTECT, base, code_size, _READ | _EXEC)
    refused = {int(request.rows[row]): Reason.OUT_OF_REACH for row in thunks.out_of_reach}
    foreign = _write_jumps(thread, thunks)
    refused |= {int(request.rows[thunks.patched[index]]): Reason.FOREIGN_BYTES for index in foreign}
    return Hooks(module, thunks, base, base + code_size, refused)


def restore(thread: RemoteThread, hooks: Hooks) -> None:
    """Hook a module again that has been unloaded and loaded at the same place since: its thunks are still there."""
    thunks = hooks.thunks
    if not len(thunks.patch_address):
        return
    size = int(thunks.patch_size[0])
    if thread.memory.read(int(thunks.patch_address[0]), size) != thunks.replacement[0, :size].tobytes():
        _write_jumps(thread, thunks)


def _map_near(thread: RemoteThread, module: Module, size: int) -> int:
    """Private memory for thunks and function records, within a jump's reach of the module."""
    base = find_gap(read_mappings(thread.memory.pid), module.low, module.high, size)
    if base is None:
        raise StartError(f"{module.path}: no free memory for {size} bytes of thunks within 2 GiB of it")
    got = thread.system_call(_SYS_MMAP, base, size, _READ | _WRITE, _PRIVATE_ANONYMOUS_FIXED, -1, 0)
    if got != base:
        raise StartError(f"{module.path}: memory for its thunks was not mapped where it was asked for")
    return base


def _write_jumps(thread: RemoteThread, thunks: ThunkBlock) -> list[int]:
    """Write the jumps, page by page, and return those that were left alone.

    These are the ones whose bytes are not what the file has, and those that need one of them. All are compared before
    the first byte is changed. Pages without a hook stay shared with the file.
    """
    memory = thread.memory
    order = np.argsort(thunks.patch_address, kind="stable")
    address = thunks.patch_address[order].astype(np.int64)
    if not len(address):
        return []
    offsets = np.arange(thunks.original.shape[1])
    changed = offsets < np.asarray(thunks.patch_size)[order][:, None]
    first, last = address // _PAGE, (address + len(offsets) - 1) // _PAGE
    runs = np.split(np.arange(len(address)), np.flatnonzero(first[1:] > last[:-1] + 1) + 1)
    differs = np.zeros(len(address), np.bool_)
    pages = []
    for run in runs:
        start, end = int(first[run[0]]) * _PAGE, (int(last[run[-1]]) + 1) * _PAGE
        data = np.frombuffer(bytearray(memory.read(start, end - start)), np.uint8)
        places = (address[run] - start)[:, None] + offsets
        same = (data[places] == thunks.original[order[run]]) | ~changed[run]
        differs[order[run]] = ~same.all(axis=1)
        pages.append((start, data, places))
    usable = thunks.usable(differs)
    for run, (start, data, places) in zip(runs, pages, strict=True):
        wanted = changed[run] & usable[order[run]][:, None]
        data[places[wanted]] = thunks.replacement[order[run]][wanted]
        memory.write(start, data.data)
    return np.flatnonzero(~usable).tolist()
