"""The list of calls that tests/programs/stack_oracle.cpp keeps, and how a stack trace is held against it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from shadowgraph.stack.frame import FrameKind, StackTrace
from tests.support.stopped import Stopped

__all__ = ["Oracle"]

_LISTS, _DEPTH = 16, 1000
_SIZE = 16 + 8 * _DEPTH
_ENTER, _EXIT = "__cyg_profile_func_enter", "__cyg_profile_func_exit"
# Called by a function that is just entering or leaving: the last by one that an exception has left already.
_IN_BETWEEN = (_ENTER, _EXIT, "_Unwind_Resume")
_UNSEEN = {"main", "_start", "switches", "works", "runs", "coroutine_body", "random_number"}


@dataclass
class Oracle:
    """Reads the lists of a stopped program."""

    stopped: Stopped

    def __post_init__(self) -> None:
        module, known = self.stopped.module(self.stopped.program.name)
        self.bias = known.bias(module)
        self.functions = known.functions
        symbols = {symbol.name: symbol for symbol in _data_symbols(self.stopped.program)}
        self.lists = symbols["oracle_lists"].address + self.bias
        self.ready = symbols["oracle_ready"].address + self.bias

    def calls(self, tid: int) -> list[str] | None:
        """The functions in flight on the list that a thread is on, oldest first; None while it changes lists."""
        found = []
        for index in range(_LISTS):
            at = self.lists + _SIZE * index
            owner, depth = struct.unpack("<qq", self.stopped.memory.read(at, 16))
            if owner == tid:
                data = self.stopped.memory.read(at + 16, 8 * min(depth, _DEPTH))
                found.append([self._name(address) for (address,) in struct.iter_unpack("<Q", data)])
        return found[0] if len(found) == 1 else None

    def _name(self, address: int) -> str:
        row = self.functions.find(address - self.bias) if address >= self.bias else -1
        return self.functions.name(row) if row >= 0 else "?"

    def possible(self, trace: StackTrace) -> list[tuple[str, bool]]:
        """The functions that the list may hold by a trace, oldest first: (name, whether it must hold it).

        One whose frame is the newest, or was interrupted, may just be entering or leaving, and in the middle of noting
        a function its name may not be there yet.
        """
        found: list[tuple[str, bool]] = []
        newer: tuple[str | None, FrameKind] | None = None
        for frame in trace.program_frames:
            if frame.module == self.stopped.program.name and frame.kind is not FrameKind.SIGNAL:
                name = (frame.function or "?").partition(".")[0]
                if name not in _UNSEEN and name not in (_ENTER, _EXIT):
                    certain = newer is not None and newer[1] is not FrameKind.SIGNAL and not _in_between(newer[0])
                    found.append((name, certain))
            newer = (frame.function, frame.kind)
        return found[::-1]

    @staticmethod
    def changes_stacks(trace: StackTrace) -> bool:
        """Whether the thread is on its way from one stack and list to another."""
        return any(frame.function == "switches" for frame in trace.frames)

    def agrees(self, calls: list[str], trace: StackTrace) -> bool:
        """Whether a trace shows the calls of a list."""
        reached = {0}
        for name, certain in self.possible(trace):
            following = set() if certain else set(reached)
            for at in reached:
                if at < len(calls) and (calls[at] == name or not certain):
                    following.add(at + 1)
            reached = following
        return len(calls) in reached


def _in_between(name: str | None) -> bool:
    """Whether a callee of this name leaves it open if its caller is noted; linker-made stubs lead to any function."""
    return name is None or name in _IN_BETWEEN or name.startswith("sub_")


@dataclass(frozen=True)
class _Symbol:
    name: str
    address: int


def _data_symbols(program: object) -> list[_Symbol]:
    from elftools.elf.elffile import ELFFile

    with open(str(program), "rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        return [_Symbol(symbol.name, symbol.entry.st_value) for symbol in table.iter_symbols()]
