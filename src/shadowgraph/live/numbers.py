"""Numbers for functions that are hooked while a program runs."""

from __future__ import annotations

from typing import Any

from shadowgraph.agent.registry import Registry

__all__ = ["LiveNumbers"]


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
