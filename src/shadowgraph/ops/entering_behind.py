"""Recording a program that has been executed and that another controller has entered before us."""

from __future__ import annotations

from typing import NoReturn

from shadowgraph.agent.inject import Settings
from shadowgraph.errors import StartError
from shadowgraph.ops.attaching import prepare
from shadowgraph.ops.choices import EnteredProcess
from shadowgraph.ops.function_ids import ArenaNumbers, FunctionIds
from shadowgraph.ops.handover import Entrance
from shadowgraph.ops.known_modules import KnownModules
from shadowgraph.ops.processes import alone_with
from shadowgraph.ops.recorder_slot import claim_place, give_back_recorder_slot
from shadowgraph.ops.selection import Selection
from shadowgraph.ops.values import Capture

__all__ = ["enter_behind"]


def enter_behind(
    entrance: Entrance,
    selection: Selection,
    capture: Capture,
    settings: Settings,
    known_modules: KnownModules,
    ids: FunctionIds,
) -> tuple[EnteredProcess, ArenaNumbers]:
    """Join those who are there, while the program waits for us."""
    pid, registry = entrance.pid, entrance.registry
    if registry.tick_base != settings.tick_base:
        raise StartError(f"process {pid}: times there count from another moment than in this recording")
    numbers = ArenaNumbers(ids, registry)
    with alone_with(pid):
        joined = claim_place(entrance.agent, settings)
        try:
            what = (selection, capture, settings, known_modules, numbers)
            attachment = prepare(pid, *what, follow=True, joined=joined)
            try:
                return attachment.carry_out(_nothing_is_loaded), numbers
            finally:
                attachment.close()
        except BaseException:
            give_back_recorder_slot(joined.agent, joined.slot)
            raise


def _nothing_is_loaded(_: object) -> NoReturn:
    raise AssertionError("the agent is there already, so no thread is needed at a safe place")
