"""Sequences whose items are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

__all__ = ["Lazily"]

T = TypeVar("T")


class Lazily(Sequence[T], Generic[T]):
    """``count`` items; ``make`` makes the one at an index, once."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count = count
        self._make = make
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self[i] for i in range(self._count)[index]]
        place = range(self._count)[index]
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]
