"""What is not in a trace: said in every view, one line each, so that nobody takes a part for the whole."""

from __future__ import annotations

from shadowgraph.trace.folder import RECORDING, RECOVERED
from shadowgraph.trace.reader import Trace
from shadowgraph.trace.spool_writer import STOPPED
from shadowgraph.view.units import count_of

__all__ = ["loss_lines"]

_MEANINGS = {
    "missed": "run untraced for want of room on the shadow stack or of a way to hook them",
    "dropped": "traced but not recorded, because {why}",
    "filtered": "left out as the recording was asked to, by depth, minimal time or condition",
}
_STOPPED = STOPPED | {"stopped": "the recording was stopped before the program ended"}


def loss_lines(trace: Trace) -> list[str]:
    """Sentences about lost calls, damage, and how the recording ended; none if nothing is missing."""
    trace.check_tables()
    lines = ["empty: no call was recorded"] if trace.calls_file.rows == 0 else []
    for name, meaning in _MEANINGS.items():
        count = trace.counters[name]
        if count:
            said = meaning.format(why=_why_dropped(trace))
            lines.append(f"{name}: {count_of(count, 'call')} not in here, {said}")
    state = trace.metadata.get("state")
    if state == RECOVERED:
        lines.append("recovered: the recorder did not finish; this is what it had written, and it may end early")
    elif state == RECORDING:
        lines.append("recording: this trace is still being recorded; this is what is there so far")
    reason = trace.metadata.get("end", {}).get("reason")
    if reason in _STOPPED:
        lines.append(f"stopped: {_STOPPED[reason]}")
    return lines + [f"damaged: {problem}" for problem in trace.problems]


def _why_dropped(trace: Trace) -> str:
    """Under `--on-full block` a thread waits for room: calls are dropped only once the recording has stopped."""
    stopped = trace.metadata.get("end", {}).get("reason") in _STOPPED
    waits = trace.metadata.get("on_full") == "block"
    if stopped:
        return "the recording had stopped" + ("" if waits else ", or the buffers were full")
    return "the buffers were full"
