"""What is printed of users on a running program: counts, distributions, a live table, who is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shadowgraph.image.demangle import demangle_one
from shadowgraph.view.json_text import json_text
from shadowgraph.view.table import Column, lay_out, short_command
from shadowgraph.view.terminal import Output
from shadowgraph.view.units import count_of, format_count, format_time

__all__ = [
    "Distribution",
    "Function",
    "write_counts",
    "write_distributions",
    "write_json",
    "write_totals",
    "write_users",
]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR = 40
_NO_NUMBERS = {"nan": "NaN", "plus_infinity": "+infinity", "minus_infinity": "−infinity"}
_QUANTILES = ("mean", "p50", "p90", "p99", "max")


@dataclass(frozen=True)
class Function:
    """A function by its label, `module!name`; ``program`` needs no mention as a module, ``raw``: as in the file."""

    label: str
    program: str
    raw: bool = False

    @property
    def module(self) -> str:
        """Where it is."""
        return self.label.partition("!")[0]

    @cached_property
    def name(self) -> str:
        """What it is called."""
        name = self.label.partition("!")[2]
        return name if self.raw else demangle_one(name)

    @property
    def title(self) -> str:
        """As text views show it."""
        return self.name if self.module == self.program else f"{self.name} [{self.module}]"

    @property
    def identity(self) -> dict[str, str]:
        """As JSON has it."""
        return {"function": self.name, "module": self.module}


def write_json(output: Output, content: dict[str, Any]) -> None:
    """One JSON object on one line."""
    output.line(json_text(content))


def write_counts(output: Output, rows: Sequence[tuple[Function, int, float | None]], remark: str) -> None:
    """Calls of each function, and how many a second where that is known."""
    columns = [Column("Calls", [format_count(calls) for _, calls, _ in rows])]
    if any(rate is not None for *_, rate in rows):
        columns.append(Column("Calls/s", [format_count(round(rate or 0)) for *_, rate in rows]))
    _write_table(output, columns, [function.title for function, *_ in rows], remark)


def write_totals(output: Output, rows: Sequence[tuple[Function, dict[str, float]]], sort: str, remark: str) -> None:
    """The live table: calls, calls and time in calls for each second, mean and longest call. ``sort`` is marked."""
    kinds: list[tuple[str, str, Callable[[float], str], int]] = [
        ("Calls", "calls", lambda value: format_count(int(value)), 0),
        ("Calls/s", "rate", lambda value: format_count(round(value)), 0),
        ("Mean", "mean", format_time, 1),
        ("Max", "max", format_time, 2),
        ("Time/s", "time", format_time, 3),
    ]
    columns = [
        Column(title + ("▼" if field == sort else ""), [show(row[field]) for _, row in rows], spare)
        for title, field, show, spare in kinds
    ]
    _write_table(output, columns, [function.title for function, _ in rows], remark)


def write_users(output: Output, rows: Sequence[dict[str, Any]], remark: str = "") -> None:
    """Who is registered, in the order of registration."""
    columns = [Column("Slot", [str(row["slot"]) for row in rows])]
    columns += [Column(title, [row[title.lower()] for row in rows]) for title in ("Name", "Kind", "State")]
    counts = ("Functions", "Missed", "Dropped", "Filtered", "Unwound")
    columns += [Column(title, [format_count(row[title.lower()]) for row in rows], 1) for title in counts]
    columns.append(Column("Controller", [str(row["controller"]) for row in rows]))
    commands = [f" ({short_command(row['command'])})" if row["command"] else "" for row in rows]
    last = [f"{row['filter']}{command}" for row, command in zip(rows, commands, strict=True)]
    _write_table(output, columns, last, remark, "Filter (command)")


def _write_table(output: Output, columns: list[Column], last: list[str], remark: str, title: str = "Function") -> None:
    lines, dropped = lay_out(columns, Column(title, last), output.width)
    output.line(output.bold(next(lines)))
    for line in lines:
        output.line(line)
    if remark:
        output.line(remark)
    if dropped:
        output.line(f"(this terminal has no room for: {', '.join(dropped)})")


@dataclass(frozen=True)
class Distribution:
    """What a histogram has of one function: its summary, and steps (low, high, count) without gaps."""

    function: Function
    summary: dict[str, float]
    steps: list[tuple[float, float, int]]


def write_distributions(output: Output, found: Sequence[Distribution], show: Callable[[float], str]) -> None:
    """A line of numbers and a bar for each step, function by function. ``show`` formats a value."""
    for one in found:
        output.line(output.bold(one.function.title))
        numbers = "  ".join(f"{name} {show(one.summary[name])}" for name in _QUANTILES)
        output.line(f"  {count_of(int(one.summary['count']), 'call')}  {numbers}")
        others = [f"{one.summary[name]:,} {word}" for name, word in _NO_NUMBERS.items() if one.summary.get(name)]
        if others:
            output.line(f"  besides {', '.join(others)}")
        wide = int(one.summary.get("in_outermost", 0))
        if wide:
            output.line(f"  {wide:,} of them beyond 3.2e+38 or within 3.3e-39 of zero, where quantiles are rough")
        for line in _bars(one.steps, show, output.width):
            output.line(f"  {line}")
        output.line()


def _bars(steps: list[tuple[float, float, int]], show: Callable[[float], str], width: int | None) -> list[str]:
    """A line for each step; more than two empty ones in a row are one line."""
    texts = [(_interval(low, high, show), format_count(count), count) for low, high, count in steps]
    if not texts:
        return []
    first, second = (max(len(text[column]) for text in texts) for column in (0, 1))  # type: ignore[arg-type]
    room = _BAR if width is None else max(min(_BAR, width - first - second - 8), 4)
    most = max(count for *_, count in steps)
    lines: list[str] = []
    empty: list[str] = []
    for interval, number, count in texts:
        line = f"{interval.rjust(first)}  {number.rjust(second)}  {_bar(count, most, room)}".rstrip()
        if not count:
            empty.append(line)
            continue
        lines += empty if len(empty) < 3 else [f"{'…'.rjust(first)}"]
        empty = []
        lines.append(line)
    return lines


def _interval(low: float, high: float, show: Callable[[float], str]) -> str:
    """The values of a step: the first and the last of whole numbers, else up to where it ends."""
    if high == math.ulp(0.0):  # of floating-point numbers: zero alone
        return show(low)
    if not isinstance(low, int):
        return f"{show(low)} … {show(high)}"
    return show(low) if high - low == 1 else f"{show(low)} … {show(high - 1)}"


def _bar(count: int, most: int, room: int) -> str:
    """A bar whose length is in proportion, to an eighth of a character; what is there is seen."""
    eighths = max(round(8 * room * count / most), 1) if count else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
