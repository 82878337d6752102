"""What a benchmark says: one line of JSON for each thing measured, with the promise it was held against.

    {"what": …, figures …, "target": {figure: the most it may be}, "at_least": {figure: the least}, "kept": true}

Figures are named with their unit (…_ns, …_s, bytes_…). A line without a promise informs only. "missing" says why
something was not measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["Figure", "say", "say_missing", "shorten"]

Figure = float | int | str | bool | None


def say(
    what: str,
    figures: Mapping[str, Figure],
    *,
    target: Mapping[str, float] | None = None,
    at_least: Mapping[str, float] | None = None,
) -> None:
    """Print one line; ``target`` and ``at_least`` name figures and what they may be."""
    line: dict[str, object] = {"what": what} | {name: shorten(value) for name, value in figures.items()}
    if target or at_least:
        upper, lower = dict(target or {}), dict(at_least or {})
        line |= {"target": upper} if upper else {}
        line |= {"at_least": lower} if lower else {}
        line["kept"] = all(_number(figures[name]) <= limit for name, limit in upper.items()) and all(
            _number(figures[name]) >= limit for name, limit in lower.items()
        )
    print(json.dumps(line), flush=True)


def say_missing(what: str, reason: str) -> None:
    """Print that something could not be measured, and why."""
    print(json.dumps({"what": what, "missing": reason}), flush=True)


def _number(figure: Figure) -> float:
    assert isinstance(figure, (int, float))
    return figure


def shorten(value: Figure) -> Figure:
    """A figure with no more digits than were measured."""
    if not isinstance(value, float):
        return value
    if abs(value) >= 1000:
        return round(value)
    return round(value, 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3)
