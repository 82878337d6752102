"""A remote call leaves no trace of itself, whatever the thread was waiting for and whatever its registers held."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowgraph.errors import StartError
from shadowgraph.image import lookup_dynamic, open_image, read_functions
from shadowgraph.target import ptrace, remote
from shadowgraph.target.memory import Memory, read_mappings
from shadowgraph.target.modules import read_modules
from shadowgraph.target.remote import RemoteThread
from tests.support.manners import program

SYSTEM_CALLS = {"read": 0, "poll": 7, "pause": 34, "sleep": 35, "futex": 202, "epoll": 232}
RESTARTED = 219  # restart_syscall(2): how sleep, futex and poll go on
GETPID = 39


class Waiting:
    """manners_waiting, waiting in its system call."""

    def __init__(self, what: str, *more: str) -> None:
        self.path = program("manners_waiting")
        self.what = what
        self.process = subprocess.Popen(
            [self.path, what, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def until_it_waits(self) -> None:
        waits = {str(SYSTEM_CALLS[self.what]), str(RESTARTED)}
        while Path(f"/proc/{self.pid}/syscall").read_text().split()[0] not in waits:
            assert self.process.poll() is None

    def address(self, function: str) -> int:
        return address_of(function, self.pid)

    def end(self) -> list[str]:
        """Let it end; the lines it printed."""
        if self.what == "pause":
            os.kill(self.pid, signal.SIGUSR1)
        output, _ = self.process.communicate("x" if self.what in ("read", "poll", "epoll") else None, timeout=60)
        assert self.process.returncode == 0
        return list(output.splitlines())


def address_of(function: str, pid: int) -> int:
    """Where a process has a function of its program."""
    path = os.readlink(f"/proc/{pid}/exe")
    module = next(module for module in read_modules(pid) if module.path == path)
    functions = read_functions(open_image(module.opened))
    return module.base + int(functions.start[functions.find_name(function)[0]])


@contextmanager
def held(pid: int) -> Iterator[None]:
    """The thread is stopped, and goes on afterwards."""
    ptrace.seize(pid, ptrace.OPTION_MARK_SYSTEM_CALLS)
    try:
        stop(pid)
        yield
    finally:
        ptrace.detach(pid)


def stop(pid: int) -> None:
    ptrace.interrupt(pid)
    while ptrace.event_of(status := ptrace.wait_stop(pid)) != ptrace.EVENT_STOP:
        ptrace.cont(pid, os.WSTOPSIG(status))


def borrow(waiting: Waiting, foreign: int) -> None:
    """Calls a function that leaves no register as it was, and makes a system call, in a stopped thread."""
    memory = Memory(waiting.pid)
    try:
        with RemoteThread(waiting.pid, memory) as thread:
            assert thread.call(foreign, 1, 2, 3, 4, 5, 6) == 654321
            assert thread.system_call(GETPID) == waiting.pid
            text = thread.push(b"pushed\0")
            assert memory.read_string(text) == "pushed"
            assert thread.call(foreign, -1, 0, 0, 0, 0, 0) == (1 << 64) - 1
            assert memory.read_string(text) == "pushed"
    finally:
        memory.close()


@pytest.mark.parametrize("what", SYSTEM_CALLS)
def test_a_waiting_thread_goes_on_waiting_and_finds_everything_as_it_was(what: str) -> None:
    plain = Waiting(what)
    plain.until_it_waits()
    expected = plain.end()
    assert "changed 0" in expected[0]
    waiting = Waiting(what)
    foreign = waiting.address("foreign")
    waiting.until_it_waits()
    with held(waiting.pid):
        borrow(waiting, foreign)
    assert waiting.end() == expected


@pytest.mark.parametrize("what", ["read", "poll"])
def test_many_calls_in_a_row_and_at_many_moments_change_nothing(what: str) -> None:
    waiting = Waiting(what)
    foreign = waiting.address("foreign")
    waiting.until_it_waits()
    for _ in range(30):
        with held(waiting.pid):
            borrow(waiting, foreign)
            borrow(waiting, foreign)
        waiting.until_it_waits()
    lines = waiting.end()
    assert lines[0] == "result 1 errno 0 changed 0"
    assert lines[1:3] == ["blocked 1 1 0 pending 1", "ignored 1 1"]


def test_the_handlers_of_a_timer_run_before_and_after_but_never_on_the_borrowed_stack() -> None:
    waiting = Waiting("read", "500")
    foreign = waiting.address("foreign")
    for _ in range(50):
        with held(waiting.pid):
            borrow(waiting, foreign)
    lines = waiting.end()
    assert lines[0] == "result 1 errno 0 changed 0"
    assert lines[3] == "slept 0 ticked 1" or lines[3] == "slept 1 ticked 1"


def test_a_handler_still_ends_the_waiting_that_a_remote_call_has_not_ended() -> None:
    waiting = Waiting("epoll")
    waiting.until_it_waits()
    with held(waiting.pid):
        borrow(waiting, waiting.address("foreign"))
        os.kill(waiting.pid, signal.SIGUSR1)  # arrives while the thread is stopped
    assert waiting.end()[0] == "result -4 errno 0 changed 0"  # EINTR, as without us


def test_a_system_call_that_fails_says_so() -> None:
    waiting = Waiting("read")
    waiting.until_it_waits()
    with held(waiting.pid):
        memory = Memory(waiting.pid)
        with RemoteThread(waiting.pid, memory) as thread, pytest.raises(OSError, match="Bad file descriptor"):
            thread.system_call(3, 999)
        memory.close()
    assert waiting.end()[0] == "result 1 errno 0 changed 0"


def test_a_called_function_that_fails_is_said_to_have_and_the_thread_is_as_before() -> None:
    waiting = Waiting("read")
    waiting.until_it_waits()
    with held(waiting.pid):
        memory = Memory(waiting.pid)
        readable = next(m for m in read_mappings(waiting.pid) if m.permissions.startswith("rw-"))
        with (
            pytest.raises(StartError, match=r"a function called in it failed at 0x[0-9a-f]+ \(signal 11\)"),
            RemoteThread(waiting.pid, memory) as thread,
        ):
            thread.call(readable.start)  # no code
        memory.close()
    lines = waiting.end()
    assert lines[0] == "result 1 errno 0 changed 0"
    assert lines[1] == "blocked 1 1 0 pending 1"


def test_a_process_that_dies_during_a_call_is_said_to_have_ended() -> None:
    waiting = Waiting("read")
    waiting.until_it_waits()
    ptrace.seize(waiting.pid, ptrace.OPTION_MARK_SYSTEM_CALLS)
    stop(waiting.pid)
    memory = Memory(waiting.pid)
    with (
        pytest.raises(StartError, match=f"process {waiting.pid} ended while it was being entered"),
        RemoteThread(waiting.pid, memory) as thread,
    ):
        thread.system_call(231, 7)  # exit_group
    memory.close()


def test_a_call_is_announced_to_a_shadow_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its return must find the address on the shadow stack, that by its frame a token.

    Here some memory of the process is taken for one.
    """
    waiting = Waiting("read")
    waiting.until_it_waits()
    memory = Memory(waiting.pid)
    pointers: list[int] = []
    with held(waiting.pid):
        pretended = (ptrace.get_registers(waiting.pid).rsp - 0x4000) & ~7
        monkeypatch.setattr(remote, "has_shadow_stack", lambda tid: tid == waiting.pid)
        monkeypatch.setattr(ptrace, "get_shadow_stack", lambda tid: pretended)
        monkeypatch.setattr(ptrace, "set_shadow_stack", lambda tid, pointer: pointers.append(pointer))
        with RemoteThread(waiting.pid, memory) as thread:
            function = next(m for m in read_modules(waiting.pid) if m.name.startswith("libc"))
            getpid = lookup_dynamic(open_image(function.opened), "getpid")
            assert getpid is not None
            assert thread.call(function.base + getpid) == waiting.pid
            assert memory.read_word(pretended - 8) == pretended | 1 << 63  # by it the kernel lets a handler return
            pushed = memory.read_word(pretended - 16)
            assert memory.read(pushed - 2, 2) == b"\x0f\x05"
        assert pointers == [pretended - 8, pretended - 16, pretended]
    memory.close()
    assert waiting.end()
