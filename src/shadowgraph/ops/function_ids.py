"""The numbers of functions and modules in one recording."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import UsageError
from shadowgraph.trace.spool_writer import SpoolWriter

__all__ = ["ArenaNumbers", "FunctionIds", "Numbers"]


class Numbers(Protocol):
    """Who gives numbers to functions and modules, and keeps what captured values mean."""

    traced_modules: set[str]

    @property
    def new_values(self) -> list[dict[str, Any]]:
        """What the captured values of functions mean, as far as the trace has not been told."""
        ...

    def module(self, path: str, name: str) -> int:
        """The number of a module."""
        ...

    def functions(self, path: str, addresses: list[int], names: list[str], sizes: list[int]) -> npt.NDArray[np.int64]:
        """The numbers of functions of a module that has one, by their image addresses; 1 or more."""
        ...

    def adopt(self, number: int, path: str, address: int, name: str, size: int) -> int:
        """A function has this number already, by others who have hooked it; returns the one it has in the trace."""
        ...

    def in_trace(self, number: int) -> int:
        """The number in the trace of a function that has this one in its process."""
        ...


class FunctionIds:
    """Numbers for functions, the same for a module in every process of a recording."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, int], int] = {}
        self._taken: set[int] = set()
        self._last = 0
        self.modules: dict[str, int] = {}
        self.traced_modules: set[str] = set()  # those of which any function is hooked for more than our own needs
        self.new_functions: list[tuple[int, str, int, int, int]] = []
        self.new_modules: list[tuple[int, str, str]] = []
        self.new_values: list[dict[str, Any]] = []

    def module(self, path: str, name: str) -> int:
        """The number of a module."""
        if path not in self.modules:
            self.modules[path] = len(self.modules)
            self.new_modules.append((self.modules[path], path, name))
        return self.modules[path]

    def function(self, path: str, address: int, name: str, size: int) -> int:
        """The number of a function, 1 or more."""
        known = self._ids.get((path, address))
        if known is not None:
            return known
        if self._last + 1 >= layout.FUNCTIONS:
            raise UsageError(
                f"more functions than can be hooked ({layout.FUNCTIONS - 1:,}); choose fewer with -f or -m"
            )
        return self._give(self._last + 1, path, address, name, size)

    def _give(self, number: int, path: str, address: int, name: str, size: int) -> int:
        self._ids[path, address] = number
        self._taken.add(number)
        self._last = max(self._last, number)
        self.new_functions.append((number, name, self.modules[path], address, size))
        return number

    def functions(self, path: str, addresses: list[int], names: list[str], sizes: list[int]) -> npt.NDArray[np.int64]:
        """The numbers of many of them."""
        rows = zip(addresses, names, sizes, strict=True)
        return np.array([self.function(path, address, name, size) for address, name, size in rows], np.int64)

    def adopt(self, number: int, path: str, address: int, name: str, size: int) -> int:
        """A function has this number already in a process; returns the one it has here: the same, if that is free."""
        known = self._ids.get((path, address))
        if known is not None:
            return known
        free = number if number not in self._taken else self._last + 1
        return self._give(free, path, address, name, size)

    def in_trace(self, number: int) -> int:
        """The number in the trace of a function that has this one in its process."""
        return number

    def append_new(self, spool: SpoolWriter) -> int:
        """Tell the spool of what has got numbers since the last time; returns how many capture values."""
        if self.new_modules:
            spool.append("modules", [{"module": row[0], "path": row[1], "name": row[2]} for row in self.new_modules])
        if self.new_functions:
            columns = map(list, zip(*self.new_functions, strict=True))
            spool.append("functions", dict(zip(("id", "name", "module", "address", "size"), columns, strict=True)))
        if self.new_values:
            spool.append("values", self.new_values)
        captured = len(self.new_values)
        self.new_modules, self.new_functions, self.new_values = [], [], []
        return captured


class ArenaNumbers:
    """Numbers of functions in an arena that others use as well, taken where all do, and what a trace calls these.

    ``renumbered`` has those that are others in the trace: there a function has one number in all processes.
    """

    def __init__(self, ids: FunctionIds, registry: Registry) -> None:
        self._ids = ids
        self._registry = registry
        self.renumbered: dict[int, int] = {}
        self.traced_modules = ids.traced_modules

    @property
    def new_values(self) -> list[dict[str, Any]]:
        """What captured values mean, for the trace."""
        return self._ids.new_values

    def module(self, path: str, name: str) -> int:
        """The number of a module in the trace."""
        return self._ids.module(path, name)

    def functions(self, path: str, addresses: list[int], names: list[str], sizes: list[int]) -> npt.NDArray[np.int64]:
        """The next numbers of the arena."""
        numbers = self._registry.number_functions(len(addresses))
        for number, address, name, size in zip(numbers.tolist(), addresses, names, sizes, strict=True):
            self.adopt(number, path, address, name, size)
        return numbers

    def adopt(self, number: int, path: str, address: int, name: str, size: int) -> int:
        """A function has this number in the arena; returns the one it has in the trace."""
        known = self._ids.adopt(number, path, address, name, size)
        if known != number:
            self.renumbered[number] = known
        return known

    def in_trace(self, number: int) -> int:
        """The number in the trace of a function that has this one in the arena."""
        return self.renumbered.get(number, number)
