"""A program stops behind the vDSO before it begins, begins as its loader has left it, and waits there if told to."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shadowgraph.target import launch, ptrace
from shadowgraph.target.doorstep import Doorstep
from shadowgraph.target.memory import AT_ENTRY, Memory, read_auxiliary_vector
from tests.support.build import available
from tests.support.live import until
from tests.support.manners import program


@contextmanager
def launched(variant: str = "o2", *arguments: str) -> Iterator[tuple[int, Memory]]:
    """A program that has just been executed, which ends well."""
    path = program("manners_counted", variant, "-pthread")
    pid = launch.launch(path, [path, *arguments])
    memory = Memory(pid)
    yield pid, memory
    ptrace.detach(pid)
    memory.close()
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("variant", ["o2", "nopie", "musl"])
def test_it_stops_at_its_entry_with_all_as_the_loader_has_left_it(variant: str) -> None:
    if not available(variant):
        pytest.skip("no such compiler")
    with launched(variant) as (pid, memory):
        stack = ptrace.get_registers(pid).rsp
        before = memory.read(stack, 512)
        entry = launch.run_to_entry(pid)
        found = ptrace.get_registers(pid)
        assert (found.rip, found.rsp) == (entry, stack)
        assert entry == read_auxiliary_vector(pid)[AT_ENTRY]
        assert memory.read(stack, 512) == before
        door = Doorstep.find(memory)
        assert door is not None and not door.expected and not door.holds(found.rip)


def test_the_registers_that_are_zero_are_those_that_a_breakpoint_finds_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for _ in range(2):
        with launched() as (pid, _):
            launch.run_to_entry(pid)
            found = ptrace.get_registers(pid)
            seen.append({name for name, _ in found._fields_ if getattr(found, name) == 0})
        monkeypatch.setattr(Doorstep, "lay", lambda *_: None)
    assert seen[0] == seen[1]


def test_where_all_useless_signals_are_blocked_it_is_stopped_by_a_breakpoint() -> None:
    blocked = {signal.SIGURG, signal.SIGWINCH, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        with launched() as (pid, memory):
            assert launch.run_to_entry(pid) == ptrace.get_registers(pid).rip
            assert Doorstep.find(memory) is None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_it_waits_for_those_who_are_expected_and_for_no_longer_than_they_live() -> None:
    for comes in (True, False):
        path = program("manners_counted", "o2", "-pthread")
        pid = launch.launch(path, [path])
        memory = Memory(pid)
        launch.run_to_entry(pid, 2)
        door = Doorstep.find(memory)
        assert door is not None and door.expected == 2 and door.holds(ptrace.get_registers(pid).rip)
        ptrace.detach(pid)
        until(door.is_waited_at)
        if comes:
            door.expect(0)
        assert os.waitpid(pid, 0)[1] == 0
        memory.close()
