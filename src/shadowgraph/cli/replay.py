"""`shadowgraph replay`: the function graph in the order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shadowgraph.cli._patterns import patterns_option
from shadowgraph.cli._trace_argument import name_options, open_named, trace_argument

if TYPE_CHECKING:
    from shadowgraph.trace.reader import Trace

__all__ = ["command"]


@click.command("replay")
@trace_argument
@click.option("--thread", "threads", multiple=True, metavar="TID|NAME", help="Show this thread alone (repeatable).")
@click.option("-t", "--timestamps", is_flag=True, help="Show the time of each line, in seconds, as --time takes it.")
@click.option(
    "--time",
    "span",
    metavar="FROM-TO",
    help="Show what happens in this time, like 10ms-20ms, 1.5s- or 0.001234567-0.002 (seconds, as -t shows them).",
)
@patterns_option("Show calls of these functions and what lies below them: names, or patterns as of record.")
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="Show the outer N levels of calls.")
@click.option("--limit", type=click.IntRange(min=0), default=0, metavar="N", help="Show the first N lines, 0 for all.")
@click.option("--no-switches", is_flag=True, help="Do not say when another thread goes on.")
@name_options
def command(
    trace: str | None,
    *,
    threads: tuple[str, ...],
    timestamps: bool,
    span: str | None,
    depth: int | None,
    limit: int,
    patterns: tuple[str, ...],
    no_switches: bool,
    raw_names: bool,
    lines: bool,
) -> None:
    """Show the function graph in the order of time.

    The layout is that of the kernel's function_graph tracer. Marks before a duration: + more than 10 us, ! more than
    100 us, # more than 1 ms, * more than 10 ms, @ more than 100 ms, $ more than 1 s. Times count from the start of the
    trace: -t shows where to aim --time.

    TRACE is a folder made by `record`; by default the newest *.sgt in the current folder.
    """
    from shadowgraph.cli._called_functions import find_called
    from shadowgraph.view.names import Names
    from shadowgraph.view.replay import Choice, write_replay
    from shadowgraph.view.terminal import Output
    from shadowgraph.view.units import parse_time_range

    begin, end = parse_time_range(span) if span else (None, None)
    with open_named(trace) as opened:
        chosen = _find_threads(opened, threads) if threads else None
        names = Names(opened, raw=raw_names, lines=lines)
        functions = frozenset(find_called(opened, names, *patterns))
        choice = Choice(begin, end, depth, chosen, not no_switches, timestamps, limit, functions if patterns else None)
        output = Output()
        write_replay(output, opened, names, choice)
        output.flush()


def _find_threads(trace: Trace, wanted: tuple[str, ...]) -> frozenset[int]:
    """Indexes of the threads with these tids or names."""
    from shadowgraph.errors import UsageError

    columns = [trace.threads[name].to_pylist() for name in ("thread", "tid", "name")]
    rows = list(zip(*columns, strict=True))
    found: set[int] = set()
    for text in wanted:
        matches = [thread for thread, tid, name in rows if text in (str(tid), name, f"{name}-{tid}")]
        if not matches:
            there = ", ".join(f"{name}-{tid}" for _, tid, name in rows[:8]) + (", ..." if len(rows) > 8 else "")
            raise UsageError(f"{trace.path}: there is no thread {text!r}; there are {there or 'none'}")
        found.update(matches)
    return frozenset(found)
