"""Controllers that attach to one process at once, or while another one leaves: all succeed, one after another.

SHADOWGRAPH_RACES: how many rounds (otherwise 8).
"""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Callable

import pytest

from shadowgraph import live
from tests.support.attached import Running, Seen
from tests.support.live import send, until
from tests.support.manners import program

ROUNDS = int(os.environ.get("SHADOWGRAPH_RACES", "8"))
_SECONDS = 120.0


class Controller:
    """A controller in a process of its own that counts `gives_back`; it does what it is told by lines, and answers."""

    def __init__(self, pid: int, others: list[Controller]) -> None:
        self._from_us, to_it = os.pipe()
        from_it, self._to_us = os.pipe()
        self._process = os.fork()
        if not self._process:
            try:
                for file in (to_it, from_it, *(file for other in others for file in (other._told, other._said))):
                    os.close(file)
                self._work(pid)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        os.close(self._from_us)
        os.close(self._to_us)
        self._told, self._said = to_it, from_it

    def _work(self, pid: int) -> None:
        self._wait()
        target = live.attach(pid)
        counter = target.register(live.Counter(["gives_back"]))
        os.write(self._to_us, b"on\n")
        self._wait()
        calls = sum(counter.counts().values())
        os.write(self._to_us, f"{calls}\n".encode())
        self._wait()
        target.close()

    def _wait(self) -> None:
        if not os.read(self._from_us, 1):
            os._exit(2)

    def go_on(self) -> None:
        """Let it do the next step: attach, tell what it has counted, or leave."""
        os.write(self._told, b".")

    def answer(self) -> str:
        """What it says."""
        assert select.select([self._said], [], [], _SECONDS)[0], "it says nothing"
        return os.read(self._said, 64).decode().strip()

    def has_left(self) -> bool:
        """Wait for its end; whether it went as it should."""
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1]) == 0


def all_count(controllers: list[Controller], running: Running, calls: int, made: Callable[[], int]) -> None:
    """Let the program make some calls, and hear that each controller has counted these."""
    before = made()
    send(running, range(calls))
    until(lambda: made() == before + calls)
    for one in controllers:
        one.go_on()
    assert [one.answer() for one in controllers] == [str(calls)] * len(controllers)


@pytest.mark.parametrize("fresh", [True, False], ids=["a new process each time", "one process"])
def test_controllers_that_attach_at_the_same_moment_all_succeed(fresh: bool) -> None:
    path = program("live_values")
    running = Running([path])
    calls = 0
    try:
        for _ in range(ROUNDS):
            if fresh:
                running.__exit__()
                running, calls = Running([path]), 0
            before = Seen.of(running.pid, path)
            controllers: list[Controller] = []
            for _ in range(3):
                controllers.append(Controller(running.pid, controllers))
            for one in controllers:
                one.go_on()
            assert [one.answer() for one in controllers] == ["on"] * 3
            with live.attach(running.pid) as target:
                fourth = target.register(live.Counter(["gives_back"]))
                all_count(controllers, running, 50, lambda counter=fourth: sum(counter.counts().values()))
                calls += 50
            for one in controllers:
                one.go_on()
            assert [one.has_left() for one in controllers] == [True] * 3
            after = Seen.of(running.pid, path)
            assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end("") == [f"gives_back {calls}", "OK"]
    finally:
        running.__exit__()


def test_one_that_attaches_while_another_leaves_succeeds() -> None:
    path = program("live_values")
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        former: Controller | None = None
        for _ in range(2 * ROUNDS):
            new = Controller(running.pid, [former] if former else [])
            new.go_on()
            if former is not None:
                former.go_on()  # the last one to leave takes the hooks out that the new one is about to need
            assert new.answer() == "on"
            if former is not None:
                assert former.has_left()
            with live.attach(running.pid) as target:
                beside = target.register(live.Counter(["gives_back"]))
                all_count([new], running, 20, lambda counter=beside: sum(counter.counts().values()))
            former = new
        assert former is not None
        former.go_on()
        assert former.has_left()
        after = Seen.of(running.pid, path)
        assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end("") == [f"gives_back {2 * ROUNDS * 20}", "OK"]
