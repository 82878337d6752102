"""What a single-stepped program has called, kept without any unwind information: the oracle for stack traces.

Every `call` of the program pushes, and every frame whose slot lies below the stack pointer is gone. Instructions of the
agent do not count: to the program, they do not exist.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from iced_x86 import Decoder, FlowControl

from shadowgraph.agent import layout
from shadowgraph.agent.zones import ZONES, Place, Standing, Zone, ZoneTable
from shadowgraph.stack.frame import FrameKind, StackTrace
from tests.support.stopped import Stopped

__all__ = ["CallModel", "Expected", "shown"]

# Functions that the agent looks at for its own needs, without a shadow frame.
_NOT_RECORDED = layout.FLAG_SILENT | layout.FLAG_TRUE_RETURN

Expected = list[tuple[int, str]]


@dataclass
class _Call:
    """A call in flight: its slot, the return address the caller pushed, and the hooked functions entered through it."""

    slot: int
    return_address: int
    entered: list[int] = field(default_factory=list)


class CallModel:
    """Follows a program from a place where it stands at the first instruction of a function.

    ``base`` are the frames of the callers of that function, newest first; ``handlers`` is where handlers in C lie,
    which are as little the program's as the agent is.
    """

    def __init__(self, stopped: Stopped, base: Expected, handlers: Container[int] = ()) -> None:
        assert stopped.unwinder.zones is not None
        self.stopped = stopped
        self.handlers = handlers
        self.zones: ZoneTable = stopped.unwinder.zones
        self.base = base
        registers = stopped.registers()
        self.calls = [_Call(registers.rsp, stopped.memory.read_word(registers.rsp))]
        self.place: Place = self.zones.place(registers.rip)
        self.standing = Standing.ENTRY
        self.returning = 0
        self.entering = 0
        self._flow: dict[int, FlowControl] = {}
        self._note_entry(None)

    def step(self) -> bool:
        """Let the program run one instruction. False if it has ended."""
        before = self.stopped.registers()
        place, flow = self.place, self._flow_at(before.rip)
        if not self.stopped.step():
            return False
        after = self.stopped.registers()
        self.place = Place(Zone.AGENT, after.rip) if after.rip in self.handlers else self.zones.place(after.rip)
        if not ZONES[place.zone].own_unwind:
            left_displaced_call = place.pushed and self.place.zone not in (Zone.BODY, Zone.HEAD)
            if (
                flow in (FlowControl.CALL, FlowControl.INDIRECT_CALL) and after.rsp == before.rsp - 8
            ) or left_displaced_call:
                self.calls.append(_Call(after.rsp, self.stopped.memory.read_word(after.rsp)))
            elif flow == FlowControl.RETURN and self.calls and self.calls[-1].slot == before.rsp:
                self.returning = self.calls.pop().return_address
        if self.place.zone in (Zone.OUTSIDE, Zone.JUMP, Zone.HEAD):
            while self.calls and self.calls[-1].slot < after.rsp:
                self.calls.pop()
        if ZONES[self.place.zone].standing is not Standing.CALLED:
            self.standing = ZONES[self.place.zone].standing
        self._note_entry(place)
        return True

    def expected(self) -> Expected:
        """The frames that a trace must show now: address and whether only the shadow stack knows of it."""
        if self.standing is Standing.RETURN:
            place, running = self.returning, self.returning - 1
        elif self.standing is Standing.ENTRY:
            place = running = self.entering
        else:
            place = running = self.place.original
        frames = [(place, "frame")]
        for call in reversed(self.calls):
            frames += [(function, "tail") for function in reversed(self._gone(call, running))]
            frames.append((call.return_address, "frame"))
            running = call.return_address - 1
        return frames + self.base

    def machine_frames(self, pc: int) -> list[int]:
        """What unwinders that know nothing of us must find at ``pc``, the agent's own frames left out."""
        frames = [] if self.zones.is_agent_text(pc) else [pc]
        if self.standing is Standing.RETURN:
            frames = [self.returning]
        frames += [call.return_address for call in reversed(self.calls)]
        return frames + [address for address, kind in self.base if kind == "frame"]

    def _gone(self, call: _Call, running: int) -> list[int]:
        """The functions entered through a slot that are not the one which runs there now."""
        if call.entered and self._same_function(call.entered[-1], running):
            return call.entered[:-1]
        return call.entered

    def _same_function(self, one: int, other: int) -> bool:
        codes = self.stopped.unwinder.codes
        found = codes.find(one), codes.find(other)
        return found[0] is found[1] and found[0] is not None and found[0].function(one) == found[0].function(other)

    def _note_entry(self, before: Place | None) -> None:
        """A jump into a thunk enters a function through the slot of the newest call, be it called or jumped to.

        A short jump that leads to the real one is the same entry.
        """
        function = self.place.function
        if self.place.zone is Zone.JUMP and function is not None:
            if before is not None and before.zone is Zone.JUMP and before.function == function:
                return
            self.entering = function.entry
            flags = int(function.hooks.thunks.records["flags"][function.index])
            if self.calls and not flags & _NOT_RECORDED:
                self.calls[-1].entered.append(self.entering)

    def _flow_at(self, pc: int) -> FlowControl:
        if pc not in self._flow:
            code = self.stopped.memory.read(pc, 15)
            self._flow[pc] = next(iter(Decoder(64, code, ip=pc))).flow_control
        return self._flow[pc]


def shown(trace: StackTrace) -> Expected:
    """A trace in the terms of the model."""
    return [(frame.pc, "tail" if frame.kind is FrameKind.TAIL else "frame") for frame in trace.program_frames]
