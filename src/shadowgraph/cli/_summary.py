"""What `record` says in the end, on stderr: stdout is the program's."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shadowgraph.ops.result import Result

__all__ = ["summary_lines"]


def summary_lines(folder: Path, result: Result, manifest: dict[str, Any]) -> list[str]:
    """What was traced, what was not and why, and where it is."""
    from shadowgraph.trace.spool_writer import STOPPED
    from shadowgraph.view.units import count_of

    losses = {name: manifest.get(name, 0) for name in ("missed", "dropped", "filtered")}
    lost = ", ".join(f"{count:,} {name}" for name, count in losses.items() if count)
    calls = count_of(manifest["calls"], "call") + (f" ({lost})" if lost else "")
    functions = count_of(manifest["called"], "function")
    if manifest["called"] != result.hooked:
        functions += f" ({result.hooked:,} hooked)"
    where = f"{count_of(manifest['tids'], 'thread')} of {count_of(manifest['pids'], 'process')}"
    executed = manifest["processes"] - manifest["pids"]
    if executed:
        has = "which has" if manifest["pids"] == 1 else "which have"
        where += f", {has} executed {'another program' if executed == 1 else f'{executed:,} other programs'}"
    lines = [f"{calls} of {functions} in {where}"]
    if result.hooked and not manifest["calls"] and not lost:
        library = f" (-m {shlex.quote(result.largest_library)})" if result.largest_library else ""
        lines.append(f"none of them was called: what ran may be a library{library}; --all traces every module")
    if result.refused:
        lines.append(result.refused.sentence())
    lines += _how_it_ended(result)
    if result.stood_still:
        total, longest = 1e3 * sum(result.stood_still), 1e3 * max(result.stood_still)
        lines.append(f"the process stood still for {total:.1f} ms in all, at most {longest:.1f} ms at a time")
    lines += result.notes[:5]
    if len(result.notes) > 5:
        lines.append(f"… and {count_of(len(result.notes) - 5, 'more remark')}")
    if result.stopped:
        why = STOPPED.get(result.stopped, f"the recording stopped: {result.stopped}")
        behind = "; its calls from then on count as dropped" if losses["dropped"] else ""
        lines.append(f"{why}; the program ran on{behind}")
    elif result.time_limit is not None:
        who = "the program runs on" if result.runs_on else "what the program has started runs on"
        lines.append(f"recording stopped after {result.time_limit:g} s (--for); {who}")
    elif result.runs_on:
        lines.append("recording was stopped before the program's end; the program runs on")
    lines.append(f"trace in {folder} (shadowgraph report {shlex.quote(str(folder))})")
    return lines


def _how_it_ended(result: Result) -> list[str]:
    """What was unusual. Of a process that was attached to, all: it may have ended before the user wanted that."""
    status = result.attached_status if result.attached else result.status
    if result.runs_on:
        return []
    if status is not None and os.WIFSIGNALED(status):
        return [f"the program was ended by {_signal_name(os.WTERMSIG(status))}"]
    if not result.attached:
        return []
    if status is None:
        return ["the program has ended; whether by a signal, its parent alone knows"]
    return [f"the program has ended with status {os.waitstatus_to_exitcode(status)}"]


def _signal_name(number: int) -> str:
    """SIGKILL and the like; real-time signals have none of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
