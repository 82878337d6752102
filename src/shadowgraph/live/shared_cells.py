"""What one counter has seen in cells that it shares with others: the sum of what they got while it was counting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Readings", "SharedCells"]

_Counts = npt.NDArray[np.int64]
_NONE: _Counts = np.zeros(0, np.int64)


class Readings(NamedTuple):
    """What shared cells held at one moment, by the numbers of functions, in order."""

    numbers: _Counts = _NONE
    counts: _Counts = _NONE

    def spread(self, numbers: _Counts, otherwise: _Counts) -> _Counts:
        """What there is of these functions (in order, and these among them), and what there is of others."""
        found = otherwise.copy()
        found[np.searchsorted(numbers, self.numbers)] = self.counts
        return found


class SharedCells:
    """Readings of one cell for each function that a counter is on (``inside``) or has been on, by their numbers."""

    def __init__(self) -> None:
        self.begin(_NONE, _NONE)

    def begin(self, numbers: _Counts, now: _Counts) -> None:
        """It counts these functions from now on; ``now`` is what their cells hold."""
        self.paused = False
        self.inside: npt.NDArray[np.bool_] = np.ones(len(numbers), np.bool_)
        self._numbers = numbers
        self._before = now  # what the cells have got while it was not counting
        self._stood = now  # where they were when it ceased to count, of those that it does not

    def counts(self, now: _Counts) -> _Counts:
        """What it has counted, when the cells hold ``now``."""
        found: _Counts = np.where(self.inside & (not self.paused), now, self._stood) - self._before
        return found

    def pause(self, now: _Counts) -> None:
        """Cease to count."""
        self._stood = np.where(self.inside, now, self._stood)
        self.paused = True

    def resume(self, now: _Counts) -> None:
        """Count again."""
        self._before = self._before + np.where(self.inside, now - self._stood, 0)
        self.paused = False

    def exchange(self, numbers: _Counts, inside: _Counts, then: Readings) -> None:
        """Count the functions ``inside``; ``numbers`` are those that it ever had. All of them are in order.

        ``then`` is what the cells of those that come or go held at that moment.
        """
        nothing = np.zeros(len(numbers), np.int64)
        is_inside, changed = np.isin(numbers, inside), np.isin(numbers, then.numbers)
        is_new = ~np.isin(numbers, self._numbers)
        held = then.spread(numbers, nothing)
        was = Readings(self._numbers, self.inside.astype(np.int64)).spread(numbers, nothing) != 0
        before = Readings(self._numbers, self._before).spread(numbers, np.where(is_new & is_inside, held, 0))
        stood = Readings(self._numbers, self._stood).spread(numbers, np.where(is_new & is_inside, held, 0))
        if not self.paused:
            left, back = changed & ~is_inside, changed & is_inside & ~was
            before = before + np.where(back, held - stood, 0)
            stood = np.where(left, held, stood)
        self._numbers, self._before, self._stood, self.inside = numbers, before, stood, is_inside
