"""The walk up one stack, frame by frame, with everything that is checked on the way.

A frame's caller is found by the unwind row of its pc (image/unwind_rows.py). What makes the result reliable:

- every pc lies in executable memory of a file and has an unwind row, and every value a row needs is known;
- every return address follows a call instruction, by the file's bytes: a trampoline that another tool has put there
  does not, and neither does what wrong unwind information finds;
- the stack is left in one direction only, except through the kernel's frame below a signal handler;
- a return site is believed only if its frame names the very slot in which it was found, and what the agent's unwind
  information computes is what that frame holds;
- the end is one that is known: see ends.py, and rows that leave the return address undefined.
"""

from __future__ import annotations

from shadowgraph.agent.zones import ZONES, HookedFunction, Place, Standing, Zone, ZoneTable
from shadowgraph.image.unwind_rows import Rule, RuleKind, UnwindRow
from shadowgraph.stack.calls import LONGEST_CALL, call_target, ends_in_call, stub_target
from shadowgraph.stack.code import CodeMap, LoadedCode
from shadowgraph.stack.ends import begins_context, is_entry_point, is_signal_return, registers_before_signal
from shadowgraph.stack.entered import EntryPath
from shadowgraph.stack.expressions import evaluate
from shadowgraph.stack.frame import Frame, FrameKind, Lost
from shadowgraph.stack.shadow import ShadowStack
from shadowgraph.stack.snapshot import Snapshot

__all__ = ["Walk"]

_MASK = (1 << 64) - 1
_RSP, _RIP = 7, 16
# What a call may change (System V ABI, AMD64 supplement, 3.2.1): rax, rdx, rcx, rsi, rdi, r8 to r11.
_NOT_PRESERVED = (0, 1, 2, 4, 5, 8, 9, 10, 11)
# They end by writing another return address into their slot and going there.
_JUMPING_UNWINDERS = ("_Unwind_RaiseException", "_Unwind_ForcedUnwind", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow")
# A return address of 0 ends a stack only this near to its end, where thread control blocks lie (glibc: 2 KiB and TLS).
_NEAR_THE_END = 16 * 1024


class Walk:
    """One walk. ``registers`` are those of the current frame, by DWARF number; ``frames`` grows."""

    def __init__(self, codes: CodeMap, zones: ZoneTable | None, snapshot: Snapshot, registers: dict[int, int]) -> None:
        self.codes = codes
        self.zones = zones
        self.snapshot = snapshot
        self.registers = registers
        self.frames: list[Frame] = []
        self._exact = True  # whether the pc is where the thread stands, and not behind a call
        self._shadow = ShadowStack(snapshot, zones) if zones else None
        self._entry_path = EntryPath(zones, self._shadow, snapshot) if zones and self._shadow else None
        # The last function frame: where it is, and whether the shadow stack knows of it yet.
        self._newest: tuple[LoadedCode, int, bool] | None = None

    def run(self, most: int) -> None:
        """Walk to the end of the stack; Lost, with the frames so far, if the way is not sure."""
        while self.step():
            if len(self.frames) >= most:
                raise Lost(f"the stack is deeper than {most} frames, and the rest was not looked at")

    def step(self) -> bool:
        """Add the current frame and go on to its caller; False at the end of the stack."""
        pc = self.registers[_RIP]
        place, lookup = self._place(pc)
        code = self.codes.find(lookup)
        if code is None:
            self._add(place.original, None, None)
            raise Lost(f"the thread stands at {pc:#x}, which lies in {self.codes.describe(lookup)}")
        self._add_frames(place, code, lookup)
        if self._exact and code.has_switched_stacks(lookup):
            raise Lost(f"the thread is changing stacks ({_named(code, lookup)})")
        self.registers[_RSP] += place.pushed
        found = code.row(lookup)
        if found is not None:
            return self._to_caller(place, code, *found)
        if is_signal_return(code, pc):
            self._leave_signal()
            return True
        if is_entry_point(code, lookup):
            return False
        raise Lost(f"there is no unwind information for {_named(code, lookup)}")

    def _place(self, pc: int) -> tuple[Place, int]:
        """Where the thread stands in this frame, and the address to look up: that of a call, if it is behind one."""
        if self.zones is None:
            return Place(Zone.OUTSIDE, pc), pc - (not self._exact)
        place = self.zones.place(pc)
        if self._exact:
            return place, place.original
        if place.zone is Zone.BODY:  # behind a call that a thunk has made
            return place, self.zones.place(pc - 1).original
        return place if self.zones.is_agent_text(pc) else Place(Zone.OUTSIDE, pc), pc - 1

    # --- frames ---

    def _add(self, pc: int, code: LoadedCode | None, name: str | None, kind: FrameKind = FrameKind.FUNCTION) -> None:
        self.frames.append(Frame(pc, code.name if code else None, name, kind))

    def _add_frames(self, place: Place, code: LoadedCode, lookup: int) -> None:
        """The frame of the current pc, and what it stands for where it is the agent's."""
        zone = ZONES[place.zone]
        if not zone.own_unwind:
            self._newest = (code, lookup, zone.standing is not Standing.ENTRY)
            found = code.row(lookup)
            is_signal = found[1] if found is not None else is_signal_return(code, place.original)
            kind = FrameKind.SIGNAL if is_signal else FrameKind.FUNCTION
            self._add(place.original, code, code.name_at(lookup), kind)
            return
        if place.zone is Zone.SITE_RETURNED and not self._exact:
            self._add_tails()
            return
        self._add(place.original, code, code.name_at(lookup), FrameKind.AGENT)
        if zone.standing is Standing.ENTRY:
            self._add_entered(place)

    def _add_entered(self, place: Place) -> None:
        assert self._entry_path is not None
        function = self._entry_path.function(place.zone, place.original, self.registers, exact=self._exact)
        if function is None:
            raise Lost(f"the agent is entering a function at {place.original:#x}, but it is not known which")
        self._add_hooked(function, FrameKind.ENTERING)
        code = self.codes.find(function.entry)
        has_frame = not self._entry_path.is_before_frame(place.zone, place.original)
        self._newest = (code, function.entry, has_frame) if code else None

    def _add_hooked(self, function: HookedFunction, kind: FrameKind) -> None:
        code = self.codes.find(function.entry)
        self._add(function.entry, code, code.name_at(function.entry) if code else None, kind)

    def _add_tails(self) -> None:
        """Functions that ended in a tail call before the one that returns to this site was reached."""
        assert self._shadow is not None
        held, slot = self.registers[_RIP], self.registers[_RSP] - 8
        frame = self._shadow.behind_site(held, slot, ZONES[Zone.SITE_RETURNED])
        functions = self._shadow.functions_of(frame)
        if functions and self._runs_newest(functions[-1]):
            functions.pop()
        for function in reversed(functions):
            self._add_hooked(function, FrameKind.TAIL)

    def _runs_newest(self, function: HookedFunction) -> bool:
        """Whether the frame above is that of the function that was entered last through this slot."""
        if self._newest is None:
            return True
        code, pc, has_frame = self._newest
        row = code.function(pc)
        if row < 0:
            return not code.is_stub(pc)  # a cold part is taken for one of the newest function
        return has_frame and self.codes.find(function.entry) is code and row == code.function(function.entry)

    # --- to the caller ---

    def _to_caller(self, place: Place, code: LoadedCode, row: UnwindRow, is_signal: bool) -> bool:
        cfa = self._frame_address(row)
        if not (self._exact or is_signal) and cfa <= self.registers[_RSP]:
            raise Lost(f"the frame of {_named(code, place.original)} would lie below the one it called")
        rule = row.rules.get(_RIP)
        if rule is None:
            raise Lost(f"the unwind information of {_named(code, place.original)} names no return address")
        if rule.kind is RuleKind.UNDEFINED:
            return False
        caller = self._caller_registers(row, cfa, is_signal)
        address = caller[_RIP]
        if ZONES[place.zone].own_unwind:
            self._check_site(place, cfa + (rule.number if rule.kind is RuleKind.SAVED_AT else -16), address)
        self.registers, self._exact = caller, is_signal
        return is_signal or self._goes_on(address, code, place, cfa)

    def _goes_on(self, address: int, code: LoadedCode, place: Place, cfa: int) -> bool:
        """Check a return address; False if it says that the stack ends here."""
        if self.zones is not None and self.zones.is_agent_text(address):
            return True
        if address == 0:
            if self.codes.stack_end(cfa - 8) - cfa > _NEAR_THE_END:
                raise Lost(
                    f"the return address of {self._callee(place, code)} is 0, and its stack has no known end there"
                )
            return False
        if self.zones is not None and self._is_behind_call_in_thunk(address):
            return True
        target = self.codes.find(address - 1)
        whose = f"the return address of {self._callee(place, code)} ({address:#x})"
        if target is None:
            where = self.codes.describe(address)
            raise Lost(f"{whose} lies in {where}: another tool has replaced it, or the code there was made at run time")
        if begins_context(target, address):
            return False
        row = target.row(address - 1)
        if (row is not None and row[1]) or is_signal_return(target, address):
            return True
        before = target.text(address - LONGEST_CALL, address)
        if not ends_in_call(before):
            raise Lost(
                f"{whose} does not follow a call ({_named(target, address)}): another tool has replaced it, or the "
                "unwind information is wrong"
            )
        if code.name_at(place.original) in _JUMPING_UNWINDERS and not self._is_called(
            before, address, target, code, place
        ):
            raise Lost(
                f"{whose} is not behind a call of it ({_named(target, address)}): an exception is about to go on there"
            )
        return True

    def _callee(self, place: Place, code: LoadedCode) -> str:
        """Whose return address is looked at, as words; at a site, it is that of the function above."""
        if ZONES[place.zone].own_unwind and self._newest is not None:
            return _named(*self._newest[:2])
        return _named(code, place.original)

    def _is_behind_call_in_thunk(self, address: int) -> bool:
        assert self.zones is not None
        zones = {self.zones.place(address).zone, self.zones.place(address - 1).zone}
        return zones == {Zone.BODY} and ends_in_call(self.snapshot.block(address - LONGEST_CALL, LONGEST_CALL))

    def _is_called(self, before: bytes, address: int, caller: LoadedCode, code: LoadedCode, place: Place) -> bool:
        """Whether the call before a return address leads to the function that the current frame is of, for sure."""
        target = call_target(before, address, self.snapshot.word)
        if target is None:
            return False
        stub = stub_target(caller.text(target, target + 16), target, self.snapshot.word)
        reached = target if stub is None else stub
        return self.codes.find(reached) is code and code.function(reached) == code.function(place.original)

    def _check_site(self, place: Place, slot: int, address: int) -> None:
        """Hold what the agent's unwind information has found against its frames."""
        if self.zones is None or self._shadow is None or place.zone is Zone.AGENT:
            return
        zone = ZONES[place.zone]
        held = self.snapshot.word(slot)
        if not self.zones.is_site_return(held):
            if held != address or not zone.caller_in_slot:
                raise Lost(f"the slot at {slot:#x} holds {held:#x}, which is neither a site nor the return address")
            return
        if place.zone in (Zone.ENTER, Zone.ENTER_ASIDE):
            return  # a tail call: the site is the next frame
        frame = self._shadow.behind_site(held, slot, zone)
        if not zone.site_in_slot or frame.original != address:
            raise Lost(f"the site in the slot at {slot:#x} leads to {address:#x}, its frame to {frame.original:#x}")
        if place.zone is Zone.SITE_RETURNED and self.zones.frame_of_site(place.original) != frame.address:
            raise Lost(f"the thread has returned to another site than the one in the slot at {slot:#x}")

    def _leave_signal(self) -> None:
        self.registers = registers_before_signal(self.registers, self.snapshot.word)
        self._exact = True

    # --- rows ---

    def _frame_address(self, row: UnwindRow) -> int:
        if row.cfa_code:
            return evaluate(row.cfa_code, self.registers, self.snapshot.word)
        if row.cfa_register not in self.registers:
            raise Lost(f"the unwind information needs register {row.cfa_register}, which calls do not preserve")
        return self.registers[row.cfa_register] + row.cfa_offset & _MASK

    def _caller_registers(self, row: UnwindRow, cfa: int, is_signal: bool) -> dict[int, int]:
        caller = dict(self.registers)
        if not is_signal:
            for number in _NOT_PRESERVED:
                caller.pop(number, None)
        caller[_RSP] = cfa
        for number, rule in row.rules.items():
            value = self._value(rule, number, cfa)
            if value is not None:
                caller[number] = value
            else:
                caller.pop(number, None)
        if _RIP not in caller or _RSP not in caller:
            raise Lost("the unwind information leaves the return address or the stack pointer unknown")
        return caller

    def _value(self, rule: Rule, number: int, cfa: int) -> int | None:
        kind = rule.kind
        if kind is RuleKind.SAVED_AT:
            return self.snapshot.word(cfa + rule.number & _MASK)
        if kind is RuleKind.IS_CFA_PLUS:
            return cfa + rule.number & _MASK
        if kind is RuleKind.SAME:
            return self.registers.get(number)
        if kind is RuleKind.IN_REGISTER:
            return self.registers.get(rule.number)
        if kind is RuleKind.IS_EXPRESSION:
            return evaluate(rule.code, self.registers, self.snapshot.word, cfa)
        if kind is RuleKind.SAVED_AT_EXPRESSION:
            return self.snapshot.word(evaluate(rule.code, self.registers, self.snapshot.word, cfa))
        return None


def _named(code: LoadedCode, pc: int) -> str:
    name = code.name_at(pc) or (f"the linker's stub at {pc:#x}" if code.is_stub(pc) else hex(pc))
    return f"{name} in {code.name}"
