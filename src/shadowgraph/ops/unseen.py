"""Libraries that a forked child has loaded by itself and that could not be hooked there."""

from __future__ import annotations

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.agent.kept import hooked_functions
from shadowgraph.errors import ShadowgraphError
from shadowgraph.ops.entering import choose_loaded
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.processes import runs
from shadowgraph.ops.selection import Selection
from shadowgraph.target.memory import Memory
from shadowgraph.target.modules import Module, read_modules

__all__ = ["unseen_in_child"]


def unseen_in_child(
    pid: int, selection: Selection, known_modules: KnownModules, table: int, reason: Exception
) -> list[str]:
    """Sentences about libraries in a forked child of which functions are wanted and none is hooked, for a ``reason``.

    ``table`` is where its agent notes what is hooked. None if it has ended.
    """
    try:
        memory = Memory(pid)
        try:
            hooked = hooked_functions(memory, table)
            names = [
                module.name
                for module in read_modules(pid)
                if not any(module.low <= at < module.high for at in hooked)
                and _is_wanted(module, selection, known_modules)
            ]
        finally:
            memory.close()
    except (ShadowgraphError, OSError):
        return []  # it has ended
    if not names and runs(pid):
        return [f"not all that a forked child has loaded by itself is seen: {reason}"]
    return [f"a forked child has loaded {name} by itself; calls there are not seen: {reason}" for name in names]


def _is_wanted(module: Module, selection: Selection, known_modules: KnownModules) -> bool:
    choice = choose_loaded(module, selection, known_modules)
    if choice is None:
        return False
    rows = np.array([row for row, flags in choice.flags.items() if not flags & layout.FLAG_SILENT], np.int64)
    return bool(choice.known.plan(rows).hookable[rows].any())
