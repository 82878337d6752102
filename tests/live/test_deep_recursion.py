"""A million calls in one another with few frames: right results, and each user sees a call or misses it (R13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowgraph import live
from shadowgraph.agent.inject import Settings
from tests.live.test_private_data import keeping
from tests.support.attached import Running
from tests.support.counts import read_counts
from tests.support.manners import program

DEPTH = 1_000_000
CALLS = DEPTH + 1
FRAMES = 1024
LABEL = "live_recursion!down"

# Each kind of user that needs the exit, and how many calls it has served.
Served = Callable[[live.User], int]
USERS: dict[str, tuple[Callable[[], live.User], Served]] = {
    "counter with a condition at the exit": (
        lambda: live.Counter(["down"], when="duration >= 0"),
        lambda user: user.counts()[LABEL],  # type: ignore[attr-defined]
    ),
    "totals": (
        lambda: live.Totals(["down"]),
        lambda user: user.totals()[LABEL]["count"],  # type: ignore[attr-defined]
    ),
    "histogram": (
        lambda: live.Histogram(["down"]),
        lambda user: user.percentiles("down")["count"],  # type: ignore[attr-defined]
    ),
    "histogram of an argument with a condition at the exit": (
        lambda: live.Histogram(["down"], value="arg(0)", when="result >= 0"),
        lambda user: user.percentiles("down")["count"],  # type: ignore[attr-defined]
    ),
}
# And those that count without a frame.
WITHOUT_FRAMES: dict[str, tuple[Callable[[], live.User], Served]] = {
    "counter": (
        lambda: live.Counter(["down"]),
        lambda user: user.counts()[LABEL],  # type: ignore[attr-defined]
    ),
    "counter with a condition": (
        lambda: live.Counter(["down"], when="arg(0) >= 0"),
        lambda user: user.counts()[LABEL],  # type: ignore[attr-defined]
    ),
    "histogram of an argument": (
        lambda: live.Histogram(["down"], value="arg(0)"),
        lambda user: user.percentiles("down")["count"],  # type: ignore[attr-defined]
    ),
}


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr("shadowgraph.live.hooking.Settings", lambda: Settings(frame_limit=FRAMES))
    command = ["sh", "-c", 'ulimit -s 1000000 && exec "$0"', program("live_recursion")]
    with Running(command, ready=None) as process:
        process.say("0")  # it has been executed
        yield process


def recurse(running: Running, depth: int = DEPTH) -> list[tuple[int, ...]]:
    """(entered, right, wrong) of each user with handlers; the program itself looks at its results."""
    numbers = [int(word) for word in running.say(str(depth)).split()]
    return [tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)]


@pytest.mark.parametrize("kind", USERS)
def test_a_user_serves_as_many_calls_as_there_are_frames_and_misses_the_others(running: Running, kind: str) -> None:
    make, served = USERS[kind]
    with live.attach(running.pid) as target:
        user = target.register(make())
        recurse(running)
        assert served(user) + user.missed == CALLS
        assert 900 <= served(user) <= FRAMES
        first = user.missed
        recurse(running, 500)  # it goes on when there is room
        assert user.missed == first
        assert served(user) + user.missed == CALLS + 501
    assert running.end("") == ["OK"]


@pytest.mark.parametrize("kind", WITHOUT_FRAMES)
def test_who_needs_no_exit_misses_none(running: Running, kind: str) -> None:
    make, served = WITHOUT_FRAMES[kind]
    with live.attach(running.pid) as target:
        user = target.register(make())
        recurse(running)
        assert (served(user), user.missed) == (CALLS, 0)
    assert running.end("") == ["OK"]


@pytest.mark.parametrize("size", [0, 8, 1024])
def test_handlers_with_and_without_data_see_a_call_at_both_ends_or_miss_it(running: Running, size: int) -> None:
    with live.attach(running.pid) as target:
        user = target.register(keeping(0, size))
        for turn in (1, 2):
            entered, right, wrong = recurse(running)[0]
            assert (entered, wrong) == (right, 0)
            assert 900 <= right <= FRAMES
            assert user.missed == turn * (CALLS - right)
        assert recurse(running, 800)[0] == (801, 801, 0)
    assert running.end("") == ["OK"]


def test_all_kinds_of_users_at_once_and_a_recorder_account_for_each_call(running: Running, tmp_path: Path) -> None:
    with live.attach(running.pid) as target:
        made = {kind: (target.register(make()), served) for kind, (make, served) in (USERS | WITHOUT_FRAMES).items()}
        handlers = target.register(keeping(0, 256))
        recorder = target.register(live.Recorder(tmp_path / "deep.sgt", ["down"]))
        entered, right, wrong = recurse(running)[0]
        assert (entered, wrong) == (right, 0) and right + handlers.missed == CALLS
        for kind, (user, served) in made.items():
            assert served(user) + user.missed == CALLS, kind
            assert (user.missed == 0) == (kind in WITHOUT_FRAMES), kind
        recorder.unregister()
    counts = read_counts(tmp_path / "deep.sgt")
    assert counts.calls["down"] + counts.missed == CALLS
    assert (counts.dropped, counts.filtered, counts.open.total()) == (0, 0, 0)
    assert 900 <= counts.calls["down"] <= FRAMES
    assert recorder.missed == counts.missed
    assert running.end("") == ["OK"]


def test_a_recorder_alone_records_as_many_calls_as_there_are_frames(running: Running, tmp_path: Path) -> None:
    with live.attach(running.pid) as target:
        recorder = target.register(live.Recorder(tmp_path / "deep.sgt", ["down"]))
        recurse(running)
        recorder.unregister()
    counts = read_counts(tmp_path / "deep.sgt")
    assert counts.calls["down"] + counts.missed == CALLS
    assert 900 <= counts.calls["down"] <= FRAMES
    assert recorder.missed == counts.missed
    assert running.end("") == ["OK"]
