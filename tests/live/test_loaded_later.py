"""Functions of libraries that a process loads while users are on it are theirs from the first call on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.errors import StartError, UsageError
from shadowgraph.target.modules import read_modules
from tests.support.attached import Running
from tests.support.live import started, until
from tests.support.manners import program, usual_environment

SOURCE = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call) { (void)call; return 0; }
"""
PATTERN = "libz.so.*!zlibVersion"


def calls(counter: live.Counter) -> int:
    """What a counter has counted of the library."""
    return sum(count for label, count in counter.counts().items() if label.startswith("libz"))


def test_a_counter_on_a_library_that_is_not_loaded_yet_waits_for_it() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([PATTERN]))
        waits = f"{PATTERN}: no such library is loaded yet; it will be seen from its first call on"
        assert (counter.counts(), target.notes) == ({}, [waits])
        assert running.say("load") == "done"
        assert calls(counter) == 3
        assert running.say("call") == "done"
        assert calls(counter) == 4
        assert running.end() == ["OK"]


def test_beside_what_is_there_what_is_to_come_is_waited_for_and_not_called_unmatched() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([PATTERN, "step"]))
        assert target.notes == [f"{PATTERN}: no such library is loaded yet; it will be seen from its first call on"]
        assert running.say("load") == "done"
        assert (calls(counter), counter.counts()["live_later!step"]) == (3, 1)
        assert running.end() == ["OK"]


def test_a_program_that_is_launched_is_followed_in_the_same_way() -> None:
    read, write = os.pipe()
    saved = os.dup(0)
    os.dup2(read, 0)
    try:
        with live.launch([program("live_later")]) as target:
            users = [
                target.register(live.Counter(["libz*!zlib*"])),
                target.register(live.Counter(["step", "libz*!*Version"])),
            ]
            totals = target.register(live.Totals([PATTERN]))
            os.write(write, b"load\ncall\nend\n")
            assert target.wait() == 0
            assert [calls(user) for user in users] == [4, 4]
            assert [row["count"] for row in totals.totals().values()] == [4]
            assert users[1].counts()["live_later!step"] == 2
    finally:
        os.dup2(saved, 0)
        for file in (read, write, saved):
            os.close(file)


def test_a_library_that_comes_again_is_counted_on() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([PATTERN, "step"]))
        for times in range(1, 6):
            assert running.say("load") == "done"
            assert calls(counter) == 3 * times
            assert running.say("unload") == "done"
        assert counter.counts()["live_later!step"] == 10
        assert running.end() == ["OK"]


def test_a_library_comes_again_that_is_named_by_its_very_name() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        assert running.say("load") == "done"
        name = next(module.name for module in read_modules(running.pid) if module.name.startswith("libz"))
        counter = target.register(live.Counter([f"{name}!zlibVersion"]))
        assert running.say("unload") == "done"
        for times in range(1, 4):
            assert running.say("load") == "done"
            assert calls(counter) == 3 * times
            assert running.say("unload") == "done"
        assert running.end() == ["OK"]


def test_several_controllers_have_hooked_what_they_want_before_the_first_call() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as one, live.attach(running.pid) as two:
        first = one.register(live.Counter([PATTERN]))
        second = two.register(live.Counter(["libz*!z*"]))
        nobody = two.register(live.Counter(["step"]))
        assert running.say("load") == "done"
        assert (calls(first), calls(second), sum(nobody.counts().values())) == (3, 3, 1)
        first.unregister()
        assert running.say("unload") == "done"
        assert running.say("load") == "done"
        assert (calls(first), calls(second)) == (3, 6)
        assert running.end() == ["OK"]


_KILLED = """
import sys, time
import shadowgraph as sg
from shadowgraph import live
target = live.attach(int(sys.argv[1]))
counter = target.register(live.Counter(["libz*!*"]))
print("on", flush=True)
time.sleep(1000)
"""


def test_nobody_waits_for_a_controller_that_was_killed() -> None:
    with Running([program("live_later")]) as running:
        command = [sys.executable, "-c", _KILLED, str(running.pid)]
        with subprocess.Popen(command, env=usual_environment(), stdout=subprocess.PIPE, text=True) as controller:
            assert controller.stdout is not None and controller.stdout.readline() == "on\n"
            controller.send_signal(signal.SIGKILL)
        began = time.monotonic()
        for _ in range(60):  # each of which asks twice at least; who is gone is waited for once
            assert running.say("load") == "done"
            assert running.say("unload") == "done"
        assert time.monotonic() - began < 30
        assert running.say("load") == "done"
        with live.attach(running.pid) as target:
            counter = target.register(live.Counter([PATTERN]))
            assert running.say("call") == "done"
            assert calls(counter) == 1
        assert running.end() == ["OK"]


def test_a_library_that_is_there_under_its_own_name_makes_nobody_wait() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["libc.so.6!fgets", "step"]))
        arena = counter.place.registry.arena
        assert running.say("load") == "done"
        assert not arena.events["kind"].any()
        with pytest.raises(UsageError, match="no function matches"):
            target.register(live.Counter(["libc.so*!no_such_function"]))


def test_who_goes_over_to_a_library_to_come_sees_its_first_call() -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["step"]))
        counter.replace_functions([PATTERN])
        assert running.say("load") == "done"
        assert (calls(counter), counter.counts()["live_later!step"]) == (3, 0)
        counter.replace_functions(["step"])
        assert running.say("call") == "done"
        assert (calls(counter), counter.counts()["live_later!step"]) == (3, 1)
        assert running.end() == ["OK"]


def test_what_was_counted_before_an_exec_stays_and_that_is_said() -> None:
    path = program("live_later")
    with Running([path]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["step"]))
        handlers = target.register(live.Ops(["step"], source=SOURCE, entry="on_entry"))
        assert running.say("call me") == "done"
        assert running.say("exec") == "ready"
        assert [row["state"] for row in target.users] == ["exec'ed", "exec'ed"]
        assert target.notes == [
            f"process {running.pid} has executed another program, {path}: what was counted until then stays; "
            "a user that is to see calls of the new one is registered again"
        ]
        assert counter.counts() == {"live_later!step": 2}
        with pytest.raises(StartError, match="has executed another program"):
            counter.replace_functions(["main", "step"])
        handlers.unregister()
        counter.unregister()
        assert counter.counts() == {"live_later!step": 2}
        target.register(counter)
        assert running.say("call me") == "done"
        assert counter.counts() == {"live_later!step": 1}
        assert [row["state"] for row in target.users] == ["on"]
        assert running.end() == ["OK"]


def test_a_recording_and_a_counter_both_have_the_first_call(tmp_path: Path) -> None:
    with Running([program("live_later")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([PATTERN]))
        recording = started("record", "--pid", str(running.pid), "-o", str(tmp_path / "run.sgt"), "-f", PATTERN)
        until(lambda: sum(row["state"] == "on" for row in target.users) == 2)
        assert running.say("load") == "done"
        assert running.say("call") == "done"
        assert calls(counter) == 4
        assert running.end() == ["OK"]
        _, errors = recording.communicate(timeout=60)
        assert recording.returncode == 0, errors
    assert len(sg.open(tmp_path / "run.sgt").calls) == 4
