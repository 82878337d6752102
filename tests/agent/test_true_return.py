"""A slot that gets its caller's address back is told to a hardware shadow stack: its top is the site's, and goes.

Here is no such processor. A debugger plays it: it steps to the instruction that would read the shadow stack's pointer,
gives it one, and sees whether the instruction that takes an entry off is reached.
"""

from __future__ import annotations

from shadowgraph.agent.zones import Zone
from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.target import ptrace
from tests.support.build import PROGRAMS
from tests.support.graphs import read_graph
from tests.support.recording import built
from tests.support.stopped import Stopped

RDSSPQ_RAX, INCSSPQ_RAX = bytes.fromhex("f3480f1ec8"), bytes.fromhex("f3480faee8")
PAST = 5


def play_shadow_stack(stopped: Stopped, top: int) -> bool:
    """From the instruction that reads its pointer on: whether an entry is taken off a stack with this on top."""
    registers = stopped.registers()
    place = registers.rsp - 0x200 & ~7
    stopped.memory.write(place, top.to_bytes(8, "little"))
    registers.rax, registers.rip = place, registers.rip + PAST
    ptrace.set_registers(stopped.pid, registers)
    for _ in range(8):
        registers = stopped.registers()
        if stopped.memory.read(registers.rip, PAST) == INCSSPQ_RAX:
            assert registers.rax == 1
            registers.rip += PAST
            ptrace.set_registers(stopped.pid, registers)
            return True
        stopped.step()
    return False


def test_the_site_goes_where_its_slot_was_given_back_and_only_there() -> None:
    program = built(read_graph(PROGRAMS / "tail_true_return.graph"), "o2")
    with Stopped(program, "2", selection=Selection(libcalls=LibraryCalls.NONE)) as stopped:
        assert stopped.unwinder.zones is not None
        low, high = stopped.unwinder.zones.range_of(Zone.ENTER_ASIDE)
        place = low + stopped.memory.read(low, high - low).index(RDSSPQ_RAX)
        assert stopped.process is not None
        zones = stopped.process.agent.zones
        entries = [zones[name] for name in ("enter", "enter_from_caller", "enter_for_true_return", "enter_general")]
        top, given_back, kept = 0, 0, 0
        while stopped.run_to([*entries, place]):
            slot = stopped.memory.read_word(stopped.registers().rsp)
            if stopped.registers().rip in entries:
                top = slot  # what the last call has pushed, on both stacks
                continue
            is_given_back = slot != top
            assert play_shadow_stack(stopped, top) == is_given_back
            given_back, kept = given_back + is_given_back, kept + (not is_given_back)
        # In both rounds `looks_up` jumps to `next`, which shares its slot, and that to dlsym.
        assert given_back == 2
        assert kept >= 2
        assert stopped.ended == 0
