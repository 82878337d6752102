"""From ticks of the processor to nanoseconds.

Ticks are those of the time stamp counter, since the tick base of the recording. The recorder notes pairs of ticks and
CLOCK_MONOTONIC; time runs linearly through the first and the last of them (an invariant counter: Intel SDM volume 3,
section 18.17.1), which is exact at both ends of the recording and monotone between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Clock", "fit_clock"]

# Fraction bits of the multiplier: 26 hours (48 bits at 3 GHz) come out right to a tenth of a nanosecond.
SHIFT = 50


@dataclass(frozen=True)
class Clock:
    """ns = ((ticks - origin) * multiplier) >> SHIFT, since the start of the trace."""

    origin: int
    multiplier: int
    last: int
    start_monotonic_ns: int = 0
    start_realtime_ns: int = 0

    def nanoseconds(self, ticks: int) -> int:
        """Nanoseconds since the start of the trace."""
        return ((ticks - self.origin) * self.multiplier) >> SHIFT


def fit_clock(pairs: list[dict[str, Any]], tick_hz: float | None = None, begin: int | None = None) -> Clock:
    """The clock through the first and the last pair ({"tick", "monotonic_ns", "realtime_ns"}).

    It counts from the tick ``begin``, or from the first pair: the more time lies between the two, the more exact is the
    rate, and a recorder has read the clock long before there is anything to be recorded.

    With less than two distinct pairs the rate comes from ``tick_hz``; without that, a tick counts as a nanosecond.
    """
    ordered = sorted(pairs, key=lambda pair: int(pair["tick"]))
    if not ordered:
        return Clock(0, _multiplier(tick_hz), 0)
    first, last = ordered[0], ordered[-1]
    ticks = int(last["tick"]) - int(first["tick"])
    elapsed = int(last["monotonic_ns"]) - int(first["monotonic_ns"])
    multiplier = (elapsed << SHIFT) // ticks if ticks > 0 and elapsed > 0 else _multiplier(tick_hz)
    origin = int(first["tick"]) if begin is None else begin
    later = ((origin - int(first["tick"])) * multiplier) >> SHIFT
    return Clock(
        origin=origin,
        multiplier=multiplier,
        last=int(last["tick"]),
        start_monotonic_ns=int(first["monotonic_ns"]) + later,
        start_realtime_ns=int(first.get("realtime_ns", 0)) + later,
    )


def _multiplier(tick_hz: float | None) -> int:
    """Nanoseconds a tick, with SHIFT fraction bits."""
    return 1 << SHIFT if not tick_hz else int((1_000_000_000 << SHIFT) / tick_hz)
