"""Stack traces of a stopped, traced thread that say whether they can be relied on (R6, R22 to R26)."""

from __future__ import annotations

from collections.abc import Sequence

from shadowgraph.agent.hooks import Hooks
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.zones import ZoneTable
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.stack.code import CodeMap
from shadowgraph.stack.frame import Lost, StackTrace
from shadowgraph.stack.snapshot import Snapshot
from shadowgraph.stack.walk import Walk
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.ptrace import Registers

__all__ = ["MOST_FRAMES", "Unwinder", "trace"]

# Deeper stacks are cut, and say so: a million frames take some ten seconds.
MOST_FRAMES = 1 << 20

# System V ABI, AMD64 supplement, figure 3.36: DWARF register numbers 0 to 16.
_DWARF_ORDER = ("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *(f"r{i}" for i in range(8, 16)), "rip")


class Unwinder:
    """Traces threads of one process; what it learns about the process's files is kept from trace to trace.

    ``agent`` and ``hooks``: what is in the process of ours; none for a process that is not traced.
    """

    def __init__(
        self, memory: Memory, known_modules: KnownModules, hooks: Sequence[Hooks] = (), agent: Agent | None = None
    ) -> None:
        self.memory = memory
        self.codes = CodeMap(memory, known_modules)
        self.zones = ZoneTable(agent.zones, _text_of(memory.pid, agent), hooks) if agent else None

    def trace(self, registers: Registers, most: int = MOST_FRAMES) -> StackTrace:
        """The stack of a stopped thread with these registers, newest frame first. Never raises for what it finds."""
        walk = self.walk(registers)
        try:
            walk.run(most)
        except Lost as lost:
            return StackTrace(tuple(walk.frames), False, str(lost))
        return StackTrace(tuple(walk.frames), True, None)

    def walk(self, registers: Registers) -> Walk:
        """A walk that begins at these registers, to be run."""
        self.codes.refresh()
        numbered = {number: int(getattr(registers, name)) for number, name in enumerate(_DWARF_ORDER)}
        return Walk(self.codes, self.zones, Snapshot(self.memory), numbered)


def trace(
    registers: Registers,
    memory: Memory,
    known_modules: KnownModules,
    hooks: Sequence[Hooks] = (),
    agent: Agent | None = None,
) -> StackTrace:
    """The stack of one stopped thread; use an :class:`Unwinder` for more than one trace."""
    return Unwinder(memory, known_modules, hooks, agent).trace(registers)


def _text_of(pid: int, agent: Agent) -> tuple[int, int]:
    """The executable memory of the agent."""
    parts = [m for m in read_mappings(pid) if agent.module.low <= m.start < agent.module.high and "x" in m.permissions]
    return min(part.start for part in parts), max(part.end for part in parts)
