"""Of two controllers that go along into a program that is executed, one is killed: the other misses nothing.

SHADOWGRAPH_KILLS: how many moments are tried for each (otherwise 6), see test_controller_killed.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.live.others import read_users
from shadowgraph.ops.processes import runs
from tests.live.test_execs import executing
from tests.support.attached import Running
from tests.support.killed_live import run_controller
from tests.support.live import started, until, wait_for_users

KILLS = int(os.environ.get("SHADOWGRAPH_KILLS", "6"))
WORDS = ("line", "3", "exec", "5", "spawn", "7", "exec", "9")


def go_along(running: Running, user: live.User, ready: Callable[[], object]) -> None:
    """Be on a process, let it go on when all are ready, and along with it to its end."""
    with live.attach(running.pid, follow=True) as target:
        target.register(user)
        ready()
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


def run(whom: str, folder: Path, moment: int) -> Seen:
    """One of them is killed at a moment; the other one is a command that counts."""
    user = live.Recorder(folder / f"{moment}.sgt", ["step"]) if whom == "first" else live.Counter(["step"])
    with Running(executing(*WORDS)) as running:
        other = started("count", str(running.pid), "-f", "step", "--json")
        wait_for_users(running.pid, 1)
        moments = run_controller(lambda: go_along(running, user, lambda: None), moment)
        output = running.process.communicate("\n", timeout=60)[0]
        counts, errors = other.communicate(timeout=60)
    counted = sum(row["calls"] for row in json.loads(counts)["functions"])
    return Seen(moments, counted, errors, output.splitlines())


def run_recorders(folder: Path, moment: int) -> Seen:
    """Both are recorders, so that the first one is who came first."""
    user, trace = live.Recorder(folder / f"first{moment}.sgt", ["step"]), folder / f"second{moment}.sgt"
    with Running(executing(*WORDS)) as running, ThreadPoolExecutor() as pool:

        def are_there() -> set[int]:
            with suppress(OSError):  # if nobody is killed, it executes, and ends
                return {row["controller"] for row in read_users(running.pid).rows if row["functions"]}
            return set()

        def both_are_there() -> None:
            until(lambda: len(are_there()) == 2)

        first = pool.submit(run_controller, lambda: go_along(running, user, both_are_there), moment)
        until(lambda: first.done() or bool(are_there()))
        other = started("record", "--pid", str(running.pid), "-o", str(trace), "-f", "step")
        until(lambda: other.pid in are_there() or not runs(running.pid))
        moments = first.result()
        output = running.process.communicate("\n", timeout=60)[0]
        errors = other.communicate(timeout=60)[1]
    return Seen(moments, len(sg.open(trace).calls), errors, output.splitlines())


def moments_of(whole: Seen) -> list[int]:
    """Some of them, most of which are after the process has begun to go on."""
    first = whole.moments // 3
    return [first + number * (whole.moments - first) // KILLS for number in range(KILLS)]


ALL, OK = 3 + 5 + 7 + 9, ["OK", "OK"]
# What is said of a program that had begun, or ended, when the other one came.
LATE = ("another controller was to enter first, and has been killed: the calls of its first moments", "not followed:")


def is_said(errors: str) -> bool:
    return any(sentence in errors for sentence in LATE)


def test_the_second_one_is_killed_and_the_first_one_misses_nothing(tmp_path: Path) -> None:
    whole = run("second", tmp_path, 0)
    assert (whole.counted, whole.output) == (ALL, OK)
    for moment in moments_of(whole):
        seen = run("second", tmp_path, moment)
        assert (seen.counted, seen.output, seen.errors) == (ALL, OK, ""), moment


def test_the_first_one_is_killed_and_the_second_one_enters_the_program_before_it_begins(tmp_path: Path) -> None:
    """Recorders are first. Between the question and the exec nothing holds the program yet: then that is said."""
    whole = run("first", tmp_path, 0)
    assert (whole.counted, whole.output) == (ALL, OK)
    for moment in moments_of(whole):
        seen = run("first", tmp_path, moment)
        assert seen.output == OK, (moment, seen)
        assert (seen.counted, seen.errors) == (ALL, "") or is_said(seen.errors), (moment, seen)


def test_a_recording_enters_the_program_whose_first_recorder_is_killed(tmp_path: Path) -> None:
    whole = run_recorders(tmp_path, 0)
    assert (whole.counted, whole.output) == (ALL, OK)
    for moment in moments_of(whole):
        seen = run_recorders(tmp_path, moment)
        assert seen.output == OK, (moment, seen)
        assert seen.counted == ALL or is_said(seen.errors), (moment, seen)
