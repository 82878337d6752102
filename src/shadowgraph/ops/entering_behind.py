"""Recording a program that has been executed and that another controller was to enter before us."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from shadowgraph.agent.inject import Settings
from shadowgraph.agent.registry import Registry
from shadowgraph.errors import StartError
from shadowgraph.ops.attaching import prepare
from shadowgraph.ops.borrowing import Judge
from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.function_ids import ArenaNumbers, FunctionIds, Numbers
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.processes import alone_with
from shadowgraph.ops.recorder_slot import Joined, give_back_recorder_slot, join_for_recording
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.values import Capture

__all__ = ["JudgeOf", "enter_behind"]

JudgeOf = Callable[[int, KnownModules], AbstractContextManager[Judge]]


def enter_behind(
    pid: int,
    selection: Selection,
    capture: Capture,
    settings: Settings,
    known_modules: KnownModules,
    ids: FunctionIds,
    judge_of: JudgeOf,
) -> tuple[EnteredProcess, Numbers]:
    """Attach to it, while it waits for us: join those who are there, or clear away what a dead one has left."""
    with alone_with(pid):
        joined = join_for_recording(pid, settings)
        try:
            numbers = ids if joined is None else _numbers(pid, joined, settings, ids)
            what = (selection, capture, settings, known_modules, numbers)
            attachment = prepare(pid, *what, follow=True, joined=joined)
            try:
                with judge_of(pid, known_modules) as judge:
                    return attachment.carry_out(judge), numbers
            finally:
                attachment.close()
        except BaseException:
            if joined is not None:
                give_back_recorder_slot(joined.agent, joined.slot)
            raise


def _numbers(pid: int, joined: Joined, settings: Settings, ids: FunctionIds) -> Numbers:
    registry = Registry(joined.agent.arena, joined.agent.zones)
    if registry.tick_base != settings.tick_base:
        raise StartError(f"process {pid}: times there count from another moment than in this recording")
    return ArenaNumbers(ids, registry)
