"""Whoever comes to functions that are hooked already changes no code, and shares frames and memory (R2, R3, R7)."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry
from shadowgraph.target.memory import Memory, read_mappings
from tests.attach.conftest import built
from tests.support.attached import Running, Seen
from tests.support.manners import program, usual_environment

_HELD = ["inner", "middle", "outer"]
_HANDLERS = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call) { *(uint64_t *)call->data = 1; return 1; }
void on_exit(struct sg_call *call) { *(uint64_t *)call->data += 1; }
"""

Code = dict[tuple[int, int, str], str]


def code_of(pid: int) -> Code:
    """A checksum of everything that is executable in a process, but for the kernel's own page that nobody can read."""
    memory, found = Memory(pid), {}
    for one in read_mappings(pid):
        if "x" in one.permissions and one.path != "[vsyscall]":
            content = memory.read(one.start, one.end - one.start)
            found[one.start, one.end, one.permissions + one.path] = hashlib.sha256(content).hexdigest()
    memory.close()
    return found


def content_of(pid: int, place: tuple[int, int, str], but: tuple[int, int]) -> bytes:
    """What is in a mapping, without a part of it."""
    memory = Memory(pid)
    content = memory.read(place[0], but[0] - place[0]) + memory.read(but[1], place[1] - but[1])
    memory.close()
    return content


def probe(functions: list[str]) -> live.Ops:
    """A user with code of its own."""
    return live.Ops(functions, source=_HANDLERS, entry="on_entry", exit="on_exit", data_size=8)


def registry_of(user: live.User) -> Registry:
    return user._registered_place().registry


def test_no_code_changes_for_users_of_functions_that_are_hooked() -> None:
    with Running([built("attach_held")]) as running, live.attach(running.pid) as target:
        unhooked = code_of(running.pid)
        first = target.register(live.Counter(_HELD))
        hooked = code_of(running.pid)
        assert hooked != unhooked
        # Who brings the first handlers in makes room for all that come. sigaction has been hooked by whoever was first.
        first_probe = target.register(probe(["outer"]))
        before = code_of(running.pid)
        assert first_probe.loaded is not None
        [room] = before.keys() - hooked.keys()
        assert room[0] <= first_probe.loaded.base < room[1]
        assert hooked.items() <= before.items(), "nothing but the room"
        for make in (live.Counter, live.Totals, live.Histogram):
            target.register(make(_HELD))
            target.register(make(["inner"], when="arg(0) == 0"))
        assert code_of(running.pid) == before
        first.pause()
        first.resume()
        first.unregister()
        assert code_of(running.pid) == before
        low = first_probe.loaded.base + first_probe.loaded.size
        unused = content_of(running.pid, room, but=(low, low + first_probe.loaded.size))
        handlers = target.register(probe(_HELD))
        assert handlers.loaded is not None
        code = code_of(running.pid)
        low, high = handlers.loaded.base, handlers.loaded.base + handlers.loaded.size
        [room] = [place for place in code if place[0] <= low < place[1]]
        assert code == before | {room: code[room]} != before, "nothing but the room for handlers"
        assert content_of(running.pid, room, but=(low, high)) == unused, "and there nothing but its own"
        handlers.unregister()
        assert code_of(running.pid) == before
        assert running.say("enter") == "entered"
        assert running.say("leave") == "left 3"


def test_memory_does_not_grow_with_the_number_of_users() -> None:
    path = program("live_recursion")
    with Running([path], ready=None) as running, live.attach(running.pid) as target:
        target.register(live.Totals(["down"]))
        running.say("10000")
        one = Seen.of(running.pid, path)
        mappings = len(read_mappings(running.pid))
        others = [target.register(live.Totals(["down"])) for _ in range(layout.USERS - 1)]
        running.say("10000")
        many = Seen.of(running.pid, path)
        assert {user.totals()["live_recursion!down"]["count"] for user in others} == {10001}
        assert (len(read_mappings(running.pid)), many.size) == (mappings, one.size)
        # What each user has counted is a page; what calls need is no more than with one. Of the rest of the arena, the
        # users' rows and their tables are touched.
        assert many.resident - one.resident < 4 * layout.USERS + 128


def test_a_probe_a_recorder_a_histogram_and_a_counter_share_one_frame(tmp_path: Path) -> None:
    with Running([built("attach_held")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(_HELD))
        histogram = target.register(live.Histogram(_HELD))
        handlers = target.register(probe(_HELD))
        registry = registry_of(counter)
        with recording(running.pid, registry, tmp_path / "run.sgt"):
            assert running.say("enter") == "entered"
            calls = registry.arena.open_calls
            open_now = calls[np.flatnonzero(calls["function"])]
            assert len(open_now) == len(_HELD), "one frame a call"
            wanted = 1 | 1 << histogram._registered_place().slot | 1 << handlers._registered_place().slot
            assert open_now["users"].tolist() == [wanted] * len(_HELD), "a counter has nothing to do at the exit"
            assert running.say("leave") == "left 3"
            assert not calls["function"].any()
        assert [row["count"] for row in histogram.all_percentiles().values()] == [1, 1, 1]
        assert set(counter.counts().values()) == {1}
        assert handlers.missed == 0
        assert running.say("enter") == "entered"
        assert running.say("leave") == "left 3"
        assert running.end() == ["bye"]


class recording:
    """`record --pid` in a process where others are, on the same functions."""

    def __init__(self, pid: int, registry: Registry, trace: Path) -> None:
        options = [option for name in _HELD for option in ("-f", name)]
        command = [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "-o", str(trace), *options]
        self._command = [*command, "--pid", str(pid)]
        self._registry = registry

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command, env=usual_environment(), stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not self._is_on():
            assert self._process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)

    def _is_on(self) -> bool:
        """Whether it is on all functions."""
        return self._registry.is_armed(0) and len(self._registry.functions_of(0)) == len(_HELD)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        _, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, errors
