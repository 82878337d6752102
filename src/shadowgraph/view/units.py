"""Numbers for people: times, counts, shares; and ranges of time that people type."""

from __future__ import annotations

from shadowgraph.errors import UsageError
from shadowgraph.trace.times import parse_time

__all__ = ["count_of", "format_count", "format_share", "format_time", "parse_time_range"]

_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))


def format_time(nanoseconds: float) -> str:
    """A time in the unit that suits it, with three decimals: exact below a millisecond."""
    for unit, factor in _UNITS:
        if abs(nanoseconds) >= factor:
            return f"{nanoseconds / factor:.3f} {unit}"
    return f"{nanoseconds:.0f} ns" if nanoseconds == int(nanoseconds) else f"{nanoseconds:.1f} ns"


def format_count(count: int) -> str:
    """A number with its thousands apart."""
    return f"{count:,}"


def count_of(count: int, noun: str) -> str:
    """A number of things, in words: 1 call, 2 calls, 3 processes, 4 branches."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{format_count(count)} {noun if count == 1 else plural}"


def format_share(part: float, whole: float) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def parse_time_range(text: str) -> tuple[int | None, int | None]:
    """(from, to) in nanoseconds from FROM-TO; either may be left out."""
    begin, dash, end = text.partition("-")
    if not dash or not (begin.strip() or end.strip()):
        raise UsageError(f"{text!r} is not a range of time; write FROM-TO, like 10ms-20ms, 1.5s- or -300us")
    bounds = (parse_time(begin) if begin.strip() else None, parse_time(end) if end.strip() else None)
    if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
        raise UsageError(f"{text!r} ends before it begins")
    return bounds
