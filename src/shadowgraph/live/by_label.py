"""What belongs to functions, by how they are called: put together when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Generic, TypeVar

from shadowgraph.live.found import Found

__all__ = ["ByLabel", "add_up"]

T = TypeVar("T")


class ByLabel(Generic[T]):
    """One thing for each of some functions, in the order of their numbers."""

    def __init__(self, functions: Found, things: Iterable[T], add: Callable[[T, T], T]) -> None:
        self._functions = functions
        self._things = things
        self._add = add

    @cached_property
    def sums(self) -> dict[str, T]:
        """Them by label; of functions of the same name (static ones) they are added up. Not to be changed."""
        functions, add = self._functions, self._add
        numbers, labels = functions.numbers.tolist(), functions.labels
        found: dict[str, T] = {}
        for number, thing in zip(numbers, self._things, strict=True):
            label = labels[number]
            found[label] = add(found[label], thing) if label in found else thing
        return found


def add_up(sums: dict[str, T], more: dict[str, T], add: Callable[[T, T], T]) -> None:
    """Add what belongs to each label."""
    for label, thing in more.items():
        sums[label] = add(sums[label], thing) if label in sums else thing
