"""The thread that works for a target does so whatever happens."""

from __future__ import annotations

import threading

import pytest

from shadowgraph.live.worker import Worker
from tests.support.live import until


def test_what_goes_wrong_while_nothing_is_to_be_done_is_said_once_and_jobs_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, looks = [], [0]

    def idle() -> None:
        looks[0] += 1
        raise ValueError("a look at a process that has gone wrong")

    monkeypatch.setattr(threading, "excepthook", lambda told: said.append(told.exc_value))
    worker = Worker(idle, 0.001)
    until(lambda: looks[0] > 3)
    assert worker.do(lambda: 42) == 42
    worker.close()
    assert [str(error) for error in said] == ["a look at a process that has gone wrong"]
