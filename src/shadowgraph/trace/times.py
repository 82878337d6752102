"""Times as people write them: one syntax for all options and for predicates."""

from __future__ import annotations

import re
from fractions import Fraction

from shadowgraph.errors import UsageError

__all__ = ["NANOSECONDS", "parse_time"]

# Micro has two signs in Unicode (U+00B5, U+03BC), which look the same.
NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_TIME = re.compile(rf"(\d+\.?\d*|\.\d+)\s*({'|'.join(NANOSECONDS)})?", re.ASCII)
_LONGEST = 1 << 63


def parse_time(text: str) -> int:
    """Nanoseconds from a time like 1.5ms; a number without a unit counts seconds. UsageError if it is none."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a time; write one like 250us, 1.5ms, 2s or 5m")
    number, unit = match.groups()
    time = round(Fraction(number) * NANOSECONDS[unit or "s"])
    if time >= _LONGEST:
        raise UsageError(f"{text!r} is longer than 292 years, which is as long as a time can be")
    return time
