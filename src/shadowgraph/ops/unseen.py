"""Libraries that a forked child loads by itself: its code is its own from the fork on, and nobody hooks it.

The table of what is hooked where (``addresses`` in the arena) is that of all processes that share it; another library
at the same place in one of them would be wrong for the others.
"""

from __future__ import annotations

from shadowgraph.agent.inject import is_agent
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.present import hooked_in
from shadowgraph.ops.processes import runs
from shadowgraph.ops.selection import Selection
from shadowgraph.target.memory import Memory
from shadowgraph.target.modules import Module, read_modules

__all__ = ["unseen_in_child"]


def unseen_in_child(
    pid: int, parent: int, selection: Selection, known_modules: KnownModules, registry: Registry
) -> list[str]:
    """Sentences about libraries in a forked child of which functions are wanted, and none is hooked.

    A library that the ``parent`` has, too, and in which nothing is hooked there, has nothing that could be.
    """
    try:
        memory = Memory(pid)
        try:
            hooked = registry.known()
            there = {(module.path, module.base) for module in read_modules(parent)} if runs(parent) else set()
            names = [
                module.name
                for module in read_modules(pid)
                if ((module.path, module.base) not in there or any(module.low <= at < module.high for at in hooked))
                and _is_wanted(module, selection, known_modules)
                and not hooked_in(memory, module, registry)
            ]
        finally:
            memory.close()
    except (ShadowgraphError, OSError):
        return []  # it has ended
    return [f"a forked child has loaded {name} by itself; calls there are not seen" for name in names]


def _is_wanted(module: Module, selection: Selection, known_modules: KnownModules) -> bool:
    if is_agent(module) or not selection.touches(module.name):
        return False
    names = known_modules.get(module).name_index
    return bool(names.wanted(selection.of_libraries(), module.name, default=selection.everything).any())
