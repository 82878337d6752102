"""`shadowgraph report`: which functions took the time."""

from __future__ import annotations

import click

from shadowgraph.cli._patterns import patterns_option
from shadowgraph.cli._trace_argument import name_options, open_named, trace_argument

__all__ = ["command"]

_SORT = ["self", "total", "calls", "mean", "min", "p50", "p95", "p99", "max", "open", "unwound", "name"]
_TERMINAL_LIMIT = 50


@click.command("report")
@trace_argument
@click.option("--sort", type=click.Choice(_SORT), default="self", show_default=True, help="Largest of these first.")
@click.option(
    "--by",
    type=click.Choice(["function", "thread", "module", "process"]),
    default="function",
    show_default=True,
    help="What a line stands for.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show N lines, 0 for all. [default: {_TERMINAL_LIMIT} on a terminal, else all]",
)
@patterns_option("Show these functions alone: a name as report prints it, or a pattern as record takes it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@name_options
def command(
    trace: str | None,
    *,
    sort: str,
    by: str,
    limit: int | None,
    patterns: tuple[str, ...],
    as_json: bool,
    as_csv: bool,
    raw_names: bool,
    lines: bool,
) -> None:
    """Show which functions took the time.

    Total is the time in which the function was in flight, its callees included (recursion does not count twice); self
    is without the callees that are in the trace. Quantiles are within 0.4 % of the truth.

    TRACE is a folder made by `record`; by default the newest *.sgt in the current folder.
    """
    from dataclasses import replace

    from shadowgraph.analysis.profile import profile
    from shadowgraph.cli._called_functions import find_called
    from shadowgraph.errors import UsageError
    from shadowgraph.view import report as view
    from shadowgraph.view.names import Names
    from shadowgraph.view.terminal import Output, progress_line

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other")
    if patterns and by != "function":
        raise UsageError(f"-f chooses functions, and a line of --by {by} is none")
    output = Output()
    with open_named(trace) as opened:
        names = Names(opened, raw=raw_names, lines=lines)
        chosen = set(find_called(opened, names, *patterns))
        result = profile(opened, by, progress_line("reading calls"))
        if patterns:
            result = replace(result, rows=[row for row in result.rows if row.key in chosen])
        rows = view.sort_rows(result, names, sort)
        if limit is None:
            limit = _TERMINAL_LIMIT if output.terminal and not (as_json or as_csv) else 0
        shown = rows[:limit] if limit else rows
        if as_json:
            view.write_json(output, opened, result, names, shown, lines=lines)
        elif as_csv:
            view.write_csv(output, result, names, shown, lines=lines)
        else:
            view.write_text(output, opened, result, names, shown, hidden=len(rows) - len(shown), sort=sort)
        output.flush()
        if as_json or as_csv:
            view.write_remarks(opened, counters=as_csv)
