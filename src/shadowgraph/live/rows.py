"""Users as rows of a table: those of one controller and of all others."""

from __future__ import annotations

from typing import Any

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry, process_start

__all__ = ["user_row"]

_KINDS = {
    layout.USER_RECORDER: "recorder",
    layout.USER_COUNTER: "counter",
    layout.USER_TOTALS: "totals",
    layout.USER_HISTOGRAM: "histogram",
    layout.USER_HANDLER: "handler",
}


def user_row(registry: Registry, slot: int) -> dict[str, Any]:
    """What there is to say of the user in a slot."""
    row = registry.user(slot)
    start = process_start(int(row["controller_pid"]))
    if start == 0 or start != int(row["controller_start"]):
        state = "left behind"  # its controller has died
    else:
        state = "faulted" if registry.has_fault(slot) else "on" if registry.is_armed(slot) else "paused"
    return {
        "slot": slot,
        "name": bytes(row["name"]).decode(errors="replace"),
        "kind": _KINDS.get(int(row["kind"]), "unknown"),
        "filter": bytes(row["filter"]).decode(errors="replace"),
        "functions": len(registry.functions_of(slot)),
        "state": state,
        "controller": int(row["controller_pid"]),
        **registry.losses_of(slot),
    }
