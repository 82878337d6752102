"""What a counter has seen in cells that it shares is what they got while it was on, whatever came in between."""

from __future__ import annotations

import numpy as np
import pytest

from shadowgraph.live.shared_cells import Readings, SharedCells

FUNCTIONS = 12


def some(random: np.random.Generator) -> np.ndarray:
    """Numbers of some functions, in order."""
    return np.flatnonzero(random.random(FUNCTIONS) < 0.5)


@pytest.mark.parametrize("seed", range(50))
def test_calls_are_counted_while_a_function_is_inside_and_the_counter_is_not_paused(seed: int) -> None:
    random = np.random.default_rng(seed)
    cells, seen = np.zeros(FUNCTIONS, np.int64), np.zeros(FUNCTIONS, np.int64)
    inside = some(random)
    numbers, paused = inside, False
    shared = SharedCells()
    shared.begin(numbers, cells[numbers])
    for _ in range(40):
        calls = random.integers(0, 5, FUNCTIONS)
        cells += calls
        if not paused:
            seen[inside] += calls[inside]
        what = random.integers(0, 4)
        if what == 0 and not paused:
            shared.pause(cells[numbers])
            paused = True
        elif what == 1 and paused:
            shared.resume(cells[numbers])
            paused = False
        elif what == 2:
            wanted = some(random)
            changed = np.setxor1d(inside, wanted)
            numbers, inside = np.union1d(numbers, wanted), wanted
            shared.exchange(numbers, inside, Readings(changed, cells[changed]))
        assert shared.counts(cells[numbers]).tolist() == seen[numbers].tolist()
