"""Numbers and labels of functions that are hooked while a program runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry
from shadowgraph.ops.choices import Choice
from shadowgraph.ops.known_modules import KnownModule
from shadowgraph.target.modules import Module

__all__ = ["LabelsLater", "LiveNumbers", "wanted"]

_Numbers = npt.NDArray[np.int64]


class LiveNumbers:
    """Numbers for functions as a registry gives them."""

    def __init__(self, registry: Registry | None) -> None:
        self.registry = registry
        self.traced_modules: set[str] = set()
        self.new_values: list[dict[str, Any]] = []
        self._next = 1

    def module(self, path: str, name: str) -> int:
        """Modules need no numbers here."""
        return 0

    def functions(self, path: str, addresses: list[int], names: list[str], sizes: list[int]) -> npt.NDArray[np.int64]:
        """The next numbers."""
        count = len(addresses)
        if self.registry is not None:
            return self.registry.number_functions(count)
        self._next += count
        return np.arange(self._next - count, self._next)

    def adopt(self, number: int, path: str, address: int, name: str, size: int) -> int:
        """Others have hooked the function: what it is called is known by its row."""
        return number

    def in_trace(self, number: int) -> int:
        """There is none."""
        return number


def wanted(choices: Iterable[Choice]) -> tuple[dict[int, str], set[int]]:
    """The functions to be on, with their labels, and those of them of which only calls from the executable count."""
    labels, callers = {}, set()
    for choice in choices:
        module, table = choice.module.name, choice.known.functions
        names = table.preferred_names if len(choice.numbers) > len(table) // 4 else None
        for row, number in choice.numbers.items():
            name = choice.names.get(row) or (names[row] if names is not None else table.name(row))
            labels[number] = f"{module}!{name}"
            if choice.flags[row] & layout.FLAG_CALLER:
                callers.add(number)
    return labels, callers


class LabelsLater:
    """Labels of functions of one module, by number: made when they are asked for, without a look at its file then."""

    def __init__(
        self, module: Module, known: KnownModule, rows: _Numbers, numbers: _Numbers, own: Mapping[int, str]
    ) -> None:
        """``own``: what some of the rows are called instead."""
        table = known.functions
        if "preferred_names" in vars(table) or len(rows) > len(table) // 4:
            self._names: Sequence[str] | dict[int, str] = table.preferred_names
        else:
            self._names = {row: table.name(row) for row in rows.tolist()}
        self._module, self._rows, self._numbers, self._own = module.name, rows, numbers, own

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for row, number in zip(self._rows.tolist(), self._numbers.tolist(), strict=True):
            yield number, f"{self._module}!{self._own.get(row) or self._names[row]}"
