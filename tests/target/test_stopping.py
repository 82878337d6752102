"""Stopping a process that ends meanwhile."""

from __future__ import annotations

import os
import signal

import pytest

from shadowgraph.errors import StartError
from shadowgraph.target.stopping import StoppedProcess, thread_state
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
