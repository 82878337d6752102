"""Stopping a process that ends meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from shadowgraph.errors import StartError
from shadowgraph.target.stopping import StoppedProcess, let_go_of_late, thread_state
from tests.support.elf_files import compile_text
from tests.support.live import until


class _EndsMeanwhile(StoppedProcess):
    """The process is killed when it has been asked to stop."""

    def _interrupt(self, tid: int) -> bool:
        asked = super()._interrupt(tid)
        os.kill(tid, signal.SIGKILL)
        until(lambda: thread_state(tid, tid) == "Z")
        return asked


def test_the_status_of_a_child_of_ours_stays_for_whoever_waits_for_it() -> None:
    child = os.fork()
    if child == 0:
        while True:
            signal.pause()
    with pytest.raises(StartError, match="has just ended"), _EndsMeanwhile(child):
        pass
    pid, status = os.waitpid(child, 0)
    assert (pid, os.waitstatus_to_exitcode(status)) == (child, -signal.SIGKILL)


VFORKS = r"""
#define _GNU_SOURCE
#include <unistd.h>
int main(void)
{
    char c;
    if (vfork() == 0) {
        write(1, "v", 1);
        read(0, &c, 1);
        _exit(0);
    }
    write(1, "p", 1);
    return read(0, &c, 1) == 1 ? 7 : 1;
}
"""


def test_a_process_that_could_not_be_stopped_is_let_go_of_when_it_stops_at_last() -> None:
    """It waits for a child made by vfork, where nothing interrupts it."""
    with subprocess.Popen([compile_text(VFORKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.read(1) == b"v"
        with pytest.raises(StartError, match="a child made by vfork"), StoppedProcess(process.pid, seconds=0.05):
            pass
        process.stdin.write(b"1")
        until(lambda: thread_state(process.pid, process.pid) == "t")
        let_go_of_late()
        assert process.stdout.read(1) == b"p"
        with StoppedProcess(process.pid) as stop:  # as any other
            assert list(stop.registers) == [process.pid]
        process.stdin.write(b"2")
        assert process.wait() == 7
