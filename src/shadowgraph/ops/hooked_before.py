"""What of a process's modules is hooked: by us, by us at the same place in another process, or by others.

Processes that have forked from each other share the records of functions, but no code: each has hooks of its own from
the fork on. Where they load the same module at the same place they may have the same thunks, and so the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from shadowgraph.agent.hooks import Hooks, JumpState, Placed, lay_out_again
from shadowgraph.agent.kept import blocks_in_use, hooked_functions
from shadowgraph.target.memory import Mapping, Memory
from shadowgraph.target.modules import Module

__all__ = ["HookedBefore"]


class HookedBefore:
    """Asked of one process, module by module. ``hooks`` are ours, in whatever process; ``zones`` are the agent's."""

    def __init__(self, memory: Memory, zones: dict[str, int], hooks: Sequence[Hooks]) -> None:
        self._memory = memory
        self._zones = zones
        self._hooks: dict[tuple[str, int], list[Hooks]] = {}
        for one in hooks:
            self._hooks.setdefault((one.module.path, one.module.base), []).append(one)
        self._bases = blocks_in_use(memory, zones["kept"])
        self._functions: dict[int, int] | None = None

    def by_us(self, module: Module) -> list[Hooks] | None:
        """Those of our hooks of the module whose jumps are missing, since it has been loaded again.

        None if it has no hooks of ours, or somebody else has come first.
        """
        known = [one for one in self._hooks_of(module) if one.are_in(self._memory, self._bases)]
        states = [one.jump_state(self._memory) for one in known]
        if not known or JumpState.FOREIGN in states:
            return None
        return [one for one, state in zip(known, states, strict=True) if state is JumpState.GONE]

    def numbers(self, module: Module) -> dict[int, int]:
        """The numbers of its functions that are hooked, by whomever, by the address of their jump."""
        if self._functions is None:
            self._functions = hooked_functions(self._memory, self._zones["kept"])
        return {at: number for at, number in self._functions.items() if module.low <= at < module.high}

    def as_elsewhere(self, module: Module, mappings: Sequence[Mapping]) -> list[Placed]:
        """Hooks of ours in another process that this one may have too: there is room for them among ``mappings``."""
        found: list[Placed] = []
        taken = set(self.numbers(module))
        for one in self._hooks_of(module):
            if one.plan is None:
                continue
            placed = lay_out_again(one, self._zones)
            entries, others = placed.entries, [mapping for other in found for mapping in other.mappings]
            if not taken & entries.keys() and _are_free(placed.mappings, [*mappings, *others]):
                found.append(placed)
                taken |= entries.keys()
        return found

    def _hooks_of(self, module: Module) -> list[Hooks]:
        return [one for one in self._hooks.get((module.path, module.base), ()) if one.is_of(module)]


def _are_free(wanted: Sequence[Mapping], mappings: Sequence[Mapping]) -> bool:
    return not any(one.start < other.end and other.start < one.end for one in wanted for other in mappings)
