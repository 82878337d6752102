"""Numbers and labels of functions that are hooked while a program runs."""

from __future__ import annotations

from typing import Any

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry
from shadowgraph.ops.choices import Chosen

__all__ = ["LiveNumbers", "wanted"]


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

    def function(self, path: str, address: int, name: str, size: int) -> int:
        """The next number."""
        if self.registry is not None:
            return int(self.registry.number_functions(1)[0])
        self._next += 1
        return self._next - 1

    def adopt(self, number: int, path: str, address: int, name: str, size: int) -> None:
        """Others have hooked the function: what it is called is known by its row."""


def wanted(chosen: Chosen) -> tuple[dict[int, str], set[int]]:
    """The functions to be on, with their labels, and those of them of which only calls from the executable count."""
    labels, callers = {}, set()
    for choice in chosen.choices.values():
        for row, number in choice.numbers.items():
            name = choice.names.get(row) or choice.known.functions.name(row)
            labels[number] = f"{choice.module.name}!{name}"
            if choice.flags[row] & layout.FLAG_CALLER:
                callers.add(number)
    return labels, callers
