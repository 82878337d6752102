"""A child that was forked before a user came has the user's functions hooked, but not the code of its handlers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.image import open_image, read_functions
from shadowgraph.live.hooking import Hooking
from shadowgraph.target import ptrace
from shadowgraph.target.memory import Memory
from shadowgraph.target.modules import read_modules
from tests.support.attached import Running
from tests.support.live import started, until
from tests.support.manners import program
from tests.target.test_remote import address_of

SIZE = 16  # the jump of a hooked function is among so many bytes
LABEL = "live_forked_before!visited"
_SHORT = """
#include <shadowgraph/ops.h>
static volatile uint64_t calls;
int on_entry(struct sg_call *call) { (void)call; calls++; return 1; }
void on_exit(struct sg_call *call) { (void)call; calls++; }
"""
_LONG = _SHORT.replace("int on_entry", "static uint64_t table[1024];\nint on_entry").replace(
    "calls++; return 1", "for (int i = 0; i < 1024; i++) table[i] += calls++; return sg_arg(call, 0) % 3 != 0"
)
_EMITS = _SHORT.replace("return 1;", "uint64_t own[1] = {sg_arg(call, 0)}; sg_emit(call, own, 8); return 1;")


def child_of(pid: int) -> int:
    return int("".join(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")))


def handlers(source: str, exit: str = "on_exit", entry: str = "on_entry", data_size: int = 0) -> live.Ops:
    events = [("number", "u8")] if source is _EMITS else None
    return live.Ops([LABEL], source=source, entry=entry, exit=exit, data_size=data_size, events=events)


USERS: dict[str, Callable[[], list[live.Ops]]] = {
    "short": lambda: [handlers(_SHORT)],
    "of several kinds": lambda: [handlers(_LONG), handlers(_SHORT), handlers(_EMITS, data_size=8)],
    "entry alone": lambda: [handlers(_SHORT, exit="")],
    "exit alone": lambda: [handlers(_SHORT, entry="")],
}


@pytest.mark.parametrize("kind", USERS)
def test_handlers_are_run_where_they_are_and_missed_where_they_are_not(kind: str) -> None:
    with Running([program("live_forked_before")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter([LABEL]))
        assert running.say("here 10") == running.say("fork") == running.say("there 100") == "done"
        users = [target.register(user) for user in USERS[kind]()]
        assert running.say("here 1000") == running.say("there 300") == running.say("here 1000") == "done"
        assert [(user.missed, user.fault) for user in users] == [(300, "")] * len(users)
        assert counter.counts() == {LABEL: 2410}
        first = users[0]
        first.unregister()
        target.register(first)  # in the same slot, and in the same place, it may be
        assert running.say("there 50") == "done"
        assert first.missed == 50
        assert running.end("") == ["OK"]


def test_a_child_that_was_forked_later_has_them() -> None:
    with Running([program("live_forked_before")]) as running, live.attach(running.pid) as target:
        users = [target.register(handlers(source)) for source in (_SHORT, _LONG, _EMITS)]
        assert running.say("fork") == running.say("there 100") == running.say("here 10") == "done"
        assert [(user.missed, user.fault) for user in users] == [(0, "")] * 3
        assert sum(len(batch) for batch in users[2].events(wait=lambda: False)) == 110
        assert running.end("") == ["OK"]


def test_a_counter_that_comes_later_counts_in_a_child_that_was_forked_before() -> None:
    with Running([program("live_forked_before")]) as running:
        with live.attach(running.pid) as target:
            target.register(live.Counter(["main"]))
            assert running.say("fork") == running.say("there 100") == "done"
            users = [target.register(live.Counter([LABEL])), target.register(live.Counter(["visit", LABEL]))]
            assert running.say("there 300") == running.say("here 20") == "done"
            assert [user.counts()[LABEL] for user in users] == [320, 320]
            assert target.notes == []
        assert running.say("there 5") == running.say("here 5") == "done"
        with live.attach(running.pid) as target:
            later = target.register(live.Counter([LABEL]))
            assert running.say("here 7") == running.say("there 5") == "done"
            assert later.counts() == {LABEL: 7}, "the agent has begun anew, and the child has the former one"
        assert running.end("") == ["OK"]


def test_another_controller_and_a_recording_that_come_later_have_a_child_that_was_forked_before(tmp_path: Path) -> None:
    with Running([program("live_forked_before")]) as running, live.attach(running.pid) as one:
        one.register(live.Counter(["main"]))
        assert running.say("fork") == "done"
        memory, at = Memory(child_of(running.pid)), address_of("visit", running.pid)
        original = memory.read(at, SIZE)
        with live.attach(running.pid) as two:
            recorder = two.register(live.Recorder(tmp_path / "t.sgt", [LABEL]))
            recording = started("record", "--pid", str(running.pid), "-o", str(tmp_path / "r.sgt"), "-f", "visit")
            until(lambda: memory.read(at, SIZE) != original)
            memory.close()
            assert running.say("there 30") == running.say("here 20") == "done"
            recorder.unregister()
        assert running.end("") == ["OK"]
        assert recording.communicate(timeout=60)[0] == ""
    assert len(sg.open(tmp_path / "t.sgt").calls) == 50
    assert len(sg.open(tmp_path / "r.sgt").calls) == 2


def test_what_cannot_be_hooked_in_a_child_that_was_forked_before_is_said() -> None:
    with Running([program("live_forked_before")]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["main"]))
        assert running.say("fork") == "done"
        child = child_of(running.pid)
        ptrace.seize(child)
        counter = target.register(live.Counter([LABEL]))
        said = f"visited: process {child}, which was forked before: calls of what is hooked now are not seen: "
        assert running.say("there 30") == running.say("here 20") == "done"
        assert counter.counts() == {LABEL: 20}
        assert [said in note for note in target.notes] == [True], target.notes
        ptrace.interrupt(child)
        ptrace.wait_stop(child)
        ptrace.detach(child)
        assert running.end("") == ["OK"]


def fork_when_loaded(pid: int) -> Callable[[], None]:
    """What has a thread of live_forks_loading fork when another one has mapped zlib, once."""
    forked = []

    def fork() -> None:
        if not forked and any("libz" in module.name for module in read_modules(pid)):
            forked.append(pid)
            os.kill(pid, signal.SIGUSR1)
            until(lambda: any(task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")))

    return fork


def test_a_child_that_is_forked_while_a_library_is_hooked_has_its_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    with Running([program("live_forks_loading", "o2", "-pthread")]) as running, live.attach(running.pid) as target:
        fork, renew = fork_when_loaded(running.pid), Hooking.renew_loaded
        monkeypatch.setattr(Hooking, "renew_loaded", lambda hooking: (fork(), renew(hooking)))
        counter = target.register(live.Counter(["libz*!zlibVersion"]))
        assert running.say("load") == "done"
        assert list(counter.counts().values()) == [3]
        hooked = zlib_version(running.pid)
        assert zlib_version(child_of(running.pid)) == hooked
        assert target.notes[1:] == []
        target.close()
        assert zlib_version(child_of(running.pid)) == zlib_version(running.pid) != hooked
        assert running.end() == ["OK"]


def zlib_version(pid: int) -> bytes:
    """The first bytes of that function in a process, which has zlib."""
    module = next(module for module in read_modules(pid) if "libz" in module.name)
    functions = read_functions(open_image(module.opened))
    memory = Memory(pid)
    try:
        return memory.read(module.base + int(functions.start[functions.find_name("zlibVersion")[0]]), SIZE)
    finally:
        memory.close()
