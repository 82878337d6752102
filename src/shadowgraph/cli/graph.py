"""`shadowgraph graph`: the merged call tree."""

from __future__ import annotations

from pathlib import Path

import click

from shadowgraph.cli._patterns import patterns_option
from shadowgraph.cli._trace_argument import name_options, open_named, trace_argument

__all__ = ["command"]

_TERMINAL_MINIMUM = 0.5
_DEPTH = 64


@click.command("graph")
@trace_argument
@click.argument("function", required=False, metavar="[FUNCTION]")
@patterns_option("Show who calls these functions and what they call, as FUNCTION does for one")
@click.option(
    "--depth", type=click.IntRange(min=1), default=_DEPTH, show_default=True, metavar="N", help="Show N levels."
)
@click.option(
    "--min",
    "minimum",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help=f"Leave out what took less of the time. [default: {_TERMINAL_MINIMUM} on a terminal, else 0]",
)
@name_options
def command(
    trace: str | None,
    function: str | None,
    *,
    patterns: tuple[str, ...],
    depth: int,
    minimum: float | None,
    raw_names: bool,
    lines: bool,
) -> None:
    """Show the merged call tree: who called what, how often, and how long it took.

    With FUNCTION, or -f, show who calls it and what it calls: a name as report prints it, or a pattern as -f of record
    takes it (a glob, re:…, or module!pattern). Percentages are then of the time of these functions.

    TRACE is a folder made by `record`; by default the newest *.sgt in the current folder.
    """
    from shadowgraph.analysis.tree import call_tree
    from shadowgraph.cli._called_functions import find_called
    from shadowgraph.view import graph as view
    from shadowgraph.view.names import Names
    from shadowgraph.view.terminal import Output, progress_line

    if trace is not None and function is None and not _names_a_trace(trace):
        trace, function = None, trace
    wanted = [*patterns, *([function] if function is not None else [])]
    output = Output()
    if minimum is None:
        minimum = _TERMINAL_MINIMUM if output.terminal else 0.0
    with open_named(trace) as opened:
        names = Names(opened, raw=raw_names, lines=lines)
        chosen = find_called(opened, names, *wanted)
        tree = call_tree(opened, progress_line("reading calls"))
        if not wanted:
            view.write_tree(output, opened, names, tree, depth=depth, least=minimum / 100)
        else:
            view.write_function(output, opened, names, tree, chosen, depth=depth, least=minimum / 100)
        output.flush()


def _names_a_trace(text: str) -> bool:
    """Whether a single argument means a trace rather than a function."""
    return text.rstrip("/").endswith(".sgt") or "/" in text or Path(text).is_dir()
