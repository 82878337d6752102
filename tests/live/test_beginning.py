"""When a program that was launched begins: with the users that it was launched for."""

from __future__ import annotations

import time

import pytest

from shadowgraph import live
from shadowgraph.live import handlers
from tests.support.manners import program

LONGER_THAN_IT_IS_HELD = 2.5
SOURCE = "int on_entry(struct sg_call *call) { return 0; }"


def test_a_program_does_not_begin_before_there_is_a_user(capfd: pytest.CaptureFixture[str]) -> None:
    with live.launch([program("live_threads", "o2", "-pthread"), "5"]) as target:
        time.sleep(LONGER_THAN_IT_IS_HELD)
        counter = target.register(live.Counter(["work"]))
        assert target.wait() == 0
    assert counter.counts() == {"live_threads!work": 5}


def test_a_program_does_not_begin_while_a_user_is_being_made(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = handlers.compile_for_needs

    def slowly(*arguments: str) -> object:
        time.sleep(LONGER_THAN_IT_IS_HELD)
        return compiling(*arguments)

    monkeypatch.setattr(handlers, "compile_for_needs", slowly)
    with live.launch([program("live_threads", "o2", "-pthread"), "5"]) as target:
        first = target.register(live.Counter(["work"]))
        target.register(live.Ops(["work"], source=SOURCE, entry="on_entry"))
        second = target.register(live.Counter(["work"]))
        assert target.wait() == 0
    assert first.counts() == second.counts() == {"live_threads!work": 5}


def test_a_program_begins_by_itself_when_its_users_are_there(capfd: pytest.CaptureFixture[str]) -> None:
    with live.launch([program("live_threads", "o2", "-pthread"), "5"]) as target:
        counter = target.register(live.Counter(["work"]))
        while counter.counts()["live_threads!work"] < 5:
            time.sleep(0.05)
