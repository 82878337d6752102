"""Several controllers on the same functions of a process: each has the right numbers, whatever befalls the others."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from shadowgraph import live
from shadowgraph.live.others import detach_users, read_users
from tests.attach.conftest import built
from tests.support.attached import Running, Seen
from tests.support.live import result, send, started, until, wait_for_users
from tests.support.manners import program

# SHADOWGRAPH_KILL_ROUNDS=300 takes about five minutes.
ROUNDS = int(os.environ.get("SHADOWGRAPH_KILL_ROUNDS", "12"))


def test_two_counts_and_a_histogram_at_once_see_the_same_calls() -> None:
    path = program("live_values")
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        pid = str(running.pid)
        commands = [
            started("count", pid, "-f", "gives_back", "--json"),
            started("count", "--json", "-f", "gives*", "--pid", pid),
            started("hist", pid, "-f", "gives_back", "--value", "arg(0)", "--json"),
        ]
        rows = wait_for_users(running.pid, 3)
        assert sorted(row["name"] for row in rows) == ["count", "count", "hist"]
        assert {row["controller"] for row in rows} == {command.pid for command in commands}
        send(running, range(1000))
        until(lambda: calls_so_far(running) == 1000)
        for command in commands:
            command.send_signal(signal.SIGINT)
        results = [result(command) for command in commands]
        assert [one["functions"][0].get("calls") for one in results] == [1000, 1000, None]
        assert results[2]["functions"][0]["count"] == 1000
        assert results[2]["functions"][0]["mean"] == 499.5
        assert results[2]["functions"][0]["max"] == 999
        assert [one["end"] for one in results] == ["signal"] * 3
        after = Seen.of(running.pid, path)
        assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end("") == ["gives_back 1000", "OK"]


def calls_so_far(running: Running) -> int:
    """What one more controller finds in the histogram of the others."""
    with live.attach(running.pid) as target:
        probe = target.register(live.Counter(["gives_back"]))
        arena = probe._registered_place().registry.arena
        first = int(next(row["first_cell"] for row in arena.registry["users"] if row["kind"] == 4))
        return int(probe._registered_place().cells.read(first, 1)[0])


def test_one_that_comes_later_counts_from_then_on_and_leaves_the_first_alone() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as one:
        first = one.register(live.Counter(["gives_back"]))
        send(running, range(100))
        until(lambda: sum(first.counts().values()) == 100)
        with live.attach(running.pid) as two:
            second = two.register(live.Counter(["gives_back"]))
            send(running, range(50))
            until(lambda: sum(first.counts().values()) == 150)
        assert second.counts() == {"live_values!gives_back": 50}
        send(running, range(7))
        until(lambda: sum(first.counts().values()) == 157)
        assert running.end("") == ["gives_back 157", "OK"]


def test_controllers_that_are_killed_at_any_moment_change_no_number_of_the_others(
    capfd: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(4)
    with live.launch([program("live_busy", "o2", "-pthread"), "2"]) as target:
        counter = target.register(live.Counter(["step"]))
        target.resume()
        for _ in range(ROUNDS):
            command = started(chance.choice(["count", "hist", "top"]), str(target.pid), "-f", "step")
            time.sleep(chance.uniform(0, 2))
            command.kill()
            command.communicate()
        wait_for_users(target.pid, 1)
        os.kill(target.pid, signal.SIGTERM)
        assert target.wait() == 0
        counts = counter.counts()
    output = capfd.readouterr().out.splitlines()
    steps = counts["live_busy!step"]
    assert output == ["ready", f"step {steps} wrong 0", "OK"]


def test_a_process_whose_controllers_were_killed_serves_the_next_one() -> None:
    path = built("attach_busy")
    chance = random.Random(5)
    with Running([path, "2"]) as running:
        before = Seen.of(running.pid, path)
        for _ in range(ROUNDS // 2):
            command = started("count", str(running.pid), "-f", "leaf")
            time.sleep(chance.uniform(0.5, 2))
            command.kill()
            command.communicate()
            with live.attach(running.pid) as target:
                counter = target.register(live.Counter(["leaf", "middle"]))
                until(lambda counter=counter: all(counter.counts().values()))  # type: ignore[misc]
                assert [row["name"] for row in target.users] == ["counter"]
            assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]


def test_what_killed_controllers_have_left_is_told_and_taken_out() -> None:
    path = built("attach_busy")
    with Running([path, "2"]) as running:
        before = Seen.of(running.pid, path)
        command = started("count", str(running.pid), "-f", "leaf")
        wait_for_users(running.pid, 1)
        command.kill()
        until(lambda: read_users(running.pid).rows[0]["state"] == "left behind")  # a zombie is no controller
        command.communicate()
        assert Seen.of(running.pid, path).code != before.code
        done = detach_users(running.pid)
        assert [row["name"] for row in done.ended] == ["count"]
        assert done.unhooked and not done.left and not done.notes
        assert Seen.of(running.pid, path).code == before.code
        assert not read_users(running.pid).hooked
        assert running.end() == ["wrong 0 worked 1"]
