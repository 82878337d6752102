"""A borrowed thread finds back by itself when its tracer is killed, at whatever moment, and finds all as it was."""

from __future__ import annotations

import subprocess
from itertools import count
from pathlib import Path

import pytest

from shadowgraph.target import ptrace, way_home
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.stopping import stop_thread, threads_of
from tests.support.attached import Running
from tests.support.killed_live import run_controller
from tests.support.manners import program
from tests.target.test_remote import Waiting, address_of, held


def borrow(pid: int, foreign: int, *, own_stack: bool) -> None:
    """Stop the thread, call a function in it that leaves no register as it was, and a system call; let it go."""
    memory = Memory(pid)
    with held(pid), RemoteThread(pid, memory, own_stack=own_stack) as thread:
        assert thread.call(foreign, 1, 2, 3, 4, 5, 6) == 654321
        assert thread.system_call(39) == pid
    memory.close()


@pytest.mark.parametrize("own_stack", [False, True])
@pytest.mark.parametrize("what", ["read", "poll", "pause", "epoll"])  # the others are over soon by themselves
def test_a_waiting_thread_goes_on_waiting_wherever_its_tracer_is_killed(what: str, own_stack: bool) -> None:
    plain = Waiting(what)
    plain.until_it_waits()
    expected = plain.end()
    for moment in count(1):
        waiting = Waiting(what)
        foreign = waiting.address("foreign")
        waiting.until_it_waits()
        seen = run_controller(lambda pid=waiting.pid, at=foreign: borrow(pid, at, own_stack=own_stack), moment)
        if what == "pause":  # whose signal must not come before it waits again
            waiting.until_it_waits()
        lines = waiting.end()
        if what == "epoll" and moment < 16 and lines[0].startswith("result -4 "):
            continue  # it has been stopped, which ends it with EINTR, and nobody has put that right
        assert lines[:3] == expected[:3], f"killed at {moment}"
        if seen < moment:
            break
    assert moment > 40


def test_a_busy_thread_has_its_vector_registers_and_goes_on_wherever_its_tracer_is_killed() -> None:
    process = subprocess.Popen([program("values_vector_state", "o2"), "2000000000"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    supported = [process.stdout.readline(), process.stdout.readline()]
    assert [line[:4] for line in supported] == ["avx2", "avx5"]
    try:
        for moment in count(1):
            if run_controller(lambda: only_system_calls(process.pid), moment) < moment:
                break
        assert process.poll() is None
        assert moment > 30
    finally:
        process.kill()
        output, _ = process.communicate()
    assert output == "", "it prints what differs"


@pytest.mark.parametrize("where", ["coroutine", "handler"])
@pytest.mark.parametrize("who", ["first", "other"])
def test_a_thread_on_another_stack_goes_on_there_wherever_its_tracer_is_killed(who: str, where: str) -> None:
    for moment in count(1):
        with Running([program("manners_coroutine", "o2", "-pthread"), who, where]) as running:
            tid = until_one_reads(running.pid, is_first=who == "first")
            foreign = address_of("foreign", running.pid)
            seen = run_controller(lambda pid=running.pid, tid=tid, at=foreign: borrow_twice(pid, tid, at), moment)
            assert running.end("x") == ["read 1 x", "back", "OK"], f"killed at {moment}"
        if seen < moment:
            break
    assert moment > 80


def until_one_reads(pid: int, *, is_first: bool) -> int:
    """Until the thread that is to waits for stdin; its number."""
    while True:
        for tid in threads_of(pid):
            words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
            if words[0] == "0" and (tid == pid) == is_first:
                return tid


def borrow_twice(pid: int, tid: int, foreign: int) -> None:
    memory = Memory(pid)
    for _ in range(2):
        stop_thread(tid, pid=pid)
        with RemoteThread(tid, memory) as thread:
            assert thread.call(foreign, 1, 2) == 21
            assert thread.system_call(39) == pid
        ptrace.detach(tid)
    memory.close()


def only_system_calls(pid: int) -> None:
    memory = Memory(pid)
    with held(pid), RemoteThread(pid, memory, own_stack=True) as thread:
        assert thread.system_call(39) == pid
    memory.close()


def test_the_code_that_leads_home_is_there_once_and_stays() -> None:
    waiting = Waiting("read")
    waiting.until_it_waits()
    memory = Memory(waiting.pid)
    places = {way_home.find_code(memory, read_mappings(waiting.pid)) for _ in range(3)}
    assert len(places) == 1
    (mapping,) = [m for m in read_mappings(waiting.pid) if m.start <= next(iter(places)) < m.end]
    assert mapping.path == "[vdso]"
    memory.close()
    assert waiting.end()


def test_a_frame_goes_on_the_threads_own_stack_and_on_no_other() -> None:
    waiting = Waiting("read")
    waiting.until_it_waits()
    with held(waiting.pid):
        registers, mappings = ptrace.get_registers(waiting.pid), read_mappings(waiting.pid)
        space = way_home.space_for(ptrace.get_extended_state(waiting.pid))
        assert 1000 < space < 16384
        at = way_home.frame_below(registers, mappings, space)
        assert registers.rsp - 128 - space - 64 < at <= registers.rsp - 128 - space and at % 64 == 0
        heap = next(m for m in mappings if m.path == "[heap]")
        registers.rsp = heap.end - 64
        assert way_home.frame_below(registers, mappings, space) == 0
    assert waiting.end()


@pytest.mark.parametrize(
    ("number", "result", "expected"),
    [
        (0, -512, (0, 98)),  # ERESTARTSYS: the call is made again
        (35, -516, (35, 98)),  # ERESTART_RESTARTBLOCK: so is one that would have gone on with what was left of its time
        (219, -516, (-4, 100)),  # but if the kernel has resumed it before, nobody knows it any more
        (0, -4, (-4, 100)),
        (0, 17, (17, 100)),
        (-1, -512, (-512, 100)),  # no system call at all
    ],
)
def test_a_system_call_in_a_frame_is_made_again_where_the_kernel_would_do_so(
    number: int, result: int, expected: tuple[int, int]
) -> None:
    registers, mask = ptrace.Registers(), (1 << 64) - 1
    registers.orig_rax, registers.rax, registers.rip = number & mask, result & mask, 100
    found = way_home.as_resumed(registers)
    assert (found.rax, found.rip) == (expected[0] & mask, expected[1])
