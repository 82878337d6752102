"""The numbers of functions and modules in one recording."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Agent
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import StartError
from shadowgraph.trace.spool_writer import SpoolWriter

__all__ = ["FunctionIds", "Numbers"]


class Numbers(Protocol):
    """Who gives numbers to functions and modules, and keeps what captured values mean."""

    traced_modules: set[str]
    new_values: list[dict[str, Any]]

    def module(self, path: str, name: str) -> int:
        """The number of a module."""
        ...

    def functions(self, path: str, addresses: list[int], names: list[str], sizes: list[int]) -> npt.NDArray[np.int64]:
        """The numbers of functions of a module that has one, by their image addresses; 1 or more."""
        ...

    def adopt(self, number: int, path: str, address: int, name: str, size: int) -> None:
        """A function has this number already, by others who have hooked it."""
        ...


class FunctionIds:
    """Numbers for functions, the same for a module in every process of a recording."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, int], int] = {}
        self._registry: Registry | None = None
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
        key = (path, address)
        known = self._ids.get(key)
        if known is None:
            known = self._take_number()
            if known >= layout.FUNCTIONS:
                raise StartError(
                    f"more functions than can be hooked ({layout.FUNCTIONS - 1:,}); choose fewer with -f or -m"
                )
            self._ids[key] = known
            self.new_functions.append((known, name, self.modules[path], address, size))
        return known

    def functions(self, path: str, addresses: list[int], names: list[str], sizes: list[int]) -> npt.NDArray[np.int64]:
        """The numbers of many of them."""
        rows = zip(addresses, names, sizes, strict=True)
        return np.array([self.function(path, address, name, size) for address, name, size in rows], np.int64)

    def adopt(self, number: int, path: str, address: int, name: str, size: int) -> None:
        """A function has this number already, by others who have hooked it."""
        if self._ids.setdefault((path, address), number) == number:
            self.new_functions.append((number, name, self.modules[path], address, size))

    def join(self, agent: Agent) -> int:
        """Take numbers where all users of a process do; the tick from which their time counts."""
        self._registry = Registry(agent.arena, agent.zones)
        return int(agent.arena.header["tick_base"])

    def share(self, agent: Agent) -> None:
        """From now on take numbers that are neither ours already, in whatever process, nor those of others here."""
        registry = Registry(agent.arena, agent.zones)
        registry.skip_numbers(max(self._ids.values(), default=0))
        self._registry = registry

    def _take_number(self) -> int:
        if self._registry is not None:
            return int(self._registry.number_functions(1)[0])
        return len(self._ids) + 1

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
