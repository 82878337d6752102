"""The thread that works for a target does so whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from shadowgraph import live
from shadowgraph.live.worker import Worker
from tests.support.attached import Running
from tests.support.live import until
from tests.support.manners import program


def test_what_goes_wrong_while_nothing_is_to_be_done_is_said_once_and_jobs_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, looks = [], [0]

    def idle() -> None:
        looks[0] += 1
        raise ValueError("a look at a process that has gone wrong")

    monkeypatch.setattr(threading, "excepthook", lambda told: said.append(told.exc_value))
    worker = Worker(idle, 0.001)
    worker.start()
    until(lambda: looks[0] > 3)
    assert worker.do(lambda: 42) == 42
    worker.close()
    assert [str(error) for error in said] == ["a look at a process that has gone wrong"]


def test_what_is_to_be_done_after_the_end_of_the_thread_is_done_by_who_wants_it() -> None:
    worker = Worker(lambda: None, 0.001)
    worker.start()
    assert worker.do(threading.current_thread) is not threading.current_thread()
    worker.close()
    assert worker.do(threading.current_thread) is threading.current_thread()


def test_nothing_is_looked_at_of_a_target_before_all_of_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Worker):
        def __init__(self, idle: Callable[[], None], pause: float) -> None:
            super().__init__(idle, pause)
            time.sleep(5 * pause)  # on a busy machine

    said = []
    monkeypatch.setattr(threading, "excepthook", lambda told: said.append(told.exc_value))
    monkeypatch.setattr("shadowgraph.live.target.Worker", Slow)
    with Running([program("live_values")]) as running, live.attach(running.pid):
        assert said == []
