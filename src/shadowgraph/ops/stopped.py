"""A recording that has stopped at a limit (the trace's size, a full disk) while its programs run on.

What was in flight at that moment is in the trace as open. When such a call returns later, the agent counts it as
dropped, as it does with all calls from then on: of these two, the first is the truth. A call that began later and never
returns is counted by nobody. Both are put right here, so that calls and counters together are all calls there were.
"""

from __future__ import annotations

from collections.abc import Iterable

from shadowgraph.ops.in_flight import InFlight

__all__ = ["Stopped"]


class Stopped:
    """The calls that were in flight then, by the number of their thread, and processes that had been left before."""

    def __init__(self, calls: dict[int, set[InFlight]], left: Iterable[int]) -> None:
        self.left = frozenset(left)
        self._calls = calls

    def uncounted(self, thread: int, in_flight: set[InFlight]) -> int:
        """What to add to a thread's dropped calls when it is over, once; those ``in_flight`` have never returned."""
        told = self._calls.pop(thread, set())
        return len(in_flight - told) - len(told - in_flight)
