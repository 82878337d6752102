"""Shadowgraph: a function-graph tracer for user space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shadowgraph.live import Counter, Histogram, Ops, Recorder, Target, Totals, attach, attach_self, launch
    from shadowgraph.trace.reader import Trace
    from shadowgraph.trace.reader import open_trace as open

__all__ = [
    "Counter",
    "Histogram",
    "Ops",
    "Recorder",
    "Target",
    "Totals",
    "Trace",
    "attach",
    "attach_self",
    "launch",
    "open",
]


def __getattr__(name: str) -> Any:
    """Load what a name belongs to when it is used: the reader of traces (and pyarrow), or users of running programs."""
    if name in ("open", "Trace"):
        from shadowgraph.trace import reader

        return reader.open_trace if name == "open" else reader.Trace
    if name in __all__:
        from shadowgraph import live

        return getattr(live, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
