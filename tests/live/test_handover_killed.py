"""Of two controllers that go along into a program that is executed, one is killed: the other misses nothing.

SHADOWGRAPH_KILLS: how many moments are tried for each (otherwise 8), see test_controller_killed.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shadowgraph import live
from tests.live.test_execs import executing
from tests.support.attached import Running
from tests.support.killed_live import run_controller
from tests.support.live import result, started, wait_for_users

KILLS = int(os.environ.get("SHADOWGRAPH_KILLS", "8"))
WORDS = ("line", "3", "exec", "5", "spawn", "7", "exec", "9")


def go_along(running: Running, user: live.User) -> None:
    """Be on a process, let it go on, and along with it to its end."""
    with live.attach(running.pid, follow=True) as target:
        target.register(user)
        os.write(running.process.stdin.fileno(), b"\n")  # type: ignore[union-attr]
        while not target.has_ended():
            target.wait(1)
        user.unregister()


def run(whom: str, folder: Path, moment: int) -> tuple[int, int]:
    """One of them is killed at a moment: how many moments there were, and what the other one has counted."""
    trace = folder / f"{moment}.sgt"
    user = live.Recorder(trace, ["step"]) if whom == "first" else live.Counter(["step"])  # recorders are first
    with Running(executing(*WORDS)) as running:
        other = counting(running)
        seen = run_controller(lambda: go_along(running, user), moment)
        assert running.end("")[-1] == "OK", moment
        counts = result(other)["functions"]
    return seen, sum(row["calls"] for row in counts)


def counting(running: Running) -> subprocess.Popen[str]:
    """A command that counts, and has begun."""
    other = started("count", str(running.pid), "-f", "step", "--json")
    wait_for_users(running.pid, 1)
    return other


@pytest.mark.parametrize("whom", ["second"])
def test_a_controller_is_killed_while_it_goes_along(whom: str, tmp_path: Path) -> None:
    seen, counted = run(whom, tmp_path, 0)
    assert counted == 3 + 5 + 7 + 9
    for number in range(KILLS):
        moment = seen // 3 + (number * (seen - seen // 3)) // KILLS
        assert run(whom, tmp_path, moment)[1] == counted, moment
