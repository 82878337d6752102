"""Counting calls: the cheapest user. Nothing is done at the exit, and there is no time stamp."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.live.own_cells import OwnCells
from shadowgraph.live.user import Numbers, Place, User

__all__ = ["Counter"]

_Counts = npt.NDArray[np.int64]


class Counter(User):
    """Counts the calls of functions.

    All counters without a condition share one cell for each function; what each has seen is the difference of two
    readings. Whoever takes it off makes the last one; there is room for it in the pool.
    """

    def __init__(self, functions: Sequence[str], *, when: str | None = None, name: str = "") -> None:
        super().__init__(functions, when=when, name=name)
        self._own = OwnCells(1)
        self._before: _Counts = np.zeros(0, np.int64)
        self._kept: dict[str, int] = {}
        self._paused_at: _Counts | None = None

    def pool_size(self, registry: Registry, numbers: Numbers) -> int:
        """Room for the last reading; with a condition, the table of its own cells."""
        registry.give_cells(numbers)
        return 8 * len(numbers) if self.when is None else self._own.pool_size(registry, numbers)

    def row(self, registry: Registry, cells: Cells, numbers: Numbers, at: int) -> UserRow:
        """Register on the shared cells, and note what is in them; with a condition, on cells of its own."""
        if self.when is not None:
            fields = self._own.fields(registry, cells, numbers, at)
            return UserRow(layout.USER_COUNTER, self.name, self.selection.text, at_entry=True, fields=fields)
        self._before = _read(registry, cells, numbers)
        return UserRow(layout.USER_COUNTER, self.name, self.selection.text, shares_counter=True)

    def counts(self) -> dict[str, int]:
        """The calls so far of each function, by ``module!function``."""
        if self._place is None:
            return dict(self._kept)
        return self._counts_at(self._place)

    def pause(self) -> None:
        """Let calls pass uncounted until :meth:`resume`."""
        super().pause()
        if self._paused_at is None and self.when is None:
            self._paused_at = self._read_now()

    def resume(self) -> None:
        """Go on counting."""
        if self._paused_at is not None:
            self._before = self._before + self._read_now() - self._paused_at
            self._paused_at = None
        super().resume()

    def keep(self, place: Place) -> None:
        """Keep the last counts."""
        self._kept = self._counts_at(place)

    def _read_now(self) -> _Counts:
        place = self._registered_place()
        return _read(place.registry, place.cells, place.numbers)

    def _counts_at(self, place: Place) -> dict[str, int]:
        if self.when is not None:
            now = self._own.read(place.cells, len(place.numbers)).ravel().astype(np.int64)
            return dict(place.by_label(now.tolist(), operator.add))
        if self._paused_at is not None:
            now = self._paused_at
        elif place.is_ended:
            now = _last(place)
        else:
            now = _read(place.registry, place.cells, place.numbers)
            if place.is_ended:  # in the meantime
                now = _last(place)
        counts: dict[str, int] = place.by_label((now - self._before).tolist(), operator.add)
        return counts


def _read(registry: Registry, cells: Cells, numbers: npt.NDArray[np.int64]) -> _Counts:
    found: _Counts = cells.read_each(registry.arena.functions["cell"][numbers]).astype(np.int64)
    return found


def _last(place: Place) -> _Counts:
    """What the shared cells had when somebody else took the counter off."""
    at = int(place.registry.user(place.slot)["pool_at"])
    found: _Counts = place.registry.arena.pool[at : at + 8 * len(place.numbers)].view(np.int64).copy()
    return found
