"""Users that somebody else takes off: their controllers notice, keep what they have counted, and may register again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from shadowgraph import live
from shadowgraph.errors import UsageError
from shadowgraph.live.others import detach_users, read_users
from shadowgraph.ops.drain import process_command
from tests.attach.conftest import built
from tests.attach.test_processes import wait_until_attached
from tests.attach.test_recording import recorder, report
from tests.support.attached import Running, Seen
from tests.support.build import scratch_folder
from tests.support.live import result, send, started, until, wait_for_users
from tests.support.manners import program

LABEL = "live_values!gives_back"


def test_a_counter_keeps_what_it_had_counted_while_another_one_counts_on() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        first = target.register(live.Counter(["gives_back"], name="first"))
        second = target.register(live.Counter(["gives_back"], name="second"))
        histogram = target.register(live.Histogram(["gives_back"], value="arg(0)", name="third"))
        send(running, range(100))
        until(lambda: second.counts() == {LABEL: 100})
        for name in ("first", "third"):
            done = detach_users(running.pid, name)
            assert [row["name"] for row in done.ended] == [name] and not done.unhooked
        send(running, range(50))
        until(lambda: second.counts() == {LABEL: 150})
        assert first.counts() == {LABEL: 100}
        assert histogram.percentiles(LABEL)["count"] == 100
        assert not first.is_registered and second.is_registered
        assert [row["name"] for row in target.users] == ["second"]
        with pytest.raises(UsageError, match="first: has been taken off by somebody else"):
            first.pause()
        target.register(first)
        send(running, range(5))
        until(lambda: second.counts() == {LABEL: 155})
        assert first.counts() == {LABEL: 5}
        first.unregister()
        histogram.unregister()
        assert histogram.percentiles(LABEL)["count"] == 100
        assert running.end("") == ["gives_back 155", "OK"]


def test_a_paused_counter_that_is_taken_off_has_what_it_had_when_it_was_paused() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        paused = target.register(live.Counter(["gives_back"], name="paused"))
        other = target.register(live.Counter(["gives_back"]))
        send(running, range(10))
        until(lambda: other.counts() == {LABEL: 10})
        paused.pause()
        send(running, range(10))
        until(lambda: other.counts() == {LABEL: 20})
        assert read_users(running.pid).rows[0]["state"] == "paused"
        detach_users(running.pid, "paused")
        assert paused.counts() == {LABEL: 10}


def test_the_last_one_takes_the_hooks_with_it_and_may_come_back() -> None:
    path = program("live_values")
    with Running([path]) as running, live.attach(running.pid) as target:
        before = Seen.of(running.pid, path)
        counter = target.register(live.Counter(["gives_back"]))
        send(running, range(30))
        until(lambda: counter.counts() == {LABEL: 30})
        assert detach_users(running.pid).unhooked
        assert Seen.of(running.pid, path).code == before.code
        assert counter.counts() == {LABEL: 30}
        with live.attach(running.pid) as newcomer:
            other = newcomer.register(live.Counter(["gives_back"]))
            target.close()  # what others have begun since is left alone
            send(running, range(3))
            until(lambda: other.counts() == {LABEL: 3})
        assert counter.counts() == {LABEL: 30}
        assert Seen.of(running.pid, path).code == before.code
        assert running.end("") == ["gives_back 33", "OK"]


def test_hooks_go_from_forked_children_too() -> None:
    path = built("attach_processes")
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        with live.attach(running.pid) as target:
            counter = target.register(live.Counter(["leaf"]))
            child = int(running.say("fork").split()[1])
            until(lambda: counter.counts()["attach_processes!leaf"] > 1000)
            assert Seen.of(child, path).code != before.code
        assert Seen.of(child, path).code == before.code
        assert running.say("join") == "child 7"
        assert running.end() == ["wrong 0 ticked 0"]


def test_commands_print_what_they_have_counted_and_end() -> None:
    with Running([program("live_values")]) as running:
        pid = str(running.pid)
        count = started("count", pid, "-f", "gives_back", "--json")
        wait_for_users(running.pid, 1)
        hist = started("hist", pid, "-f", "gives_back", "--value", "result", "--json")
        rows = wait_for_users(running.pid, 2)
        with live.attach(running.pid) as target:
            probe = target.register(live.Counter(["gives_back"]))
            send(running, range(30))
            until(lambda: probe.counts() == {LABEL: 30})
        slot = next(row["slot"] for row in rows if row["name"] == "count")
        detach = started("detach", pid, "--user", str(slot))
        output, errors = detach.communicate()
        assert detach.returncode == 0, errors
        assert output.splitlines()[0].startswith(f"count (slot {slot}, of process {count.pid}: ")
        assert output.splitlines()[1] == "1 user left: hist"
        found = result(count)
        assert (found["functions"][0]["calls"], found["end"]) == (30, "detached")
        assert found["problems"] == ["this user was taken off by somebody else (shadowgraph detach)"]
        detach = started("detach", pid)
        output, errors = detach.communicate()
        assert output.splitlines()[-1] == f"nobody uses process {pid} any more; its code is as it was"
        assert result(hist)["functions"][0]["count"] == 30
        assert running.end("") == ["gives_back 30", "OK"]


def test_a_recording_that_is_taken_off_ends_and_its_trace_is_whole() -> None:
    path, folder = built("attach_busy"), scratch_folder() / "taken_off.sgt"
    with Running([path, "2", "nap"]) as running:
        before = Seen.of(running.pid, path)
        recording = recorder(running.pid, folder, "--libcalls", "none")
        wait_until_attached(running.pid, path, before, recording)
        rows = wait_for_users(running.pid, 1)
        assert (rows[0]["name"], rows[0]["kind"], rows[0]["slot"]) == ("record", "recorder", 0)
        assert detach_users(running.pid, "record").unhooked
        _, errors = recording.communicate(timeout=120)
        assert recording.returncode == 0, errors
        assert "keeps its hooks" not in errors
        assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]
    assert "leaf" in report(folder)


def test_two_of_one_name_are_told_apart_by_their_slots() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running, live.attach(running.pid) as target:
        for _ in range(2):
            target.register(live.Counter(["leaf"], name="twin"))
        with pytest.raises(UsageError, match=r"has 2 users named twin; name one by its slot: 1 \(of process \d+\), 2"):
            detach_users(running.pid, "twin")
        with pytest.raises(UsageError, match=r"has no user nobody; it has twin \(slot 1\), twin \(slot 2\)"):
            detach_users(running.pid, "nobody")
        assert len(read_users(running.pid).rows) == 2


def test_looking_at_users_neither_stops_a_process_nor_brings_anything_in() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        maps = Path(f"/proc/{running.pid}/maps").read_text()
        assert not read_users(running.pid).rows
        assert Path(f"/proc/{running.pid}/maps").read_text() == maps
        with live.attach(running.pid) as target:
            target.register(live.Totals(["leaf"], name="looked at"))
            os.kill(running.pid, signal.SIGSTOP)  # it cannot help
            try:
                row = read_users(running.pid).rows[0]
            finally:
                os.kill(running.pid, signal.SIGCONT)
        assert (row["name"], row["kind"], row["filter"], row["state"]) == ("looked at", "totals", "leaf", "on")
        assert (row["functions"], row["controller"]) == (1, os.getpid())
        assert row["command"] == process_command(os.getpid()) != ""
