"""Distributions: how long calls take, what they return, or what they are given; and totals, which cost less room."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.errors import UsageError
from shadowgraph.live import buckets, float_buckets
from shadowgraph.live.by_label import ByLabel, add_up
from shadowgraph.live.found import Found, Numbers
from shadowgraph.live.measured_value import MeasuredValue, measured_value
from shadowgraph.live.own_cells import OwnCells
from shadowgraph.live.user import Place, User
from shadowgraph.trace.ticks import ticks_per_second

__all__ = ["Histogram", "Totals"]

_Cells = npt.NDArray[np.uint64]
_ALREADY = 1 << 62  # the size of functions that it is on
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


class _Measure(User):
    """A user with several cells for each of its functions."""

    kind: int

    def __init__(
        self, functions: Sequence[str], *, value: str = "duration", when: str | None = None, name: str = ""
    ) -> None:
        super().__init__(functions, when=when, name=name)
        self.value = value
        self._measured = measured_value(value)
        self._begin_anew()

    def _begin_anew(self) -> None:
        super()._begin_anew()
        stride = self._stride_of(self._measured)
        add = _add_floats if self._measured.is_float else _add_numbers
        self._own = OwnCells(stride, None if stride % layout.PAGE_CELLS else add)
        self._kept: ByLabel[_Cells] | None = None
        self._cells_before: dict[str, npt.NDArray[np.uint64]] = {}  # in programs that are over

    @staticmethod
    @abstractmethod
    def _stride_of(value: MeasuredValue) -> int:
        """How many cells each function has."""

    def pool_size(self, registry: Registry, numbers: Numbers) -> int:
        """The table that says which function has which cells."""
        registry.give_cells(numbers)
        return self._own.pool_size(registry, numbers)

    def row(self, registry: Registry, cells: Cells, numbers: Numbers, at: int) -> UserRow:
        """Cells of its own; arguments are seen at the entry, everything else at the exit."""
        fields = {"value": self._measured.code, **self._own.fields(registry, cells, numbers, at)}
        at_exit = self._measured.at_exit
        return UserRow(
            self.kind,
            self.name,
            self.selection.text,
            at_entry=not at_exit,
            at_exit=at_exit,
            is_timed=self._measured.is_duration,
            is_simple=self._measured.is_duration,
            fields=fields,
        )

    def make_room(self, place: Place, found: Found) -> None:
        """Cells for functions that are new to it."""
        place.registry.give_cells(found.numbers)
        self._own.grow(place.registry, place.cells, place.slot, found.numbers)

    def registered(self, place: Place) -> None:
        """It has a place now."""
        super().registered(place)
        self._cells_before = {}

    def _add(self, part: Self) -> None:
        add_up(self._cells_before, part._last_cells, self._joined)

    def keep(self, place: Place) -> None:
        """Keep the last readings."""
        self._kept = self._cells_at(place)

    def _cells(self) -> dict[str, npt.NDArray[np.uint64]]:
        with self.changing:
            found = self._last_cells if self._place is None else dict(self._cells_at(self._place).sums)
            for more in (self._cells_before, *(part._cells() for part in self._parts)):
                add_up(found, more, self._joined)
            return found

    @property
    def _last_cells(self) -> dict[str, npt.NDArray[np.uint64]]:
        """Those it had when its place was given up."""
        return {} if self._kept is None else dict(self._kept.sums)

    def _cells_at(self, place: Place) -> ByLabel[_Cells]:
        return ByLabel(place.functions, self._own.read(place.cells), self._joined)

    @property
    def _joined(self) -> Callable[[_Cells, _Cells], _Cells]:
        """Two functions' cells as if they were one's."""
        return float_buckets.joined if self._measured.is_float else _joined

    @property
    def is_float(self) -> bool:
        """Whether the value is a floating-point number."""
        return self._measured.is_float

    @cached_property
    def unit(self) -> float:
        """What one step of a value is worth: nanoseconds for durations, else 1."""
        return 1e9 / ticks_per_second() if self._measured.is_duration else 1

    def _total_of(self, row: npt.NDArray[np.uint64]) -> float:
        if self._measured.is_float:
            return float_buckets.total(row)
        total = int(row[layout.CELL_SUM])
        if self._measured.has_sign and total >= 1 << 63:
            total -= 1 << 64  # of signed values
        return total * self.unit


class Totals(_Measure):
    """Count, sum and largest value of each function: what a live table shows."""

    kind = layout.USER_TOTALS

    def __init__(
        self,
        functions: Sequence[str],
        *,
        value: str = "duration",
        when: str | None = None,
        name: str = "",
        most: int | None = None,
    ) -> None:
        """``most``: of more functions than this take the longest ones, and all that the executable imports.

        ``left_out`` is how many were too many.
        """
        super().__init__(functions, value=value, when=when, name=name)
        self._most = most

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._left_out = 0

    @property
    def left_out(self) -> int:
        """How many functions were too many, in all programs that are there."""
        with self.changing:
            return self._left_out + sum(part.left_out for part in self._parts)

    @staticmethod
    def _stride_of(value: MeasuredValue) -> int:
        return layout.PAGE_CELLS if value.is_float else layout.TOTALS_CELLS

    def fitted(self, found: Found) -> Found:
        """No more functions than there is room for."""
        most = self._most
        if most is None or len(found.numbers) <= most or (chosen := found.chosen) is None:
            self._left_out = 0
            return found
        sizes: dict[int, int] = {}
        for choice in chosen.choices.values():
            rows = np.fromiter(choice.numbers, np.int64, len(choice.numbers))
            sizes |= zip(choice.numbers.values(), choice.known.functions.size[rows].tolist(), strict=True)
        callers, numbers = set(found.callers.tolist()), found.numbers.tolist()
        rank = {number: (number in callers, sizes.get(number, _ALREADY)) for number in numbers}
        order = sorted(numbers, key=rank.__getitem__, reverse=True)
        self._left_out = len(order) - most
        return found.only(np.array(order[:most], np.int64))

    def totals(self) -> dict[str, dict[str, float]]:
        """``count``, ``total`` and ``max`` of each function; durations in ns.

        Of floating-point values these are of the finite ones; ``nan``, ``plus_infinity`` and ``minus_infinity`` count
        the others.
        """
        return {label: self._totals_of(row) for label, row in self._cells().items()}

    def _totals_of(self, row: _Cells) -> dict[str, float]:
        found: dict[str, float] = {"count": int(row[layout.CELL_COUNT]), "total": self._total_of(row)}
        if self._measured.is_float:
            return {**found, "max": float_buckets.largest(row), **float_buckets.others(row)}
        return {**found, "max": int(row[layout.CELL_MAXIMUM]) * self.unit}


class Histogram(_Measure):
    """The distribution of a value over the calls of each function.

    ``value``: ``duration`` (ns), ``result`` or ``arg(0)`` to ``arg(63)``, signed numbers of 64 bits; of other types
    ``i32(result)``, ``u8(arg(1))`` and the like, as predicates write them; ``fresult``, ``farg(0)`` to ``farg(7)``, of
    the type float ``f32(fresult)`` and ``f32(farg(0))``. Values are sorted into buckets of at most an eighth of their
    size; count and mean are exact, and so is the largest value but where all are negative. Of floating-point values all
    this is about the finite ones, buckets are so fine from 2⁻¹²⁸ to 2¹²⁸, and the sum is one of doubles.
    """

    kind = layout.USER_HISTOGRAM

    @staticmethod
    def _stride_of(value: MeasuredValue) -> int:
        if value.is_float:
            return layout.FLOAT_HISTOGRAM_CELLS
        return layout.HISTOGRAM_CELLS * (2 if value.has_sign else 1)  # negative values have their own

    def percentiles(self, function: str) -> dict[str, float]:
        """``count``, ``mean``, ``p50``, ``p90``, ``p95``, ``p99`` and ``max`` of one function.

        Of floating-point values also how many are no finite numbers, ``nan``, ``plus_infinity``, ``minus_infinity``,
        and how many are in the outermost buckets, where quantiles are rough: ``in_outermost``.
        """
        return self._summary(self._row_of(function))

    def all_percentiles(self) -> dict[str, dict[str, float]]:
        """The same of all its functions, by ``module!function``."""
        return {label: self._summary(row) for label, row in self._cells().items()}

    def buckets(self, function: str) -> list[tuple[float, float, int]]:
        """``(low, high, count)`` of the buckets in use: values from low to below high."""
        if self._measured.is_float:
            return float_buckets.used(self._row_of(function))
        used = buckets.used(self._row_of(function))
        return [(low * self.unit, high * self.unit, count) for low, high, count in used]

    def spread(self, function: str, most: int) -> list[tuple[float, float, int]]:
        """The same without gaps, in about ``most`` steps: buckets are joined, up to a power of two."""
        if self._measured.is_float:
            return float_buckets.spread(self._row_of(function), most)
        steps = buckets.spread(self._row_of(function), most)
        return [(low * self.unit, high * self.unit, count) for low, high, count in steps]

    def _row_of(self, function: str) -> npt.NDArray[np.uint64]:
        cells = self._cells()
        if function in cells:
            return cells[function]
        found = [row for label, row in cells.items() if label.partition("!")[2] == function]
        if len(found) != 1:
            some = ", ".join(sorted(cells)[:5]) or "none"
            raise UsageError(f"{function}: is not one function of this histogram; it has {some}")
        return found[0]

    def _summary(self, row: npt.NDArray[np.uint64]) -> dict[str, Any]:
        if self._measured.is_float:
            return self._float_summary(row)
        used = buckets.used(row)
        seen = sum(count for _, _, count in used)
        largest = buckets.largest(row)
        summary: dict[str, Any] = {"count": seen, "mean": buckets.total(row) * self.unit / seen if seen else 0.0}
        for name, quantile in _QUANTILES.items():
            summary[name] = buckets.quantile(used, quantile * seen, largest) * self.unit if seen else 0.0
        summary["max"] = largest * self.unit
        return summary

    def _float_summary(self, row: _Cells) -> dict[str, Any]:
        used, largest, seen = float_buckets.used(row), float_buckets.largest(row), int(row[layout.CELL_COUNT])
        summary: dict[str, Any] = {"count": seen, "mean": float_buckets.total(row) / seen if seen else 0.0}
        for name, quantile in _QUANTILES.items():
            summary[name] = float_buckets.quantile(used, quantile * seen, largest) if seen else 0.0
        others = {"in_outermost": float_buckets.outermost(row), **float_buckets.others(row)}
        return {**summary, "max": largest, **others}


def _add_numbers(sum_: _Cells, cells: _Cells, part: int) -> None:
    """Add a page of whole numbers, the maximum at its place in each."""
    largest = max(sum_[layout.CELL_MAXIMUM], cells[layout.CELL_MAXIMUM])
    sum_ += cells
    sum_[layout.CELL_MAXIMUM] = largest


def _add_floats(sum_: _Cells, cells: _Cells, part: int) -> None:
    """Add a page of floating-point ones, of which the first has a sum and a maximum."""
    sum_[:] = sum_ + cells if part else float_buckets.joined(sum_, cells)


def _joined(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The cells of two functions as if they were one."""
    both = one + other
    half = layout.HISTOGRAM_CELLS
    for at in range(layout.CELL_MAXIMUM, len(both), half):
        both[at] = max(one[at], other[at])
    return both
