"""Hooking as agent/hooks.py does, but with thunks in an object that the program's loader has loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shadowgraph.agent import hooks
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry
from shadowgraph.image import lookup_dynamic, open_image, read_functions, read_unwind_table
from shadowgraph.patch import ModulePlan, encode_thunks, thunk_space
from shadowgraph.patch.thunk_object import build_thunk_object, lay_out
from shadowgraph.patch.thunk_unwind import thunk_rows
from shadowgraph.target.memory import find_gap, read_mappings
from shadowgraph.target.modules import Module, read_modules
from shadowgraph.target.remote import RemoteThread

__all__ = ["ObjectHooks"]

_RTLD_NOW = 2


@dataclass
class ObjectHooks:
    """Stands in for agent.hooks.hook; the objects are written to ``folder``."""

    folder: Path

    def hook(
        self, thread: RemoteThread, module: Module, bias: int, plan: ModulePlan, request: hooks.Request, agent: Agent
    ) -> hooks.Hooks:
        """Hook functions of a module; captured values are not provided for."""
        assert not request.values
        code_size, count = thunk_space(plan, request.rows), len(request.rows)
        size = lay_out(0, code_size, count).size
        base = find_gap(read_mappings(thread.memory.pid), module.low, module.high, size)
        assert base is not None
        place = lay_out(base, code_size, count)
        block = encode_thunks(
            plan, request.rows, bias, place.thunk_base, agent.zones["functions"], request.ids, request.flags
        )
        block.records["variant"] = request.variants
        hooks.set_recorder(block.records, 0)
        image = open_image(module.opened)
        functions = read_functions(image)
        names = [functions.name(row) for row in block.chosen.tolist()]
        rows = thunk_rows(plan, read_unwind_table(image), block.chosen)
        path = self.folder / f"{module.name}.{thread.memory.pid}.thunks"
        path.write_bytes(build_thunk_object(block, rows, place.thunk_base, names, path.name))
        self._load(thread, path, base)
        refused = {int(request.rows[row]): hooks.Reason.OUT_OF_REACH for row in block.out_of_reach}
        placed = hooks.Hooks(module, block, place.thunk_base, agent.zones["functions"], refused)
        agent.arena.functions[block.records["id"]] = block.records
        Registry(agent.arena, agent.zones).lead(block.records["id"])
        hooks.write_jumps(thread.memory, placed)
        return placed

    @staticmethod
    def _load(thread: RemoteThread, path: Path, base: int) -> None:
        libc = next(m for m in read_modules(thread.memory.pid) if m.name == "libc.so.6")
        function = lookup_dynamic(open_image(libc.opened), "dlopen")
        assert function is not None
        assert thread.call(libc.base + function, thread.push(os.fsencode(path) + b"\0"), _RTLD_NOW)
        low = [m.low for m in read_modules(thread.memory.pid) if m.path == str(path)]
        assert low == [base], (low, base)
        assert np.all(np.array(low) % 4096 == 0)
