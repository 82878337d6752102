"""Patterns that nothing has matched: what is said of them while something may come, and what when it is over."""

from __future__ import annotations

import json

import pytest

from shadowgraph import live
from tests.support.attached import Running
from tests.support.live import SHADOWGRAPH
from tests.support.manners import program, run

PATTERN = "libz.so.*!zlibVersion"
AWAITED = f"{PATTERN}: no such library is loaded yet; it will be seen from its first call on"
GONE = "no module matched libz.so.*; there were live_later, "


def test_of_a_library_it_is_said_that_it_is_waited_for_until_it_is_there() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        target.register(live.Counter([PATTERN]))
        assert (target.awaited, target.notes) == ([AWAITED], [AWAITED])
        assert running.say("load") == "done"
        assert (target.awaited, target.notes) == ([], [])
        assert running.say("unload") == "done"
        assert target.notes == []
        assert running.end() == ["OK"]
        assert target.notes == []


def test_of_a_library_that_never_came_it_is_said_in_the_end_that_there_was_none() -> None:
    with Running([program("live_later")]) as running:
        with live.attach(running.pid) as target:
            counter = target.register(live.Counter([PATTERN]))
            assert target.notes == [AWAITED]
            counter.unregister()
            (note,) = target.notes
            assert note.startswith(GONE)
            target.register(counter)
            assert target.notes == [AWAITED]
        (note,) = target.notes
        assert note.startswith(GONE)
        assert target.awaited == []
        with live.attach(running.pid) as target:
            target.register(live.Counter([PATTERN]))
            assert running.end() == ["OK"]
            assert target.wait() == 0
            (note,) = target.notes
            assert note.startswith(GONE)


def test_of_a_library_without_such_a_function_it_is_said_in_the_end_that_nothing_matched() -> None:
    with Running([program("live_later")]) as running:
        with live.attach(running.pid) as target:
            target.register(live.Counter(["libz.so.*!zlib_version"]))
            assert running.say("load") == "done"
        (note,) = target.notes
        assert note.startswith("no function matched libz.so.*!zlib_version; the nearest names are ")
        assert running.end() == ["OK"]


def test_what_another_program_has_that_is_executed_was_matched() -> None:
    words = [program("live_execs", "o2", "-pthread"), "2", "other", program("live_short")]
    with live.launch(words, follow=True) as target:
        counter = target.register(live.Counter(["step", "tiny", "nothing_of_the_kind"]))
        first, second = target.notes
        assert first.startswith("no function matched tiny")
        assert target.wait() == 0
        assert target.notes == [second]
    assert counter.counts() == {"live_execs!step": 2, "live_short!tiny": 0}
    assert target.notes == [second]
    assert second.startswith("no function matched nothing_of_the_kind")


@pytest.mark.parametrize(
    "words",
    [["count"], ["hist"], ["top"], ["probe", "--code", "int on_entry(struct sg_call *call) { return !call; }"]],
    ids=lambda words: str(words[0]),
)
def test_commands_say_at_the_start_what_they_wait_for_and_in_the_end_that_it_was_not_there(words: list[str]) -> None:
    with Running([program("live_later")]) as running:
        ended = run([*SHADOWGRAPH, *words, "-f", PATTERN, "--json", "--for", "100ms", str(running.pid)])
        assert ended.status == 0
        assert ended.errors.splitlines()[0] == f"shadowgraph: {AWAITED}"
        (problem,) = json.loads(ended.lines[-1])["problems"]
        assert problem.startswith(GONE)
        assert f"shadowgraph: {problem}" in ended.errors.splitlines()[1:]
        assert running.end() == ["OK"]
