"""Shadowgraph: a function-graph tracer for user space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shadowgraph.trace.reader import Trace
    from shadowgraph.trace.reader import open_trace as open

__all__ = ["Trace", "open"]


def __getattr__(name: str) -> Any:
    """Load the reader of traces (and with it pyarrow) only when it is used."""
    if name in ("open", "Trace"):
        from shadowgraph.trace import reader

        return reader.open_trace if name == "open" else reader.Trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
