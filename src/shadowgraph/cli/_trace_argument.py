"""The TRACE argument that all views share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shadowgraph.trace.reader import Trace

__all__ = ["name_options", "open_named", "trace_argument"]


def trace_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the optional argument TRACE."""
    return click.argument("trace", required=False, metavar="[TRACE]")(command)


def name_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options on how functions are named."""
    raw = click.option("--raw-names", is_flag=True, help="Show names as they are in the file, not demangled.")
    lines = click.option("--lines", is_flag=True, help="Show source lines where they are known.")
    return raw(lines(command))


def open_named(trace: str | Path | None) -> Trace:
    """Open the trace that was named, or the newest one in the current folder."""
    from shadowgraph.trace.folder import newest_trace
    from shadowgraph.trace.reader import open_trace
    from shadowgraph.view.terminal import progress_line

    return open_trace(newest_trace() if trace is None else trace, progress=progress_line("recovering"))
