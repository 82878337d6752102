"""What a recording leaves behind beside its trace."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from shadowgraph.ops.refusals import Refusals
from shadowgraph.trace.spool_writer import SpoolWriter

__all__ = ["Result", "end_of"]


@dataclass
class Result:
    """How a recording ended. ``status`` is the wait status of the program, 0 if it still runs (``runs_on``).

    A process that was ``attached`` to leaves 0 there; ``attached_status`` is what it has ended with, where it was seen.

    ``hooked`` is how many functions were hooked for tracing, each counted once, in however many processes it was.

    ``stood_still`` has, for a process that was attached to, for how many seconds it was stopped each time.
    ``time_limit`` is the time in seconds, where that has ended the recording.
    ``largest_library`` is where the program's code may be if none of what was hooked has been called.
    """

    status: int
    runs_on: bool
    hooked: int
    refused: Refusals
    notes: list[str]
    stopped: str | None
    stood_still: tuple[float, ...] = ()
    largest_library: str = ""
    attached: bool = False
    attached_status: int | None = None
    time_limit: float | None = None


def end_of(spool: SpoolWriter, tick: int, status: int | None, *, stopped: bool) -> dict[str, Any]:
    """How a recording has ended: when, why, and with which wait status of its first process."""
    end: dict[str, Any] = {"tick": tick, "reason": spool.stopped or ("stopped" if stopped else "exited")}
    return end if status is None else {**end, "status": os.waitstatus_to_exitcode(status)}
