"""`shadowgraph report`: which functions took the time, as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from typing import Any

from shadowgraph.analysis.profile import Profile, ProfileRow
from shadowgraph.trace.reader import Trace
from shadowgraph.view.json_text import json_text
from shadowgraph.view.loss import loss_lines
from shadowgraph.view.names import Names
from shadowgraph.view.table import Column, lay_out
from shadowgraph.view.terminal import Output
from shadowgraph.view.units import count_of, format_count, format_time

__all__ = ["SORT_KEYS", "sort_rows", "write_csv", "write_json", "write_remarks", "write_text"]

# Sort key: field of a ProfileRow.
SORT_KEYS = {
    "self": "self_ns",
    "total": "total_ns",
    "calls": "calls",
    "mean": "mean_ns",
    "min": "min_ns",
    "p50": "p50_ns",
    "p95": "p95_ns",
    "p99": "p99_ns",
    "max": "max_ns",
    "open": "open",
    "unwound": "unwound",
}

# Title, field, and how soon a narrow terminal does without the column.
_TIMES = [
    ("Total", "total_ns", 2),
    ("Self", "self_ns", 1),
    ("Mean", "mean_ns", 4),
    ("Min", "min_ns", 8),
    ("p50", "p50_ns", 6),
    ("p95", "p95_ns", 7),
    ("p99", "p99_ns", 5),
    ("Max", "max_ns", 3),
]
_KINDS = [("Open", "open", 9), ("Unwound", "unwound", 9)]
_FIELDS = ["calls", *(field for _, field, _ in _TIMES), "open", "unwound"]
_PLURALS = {"function": "functions", "thread": "threads", "module": "modules", "process": "processes"}


def sort_rows(profile: Profile, names: Names, sort: str) -> list[ProfileRow]:
    """The lines with the largest first, or by name; ties by name."""
    title = _title(profile, names)
    if sort == "name":
        return sorted(profile.rows, key=title)
    field = SORT_KEYS[sort]
    return sorted(profile.rows, key=lambda row: (-getattr(row, field), title(row)))


def write_text(
    output: Output,
    trace: Trace,
    profile: Profile,
    names: Names,
    rows: list[ProfileRow],
    *,
    hidden: int,
    sort: str = "self",
) -> None:
    """A table, and below it what is not in it; ``hidden`` lines were left out by a limit.

    The column that the lines are sorted by is always there.
    """
    by = SORT_KEYS.get(sort)

    def column(title: str, field: str, shown: Callable[[Any], str], spare: int) -> Column:
        return Column(title, [shown(getattr(row, field)) for row in rows], 0 if field == by else spare)

    columns = [column("Calls", "calls", format_count, 0)]
    columns += [column(title, field, format_time, spare) for title, field, spare in _TIMES]
    columns += [
        column(title, field, format_count, spare)
        for title, field, spare in _KINDS
        if field == by or any(getattr(row, field) for row in profile.rows)
    ]
    name_of = _title(profile, names)
    lines, dropped = lay_out(columns, Column(profile.by.capitalize(), [name_of(row) for row in rows]), output.width)
    output.line(output.bold(next(lines)))
    for line in lines:
        output.line(line)
    if hidden:
        output.line(f"... and {count_of(hidden, f'more {profile.by}')} (--limit 0 shows all)")
    if dropped:
        output.line(f"(this terminal has no room for: {', '.join(dropped)})")
    for line in loss_lines(trace):
        output.line(line)


def write_json(
    output: Output, trace: Trace, profile: Profile, names: Names, rows: list[ProfileRow], *, lines: bool
) -> None:
    """One JSON object: the lines, how many calls are not in them, how the recording ended, and what is damaged."""
    trace.check_tables()
    content: dict[str, Any] = {_PLURALS[profile.by]: [_record(profile, names, row, lines) for row in rows]}
    content |= trace.counters
    content |= {"end": trace.metadata.get("end", {}).get("reason"), "state": trace.metadata.get("state")}
    content["problems"] = trace.problems
    output.line(json_text(content, indent=1))


def write_csv(output: Output, profile: Profile, names: Names, rows: list[ProfileRow], *, lines: bool) -> None:
    """The same as comma-separated values with a header."""
    records = [_record(profile, names, row, lines) for row in rows]
    text = io.StringIO()
    header = list(records[0]) if records else [*_identity_fields(profile.by), *_FIELDS]
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    output.write(text.getvalue().encode("utf-8", "surrogateescape"))


def write_remarks(trace: Trace, *, counters: bool) -> None:
    """What JSON and CSV have no place for, on stderr; with ``counters`` also the numbers of lost calls."""
    for line in loss_lines(trace):
        if counters or not line.startswith(tuple(f"{name}:" for name in trace.counters)):
            sys.stderr.write(f"shadowgraph: {line}\n")


def _title(profile: Profile, names: Names) -> Callable[[ProfileRow], str]:
    """How a line is called in text."""
    titles: dict[str, Callable[[ProfileRow], str]] = {
        "function": lambda row: names.label(row.key),
        "module": lambda row: profile.names[row.key],
        "thread": lambda row: names.thread_label(row.key),
        "process": lambda row: names.process_label(row.key),
    }
    return titles[profile.by]


def _identity_fields(by: str) -> list[str]:
    """What says which line a record is."""
    return {
        "function": ["function", "module"],
        "module": ["module"],
        "thread": ["thread", "tid", "pid", "name"],
        "process": ["process", "pid", "command"],
    }[by]


def _identity(profile: Profile, names: Names, row: ProfileRow) -> list[Any]:
    """The values of the identity fields."""
    if profile.by == "function":
        return [names.function(row.key), names.module(row.key)]
    if profile.by == "module":
        return [profile.names[row.key]]
    if profile.by == "thread":
        name, tid, pid = names.thread(row.key)
        return [row.key, tid, pid, name]
    command, pid = names.process(row.key)
    return [row.key, pid, command]


def _record(profile: Profile, names: Names, row: ProfileRow, lines: bool) -> dict[str, Any]:
    """A line with all its numbers."""
    record = dict(zip(_identity_fields(profile.by), _identity(profile, names, row), strict=True))
    record |= {field: getattr(row, field) for field in _FIELDS}
    record["mean_ns"] = round(row.mean_ns, 3)
    if lines and profile.by == "function":
        record["line"] = names.line(row.key)
    return record
