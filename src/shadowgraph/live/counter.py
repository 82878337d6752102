"""Counting calls: the cheapest user. Nothing is done at the exit, and there is no time stamp."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.live.by_label import ByLabel, add_up
from shadowgraph.live.found import Found, Numbers
from shadowgraph.live.own_cells import OwnCells
from shadowgraph.live.shared_cells import Readings, SharedCells
from shadowgraph.live.user import Place, User

__all__ = ["Counter"]

_Counts = npt.NDArray[np.int64]


class Counter(User):
    """Counts the calls of functions.

    All counters without a condition share one cell for each function; what each has seen is the difference of two
    readings. Whoever takes it off makes the last one; there is room for it in the pool.
    """

    def __init__(self, functions: Sequence[str], *, when: str | None = None, name: str = "") -> None:
        super().__init__(functions, when=when, name=name)
        self._begin_anew()

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._own = OwnCells(1)
        self._shared = SharedCells()
        self._kept: ByLabel[int] | None = None
        self._counts_before: dict[str, int] = {}  # in programs that are over

    def pool_size(self, registry: Registry, numbers: Numbers) -> int:
        """Room for the last reading; with a condition, the table of its own cells."""
        registry.give_cells(numbers)
        return 8 * len(numbers) if self.when is None else self._own.pool_size(registry, numbers)

    def row(self, registry: Registry, cells: Cells, numbers: Numbers, at: int) -> UserRow:
        """Register on the shared cells, and note what is in them; with a condition, on cells of its own."""
        if self.when is not None:
            fields = self._own.fields(registry, cells, numbers, at)
            return UserRow(layout.USER_COUNTER, self.name, self.selection.text, at_entry=True, fields=fields)
        self._shared.begin(numbers, _read(registry, cells, numbers))
        return UserRow(layout.USER_COUNTER, self.name, self.selection.text, shares_counter=True, is_simple=True)

    def make_room(self, place: Place, found: Found) -> None:
        """The same for other functions."""
        numbers = found.numbers
        place.registry.give_cells(numbers)
        if self.when is not None:
            self._own.grow(place.registry, place.cells, place.slot, numbers)
            return
        row, size = place.registry.user(place.slot), 8 * len(numbers)
        if size > row["pool_size"]:  # no thread looks there
            row["pool_at"], row["pool_size"] = place.cells.find_pool(size), size

    def exchanged(self, functions: Found, readings: Readings) -> None:
        """It is on these functions now."""
        super().exchanged(functions, readings)
        if self.when is None:
            self._shared.exchange(self.place.numbers, functions.numbers, readings)

    def registered(self, place: Place) -> None:
        """It has a place now."""
        super().registered(place)
        self._counts_before = {}

    def _add(self, part: Self) -> None:
        add_up(self._counts_before, part._last_counts, operator.add)

    def counts(self) -> dict[str, int]:
        """The calls so far of each function that it is on or has been on, by ``module!function``."""
        with self.changing:
            found = self._last_counts if self._place is None else dict(self._counts_at(self._place).sums)
            for more in (self._counts_before, *(part.counts() for part in self._parts)):
                add_up(found, more, operator.add)
            return found

    def _arm(self, place: Place, *, on: bool) -> None:
        """Calls pass uncounted until it is armed again."""
        if on and self._shared.paused:
            self._shared.resume(_read(place.registry, place.cells, place.numbers))
        super()._arm(place, on=on)
        if not on and self.when is None and not self._shared.paused:
            self._shared.pause(_read(place.registry, place.cells, place.numbers))

    def keep(self, place: Place) -> None:
        """Keep the last counts."""
        self._kept = self._counts_at(place)

    @property
    def _last_counts(self) -> dict[str, int]:
        """Those it had when its place was given up."""
        return {} if self._kept is None else dict(self._kept.sums)

    def _counts_at(self, place: Place) -> ByLabel[int]:
        if self.when is not None:
            return ByLabel(place.functions, [int(row[0]) for row in self._own.read(place.cells)], operator.add)
        now = self._last(place) if place.is_ended else _read(place.registry, place.cells, place.numbers)
        if place.is_ended:  # in the meantime
            now = self._last(place)
        return ByLabel(place.functions, self._shared.counts(now).tolist(), operator.add)

    def _last(self, place: Place) -> _Counts:
        """What the shared cells of its functions had when somebody else took it off."""
        at, inside = int(place.registry.user(place.slot)["pool_at"]), self._shared.inside
        found = np.zeros(len(place.numbers), np.int64)
        found[inside] = place.registry.arena.pool[at : at + 8 * int(inside.sum())].view(np.int64)
        return found


def _read(registry: Registry, cells: Cells, numbers: npt.NDArray[np.int64]) -> _Counts:
    found: _Counts = cells.read_each(registry.cells_of(numbers)).view(np.int64)
    return found
