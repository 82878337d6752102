"""Of two controllers that go along into a program that is executed, one is killed: the other misses nothing.

SHADOWGRAPH_KILLS: how many moments are tried for each (otherwise 8), see test_controller_killed.py.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from shadowgraph import live
from tests.live.test_execs import executing
from tests.support.attached import Running
from tests.support.killed_live import Bound, run_controller
from tests.support.live import started, wait_for_users

KILLS = int(os.environ.get("SHADOWGRAPH_KILLS", "8"))
WORDS = ("line", "3", "exec", "5", "spawn", "7", "exec", "9")


def go_along(running: Running, user: live.User, bound: Bound) -> None:
    """Be on a process, let it go on, and along with it to its end."""
    bound.watch(at_first=False)
    with live.attach(running.pid, follow=True) as target:
        target.register(user)
        os.write(running.process.stdin.fileno(), b"\n")  # type: ignore[union-attr]
        while not target.has_ended():
            target.wait(1)
        user.unregister()


@dataclass(frozen=True)
class Seen:
    """One run: the moments of the one that was killed, what the other one has counted and said, and how all ended."""

    moments: int
    counted: int
    errors: str
    output: list[str]
    was_bound: bool


def run(whom: str, folder: Path, moment: int) -> Seen:
    """One of them is killed at a moment."""
    user = live.Recorder(folder / f"{moment}.sgt", ["step"]) if whom == "first" else live.Counter(["step"])
    bound = Bound()
    with Running(executing(*WORDS)) as running:
        other = started("count", str(running.pid), "-f", "step", "--json")
        wait_for_users(running.pid, 1)
        moments = run_controller(lambda: go_along(running, user, bound), moment)
        output = running.process.communicate("\n", timeout=60)[0]
        counts, errors = other.communicate(timeout=60)
    counted = sum(row["calls"] for row in json.loads(counts)["functions"])
    return Seen(moments, counted, errors, output.splitlines(), bool(bound))


def moments_of(whole: Seen) -> list[int]:
    """Some of them, most of which are after the process has begun to go on."""
    first = whole.moments // 3
    return [first + number * (whole.moments - first) // KILLS for number in range(KILLS)]


ALL, OK = 3 + 5 + 7 + 9, ["OK", "OK"]


def test_the_second_one_is_killed_and_the_first_one_misses_nothing(tmp_path: Path) -> None:
    whole = run("second", tmp_path, 0)
    assert (whole.counted, whole.output) == (ALL, OK)
    for moment in moments_of(whole):
        seen = run("second", tmp_path, moment)
        assert (seen.counted, seen.output, seen.errors) == (ALL, OK, ""), moment


def test_the_first_one_is_killed_and_the_second_one_says_what_it_has_missed(tmp_path: Path) -> None:
    """Recorders are first. What that one was entering goes on without anybody, unless its loader is at work."""
    whole = run("first", tmp_path, 0)
    assert (whole.counted, whole.output) == (ALL, OK)
    for moment in moments_of(whole):
        seen = run("first", tmp_path, moment)
        assert seen.output == OK or seen.was_bound, (moment, seen)
        assert seen.counted == ALL or seen.was_bound or "another controller was to enter first" in seen.errors, (
            moment,
            seen,
        )
