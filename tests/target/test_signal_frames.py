"""The registers that a signal handler returns to are found on the stack, as the handler itself sees them."""

from __future__ import annotations

from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.signal_frames import find_restorers, saved_contexts
from shadowgraph.target.stopping import StoppedProcess
from tests.attach.conftest import built
from tests.attach.test_inside import address_of
from tests.support.attached import Running


def test_the_place_that_a_waiting_handler_has_interrupted_is_found_once() -> None:
    path = built("attach_inside")
    with Running([path]) as running:
        faults = address_of(running.pid, path, "faults")
        memory = Memory(running.pid)
        mappings = read_mappings(running.pid)
        restorers = find_restorers(memory, mappings)
        assert restorers, "the C library's code for returning from handlers was not found"
        with StoppedProcess(running.pid) as stop:
            found = {
                tid: saved_contexts(memory, mappings, registers.rsp, restorers)
                for tid, registers in stop.registers.items()
            }
            contexts = [context for each in found.values() for context in each]
            assert [context.rip for context in contexts] == [faults + 1]
            assert memory.read_word(contexts[0].rip_at) == faults + 1
            assert memory.read_word(contexts[0].rsp_at) == contexts[0].rsp
        memory.close()
        assert running.end() == ["results 2 42 2"]
