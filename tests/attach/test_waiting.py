"""What a thread waits for goes on as if nobody had attached: no error, no early end, no lost wake-up."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from shadowgraph.target.stopping import thread_state, threads_of
from tests.attach.conftest import built
from tests.support.attached import Running, Seen, attached
from tests.support.manners import program

EXPECTED = [
    "sleep_relative 0 errno 0 early 0",
    "sleep_absolute 0 errno 0 early 0",
    "futex_with_time -1 errno 110 early 0",
    "futex_without 0 errno 0 early 0",
    "poll_with_time 0 errno 0 early 0",
    "poll_without 1 errno 0 early 0",
    "select_without 1 errno 0 early 0",
    "epoll_without 1 errno 0 early 0",
    "read_pipe 1 errno 0 early 0",
    "receive_with_time 1 errno 0 early 0",
    "wait_for_child 42 errno 0 early 0",
    "receive_message 8 errno 0 early 0",
    "take_semaphore 0 errno 0 early 0",
    "condition 110 errno 0 early 0",
]


def test_threads_in_each_blocking_system_call_are_not_disturbed() -> None:
    path = built("attach_waiting")
    with Running([path]) as running:
        for _ in range(3):
            with attached(running.pid) as process:
                assert process.hooked > 10
        # A wait that is made again when its word has changed meanwhile says so (EAGAIN), as after any other stop.
        _until_all_wait(running.pid)
        assert running.end() == EXPECTED


@pytest.mark.parametrize("what", ["read", "epoll", "poll"])
def test_registers_signals_and_vectors_of_a_waiting_thread_are_as_they_were(what: str) -> None:
    path = program("manners_waiting")
    lines = []
    for attach_to_it in (False, True):
        with Running([path, what]) as running:
            if attach_to_it:
                with attached(running.pid):
                    pass
            lines.append(running.end("x")[:3])
    assert lines[0] == lines[1]
    assert "changed 0" in lines[0][0]


def test_a_process_stopped_by_a_signal_stays_stopped_and_is_traced_when_it_goes_on() -> None:
    path = built("attach_busy")
    with Running([path, "2"]) as running:
        os.kill(running.pid, signal.SIGSTOP)
        _until_state(running.pid, "T")
        before = Seen.of(running.pid, path)
        with attached(running.pid) as process:
            _until_state(running.pid, "T")
            assert not process.agent.arena.threads["state"].any()
            os.kill(running.pid, signal.SIGCONT)
            deadline = time.monotonic() + 30
            while (process.agent.arena.threads["state"] == 1).sum() < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert (process.agent.arena.threads["state"] == 1).sum() == 2
            os.kill(running.pid, signal.SIGSTOP)
            _until_state(running.pid, "T")
        _until_state(running.pid, "T")
        assert Seen.of(running.pid, path).code == before.code
        os.kill(running.pid, signal.SIGCONT)
        assert running.end() == ["wrong 0 worked 1"]


def _until_all_wait(pid: int) -> None:
    deadline = time.monotonic() + 30
    while any(thread_state(pid, tid) != "S" for tid in threads_of(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _until_state(pid: int, state: str) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != state:
        assert time.monotonic() < deadline
        time.sleep(0.001)
