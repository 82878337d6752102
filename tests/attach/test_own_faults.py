"""A process that faults on purpose, all the time: its signals are its own while a thread of it is borrowed."""

from __future__ import annotations

import subprocess

import shadowgraph as sg
from shadowgraph.errors import StartError
from tests.support.manners import program

_ROUNDS = 500_000_000


def test_a_fault_that_is_pending_when_a_thread_is_borrowed_stays_the_programs() -> None:
    """The kernel takes it out of the queue when the borrowed thread's trap comes, though it is blocked."""
    attached = 0
    command = [program("live_own_faults"), str(_ROUNDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None and attached < 25:
            try:
                with sg.attach(process.pid) as target:
                    target.register(sg.Counter(["work"]))
                    attached += 1
            except StartError as error:
                assert "ended" in str(error)
        output, _ = process.communicate(timeout=120)
    assert output.splitlines() == [f"{_ROUNDS * (_ROUNDS - 1)} {_ROUNDS // 1000}", "OK"]
    assert process.returncode == 0
    assert attached > 2
