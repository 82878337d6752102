"""Runs within gdb: steps a program and holds gdb's own stack against the calls it has seen (R23, R24).

$agent_low, $agent_high: the agent's executable memory, whose instructions and frames do not exist to the program.
$walk_end: where to stop. Every place is looked at once. Prints one line of JSON.
"""

from __future__ import annotations

import json

import gdb  # type: ignore[import-not-found]

TWO_TO_64 = 1 << 64


def value(expression: str) -> int:
    return int(gdb.parse_and_eval(expression)) % TWO_TO_64


def memory(address: int, size: int) -> bytes:
    return bytes(gdb.selected_inferior().read_memory(address, size))


def word(address: int) -> int:
    return int.from_bytes(memory(address, 8), "little")


class Walk:
    """The model of the calls in flight: as in stack_single_step.c and call_model.py."""

    def __init__(self) -> None:
        self.low, self.high, self.end = value("$agent_low"), value("$agent_high"), value("$walk_end")
        self.pc, self.sp = value("$pc"), value("$sp")
        self.calls = [(self.sp, word(self.sp))]
        self.below = [pc for pc in self.stack()[2:] if not self.in_agent(pc)]
        self.returning = 0
        self.seen: set[int] = set()
        self.agent_walks = self.other_walks = self.steps = 0
        self.wrong: list[dict[str, object]] = []

    def in_agent(self, pc: int) -> bool:
        return self.low <= pc < self.high

    def stack(self) -> list[int]:
        found, frame = [], gdb.newest_frame()
        while frame is not None and len(found) < 200:
            found.append(frame.pc() % TWO_TO_64)
            frame = frame.older()
        return found

    def step(self) -> None:
        pc, sp = self.pc, self.sp
        gdb.execute("stepi", to_string=True)
        self.steps += 1
        self.pc, self.sp = value("$pc"), value("$sp")
        if not self.in_agent(pc):
            top = word(self.sp)
            if self.sp == sp - 8 and pc < top <= pc + 7:
                self.calls.append((self.sp, top))
            elif memory(pc, 1) == b"\xc3" and self.calls and self.calls[-1][0] == sp:
                self.returning = self.calls.pop()[1]
        if not self.in_agent(self.pc):
            self.returning = 0
            while self.calls and self.calls[-1][0] < self.sp:
                self.calls.pop()

    def look(self) -> None:
        place = (self.pc - self.low) % 64 if self.in_agent(self.pc) and memory(self.pc & ~63, 3) == SITE else self.pc
        if place in self.seen:
            return
        self.seen.add(place)
        found = [pc for pc in self.stack() if not self.in_agent(pc)]
        expected = [self.returning] if self.returning else [] if self.in_agent(self.pc) else [self.pc]
        expected += [address for _, address in reversed(self.calls)] + self.below
        if self.in_agent(self.pc):
            self.agent_walks += 1
        else:
            self.other_walks += 1
        if found != expected:
            self.wrong.append(
                {"pc": hex(self.pc), "found": list(map(hex, found)), "expected": list(map(hex, expected))}
            )

    def run(self) -> None:
        while self.pc != self.end and self.steps < 60_000:
            self.step()
            self.look()
        summary = {"agent": self.agent_walks, "other": self.other_walks, "steps": self.steps, "wrong": self.wrong}
        print("RESULT " + json.dumps(summary))


SITE = b"\x48\x8b\x4c"  # mov rcx, [rsp - 40], how a return site begins

Walk().run()
gdb.execute("kill")
