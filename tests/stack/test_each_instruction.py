"""R24: at every single instruction of entry path, site, thunk and return path, the trace is right and says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from iced_x86 import Decoder

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.agent.cells import Cells
from shadowgraph.agent.inject import Settings, announce_handlers
from shadowgraph.agent.registry import Registry, UserRow
from shadowgraph.agent.rings import RECORDER_SLOTS
from shadowgraph.agent.zones import SITE_STRIDE, Zone
from shadowgraph.ops import entering
from shadowgraph.ops.handler_memory import map_handlers
from shadowgraph.ops.selection import LibraryCalls, Selection, function_rule
from shadowgraph.patch import plan_module
from shadowgraph.target.remote import RemoteThread
from tests.support.build import PROGRAMS, build
from tests.support.call_model import CallModel, Expected, shown
from tests.support.stopped import SMALL_RINGS, Stopped
from tests.support.thunk_objects import ObjectHooks

# Each instruction is looked at in this many situations; loops would repeat the same ones thousands of times.
SITUATIONS = 3


@dataclass
class Walked:
    """What a single-stepped run has shown."""

    instructions: int = 0
    in_handlers: int = 0
    traces: int = 0
    zones: Counter[Zone] = field(default_factory=Counter)
    agent_pcs: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def agrees(found: Expected, expected: Expected, *, every_tail: bool) -> bool:
    """Whether a trace is what the model expects. Tail calls that got no shadow frame may be missing, not others."""
    if found == expected or every_tail:
        return found == expected
    remaining = iter(expected)
    in_order = all(frame in remaining for frame in found)
    return in_order and [f for f in found if f[1] != "tail"] == [f for f in expected if f[1] != "tail"]


def walk(stopped: Stopped, *, every_tail: bool, handlers: Container[int] = ()) -> Walked:
    """Step through the program from main to paths_end, and hold the trace at each instruction against the model.

    ``handlers`` is where code lies that no unwinder can know of, as it is no file's.
    """
    assert stopped.run_to([stopped.address("main")])
    first = stopped.trace()
    assert first.reliable, first.reason
    model = CallModel(stopped, shown(first)[2:], handlers)
    end = stopped.address("paths_end")
    seen: Counter[int] = Counter()
    walked = Walked()
    while model.step() and model.place.original != end:
        walked.instructions += 1
        registers = stopped.registers()
        if registers.rip in handlers:
            walked.in_handlers += 1
            continue
        in_site = model.place.zone in (Zone.SITE_CALLING, Zone.SITE_RETURNED)
        place = registers.rip % SITE_STRIDE if in_site else registers.rip
        seen[place] += 1
        if seen[place] > SITUATIONS:
            continue
        trace = stopped.unwinder.trace(registers)
        walked.traces += 1
        walked.zones[model.place.zone] += 1
        walked.agent_pcs.add(registers.rip)
        if trace.frames[0].function in ("__longjmp", "____longjmp_chk"):
            continue  # its unwind information describes the place it goes to, rightly
        if not trace.reliable or not agrees(shown(trace), model.expected(), every_tail=every_tail):
            frames = "\n    ".join(map(str, trace.frames))
            walked.wrong.append(f"{model.place.zone} {registers.rip:#x}: {trace.reason}\n    {frames}")
    return walked


def unvisited(stopped: Stopped, zone: Zone, walked: Walked) -> list[str]:
    """The instructions of one of the agent's paths that no thread has stood at."""
    assert stopped.unwinder.zones is not None
    low, high = stopped.unwinder.zones.range_of(zone)
    code = stopped.memory.read(low, high - low)
    return [f"{i.ip:#x} {i}" for i in Decoder(64, code, ip=low) if i.ip not in walked.agent_pcs]


FEW = "main|tail_first|tail_last|recurse"
ALL = Selection(libcalls=LibraryCalls.NONE)


@pytest.mark.parametrize(
    ("selection", "settings", "zones"),
    [
        pytest.param(ALL, SMALL_RINGS, set(Zone), id="recorded"),
        pytest.param(Selection(), SMALL_RINGS, {Zone.ENTER_ASIDE}, id="library functions"),
        pytest.param(ALL, replace(SMALL_RINGS, minimal_ticks=1 << 39), {Zone.LEAVE_ASIDE}, id="filtered by time"),
        pytest.param(ALL, replace(SMALL_RINGS, depth_limit=2), {Zone.ENTER_ASIDE}, id="cut by depth"),
        pytest.param(ALL, replace(SMALL_RINGS, frame_limit=32), {Zone.ENTER_ASIDE}, id="out of frames"),
        pytest.param(
            Selection([function_rule(f"re:^({FEW})$", include=True)], libcalls=LibraryCalls.NONE),
            SMALL_RINGS,
            {Zone.ENTER_ASIDE, Zone.LEAVE_ASIDE},
            id="few functions",
        ),
    ],
)
def test_the_trace_is_right_at_each_instruction(selection: Selection, settings: Settings, zones: set[Zone]) -> None:
    program = build(PROGRAMS / "stack_paths.c", "now")
    with Stopped(program, selection=selection, settings=settings) as stopped:
        walked = walk(stopped, every_tail=not (settings.depth_limit or settings.frame_limit))
        assert not walked.wrong, f"{len(walked.wrong)} of {walked.traces}\n" + "\n".join(walked.wrong[:5])
        assert zones <= set(walked.zones), zones - set(walked.zones)
        if selection.libcalls == LibraryCalls.DIRECT:
            assert not [line for line in unvisited(stopped, Zone.ENTER_ASIDE, walked) if line.endswith("jmp [rsp-8]")]
        if zones == set(Zone):
            assert unvisited(stopped, Zone.ENTER, walked) == []
            assert unvisited(stopped, Zone.LEAVE, walked) == []


_PAIR = """
#include <shadowgraph/ops.h>
static volatile uint64_t calls;
int on_entry(struct sg_call *call) { return {entry}; }
void on_exit(struct sg_call *call) { {exit}; }
"""


def pair(entry: str, exit: str, data_size: int = 0) -> live.Ops:
    """Handlers that the paths in assembly serve."""
    source = _PAIR.replace("{entry}", entry).replace("{exit}", exit)
    return live.Ops(["*"], source=source, entry="on_entry", exit="on_exit", data_size=data_size)


USERS: dict[str, list[live.User]] = {
    "counter": [live.Counter(["*"])],
    "totals": [live.Totals(["*"])],
    "histogram and totals": [live.Histogram(["*"]), live.Totals(["*"])],
    "handlers": [pair("++calls & 3", "calls++")],
    "handlers that look": [
        pair("(sg_arg(call, 0) & 3) + !call->time", "calls += call->duration + sg_result(call)"),
        pair("(*(uint64_t *)call->data = sg_arg(call, 0)) & 1", "calls += *(uint64_t *)call->data", 40),
    ],
    "handlers and counter": [live.Counter(["*"]), pair("1", "calls += sg_result(call)")],
    "recorder and counter": [live.Counter(["*"])],
    "recorder and handlers": [pair("++calls & 3", "calls++")],
    "recorder, counter and handlers": [live.Counter(["*"]), pair("++calls & 1", "calls += call->duration")],
    "recorder and totals": [live.Totals(["*"])],
}


@pytest.mark.parametrize("kind", USERS)
def test_the_trace_is_right_on_the_ways_of_other_users(kind: str) -> None:
    program = build(PROGRAMS / "stack_paths.c", "now")
    with Stopped(program, selection=ALL, settings=SMALL_RINGS) as stopped:
        assert stopped.process is not None
        agent = stopped.process.agent
        registry, cells = Registry(agent.arena, agent.zones), Cells(agent.arena)
        numbers, handlers = np.flatnonzero(agent.arena.functions["users"][:, 0]), set[int]()
        with registry.locked():
            if kind.startswith("recorder"):
                row = UserRow(layout.USER_RECORDER, "record", at_exit=True, is_timed=True, is_simple=True)
                registry.add(row, numbers, slot=RECORDER_SLOTS[0])
            else:
                agent.arena.functions["users"][numbers] = 0
            for user in USERS[kind]:
                size = user.pool_size(registry, numbers)
                at = cells.find_pool(size)
                if isinstance(user, live.Ops):
                    with RemoteThread(stopped.pid, stopped.memory) as thread:
                        user.loaded = map_handlers(thread, user.handlers)
                        handlers |= set(range(user.loaded.base, user.loaded.base + user.loaded.size))
                row, slot = user.row(registry, cells, numbers, at).with_pool(at, size), registry.free_slot()
                if isinstance(user, live.Ops):
                    epoch = registry.begin_epoch()
                    announce_handlers(stopped.memory, agent.module, slot, epoch, user.code_number)
                    registry.add(row, numbers, slot=slot, epoch=epoch)
                else:
                    registry.add(row, numbers, slot=slot)
        walked = walk(stopped, every_tail=not kind.startswith(("counter", "handlers")), handlers=handlers)
        assert (walked.in_handlers > 0) == ("handlers" in kind)
        assert (agent.zones["enter_frugal"] in walked.agent_pcs) == ("handlers" in kind)
        assert not walked.wrong, f"{len(walked.wrong)} of {walked.traces}\n" + "\n".join(walked.wrong[:5])
        assert {Zone.ENTER_ASIDE} <= set(walked.zones)
        lost = registry.losses_of(int(np.flatnonzero(agent.arena.registry["users"]["kind"])[-1]))
        assert lost["missed"] == 0


def test_calls_from_thunks_that_the_loader_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner may have calls made by thunks; their return addresses then lie there, and stand for the original."""
    monkeypatch.setattr(entering, "hook", ObjectHooks(tmp_path).hook)
    monkeypatch.setattr("shadowgraph.patch.plan.plan_module", partial(plan_module, real_calls=True))
    monkeypatch.setenv("SHADOWGRAPH_NO_CACHE", "1")
    with Stopped(build(PROGRAMS / "stack_paths.c", "now", ("-DREAL_CALLS",)), selection=ALL) as stopped:
        walked = walk(stopped, every_tail=True)
        assert not walked.wrong, f"{len(walked.wrong)} of {walked.traces}\n" + "\n".join(walked.wrong[:5])
