"""What one counter has seen in cells that it shares with others: the sum of what they got while it was counting."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["SharedCells"]

_Counts = npt.NDArray[np.int64]


class SharedCells:
    """Readings of one cell for each function that a counter is on (``inside``) or has been on, by their numbers."""

    def __init__(self) -> None:
        self.begin(np.zeros(0, np.int64), np.zeros(0, np.int64))

    def begin(self, numbers: _Counts, now: _Counts) -> None:
        """It counts these functions from now on; ``now`` is what their cells hold."""
        self.paused = False
        self.inside: npt.NDArray[np.bool_] = np.ones(len(numbers), np.bool_)
        self._numbers = numbers
        self._before = now.copy()  # what the cells have got while it was not counting
        self._stood = now.copy()  # where they were when it ceased to count, of those that it does not

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

    def exchange(self, numbers: _Counts, inside: Mapping[int, str], then: Mapping[int, int]) -> None:
        """Count the functions ``inside``; ``numbers`` are those that it ever had.

        ``then`` is what the cells of those that come or go held at that moment.
        """
        before, stood, was = (dict.fromkeys(numbers.tolist(), 0) for _ in range(3))
        before |= {number: then[number] for number in inside if number in then}
        stood |= before
        for mine, values in ((before, self._before), (stood, self._stood), (was, self.inside)):
            mine.update(zip(self._numbers.tolist(), values.tolist(), strict=True))
        for number, reading in then.items():
            if self.paused:
                continue
            if number not in inside:
                stood[number] = reading
            elif not was[number]:
                before[number] += reading - stood[number]
        self._numbers = numbers
        self._before = np.array(list(before.values()), np.int64)
        self._stood = np.array(list(stood.values()), np.int64)
        self.inside = np.array([number in inside for number in numbers.tolist()], np.bool_)
