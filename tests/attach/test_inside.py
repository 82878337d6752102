"""Threads that are in the functions while these are hooked, and while they are left."""

from __future__ import annotations

import time

from shadowgraph.target.modules import read_modules
from tests.attach.conftest import built
from tests.support.attached import KNOWN_MODULES, Running, Seen, attached, recorded_calls


def test_threads_among_the_overwritten_bytes_go_on_in_the_thunks() -> None:
    path = built("attach_inside")
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        with attached(running.pid) as process:
            names = hooked_names(path, process)
            assert {"waits", "faults", "spins"} <= names
            assert Seen.of(running.pid, path).code != before.code
            assert running.say("c") == "again 42 2"
            assert running.end() == ["results 2 42 2"]


def test_threads_in_thunks_run_out_of_them_when_the_hooks_are_gone() -> None:
    path = built("attach_inside")
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        for _ in range(3):
            with attached(running.pid):
                pass
            assert Seen.of(running.pid, path).code == before.code
        assert running.say("c") == "again 42 2"
        with attached(running.pid):
            assert running.say("c") == "again 42 2"
        assert running.end() == ["results 2 42 2"]


def test_a_call_in_flight_returns_after_the_hooks_are_gone_and_after_others_have_come() -> None:
    path = built("attach_held")
    with Running([path]) as running:
        with attached(running.pid) as process:
            assert running.say("enter") == "entered"
            time.sleep(0.05)
            assert in_flight(process) == 3
        assert recorded_calls(process) == 0
        with attached(running.pid) as again:
            assert running.say("leave") == "left 3"
            assert recorded_calls(again) == 0, "a call of an earlier recording ends without a record"
            assert running.say("enter") == "entered"
            assert in_flight(again) == 3
            assert running.say("leave") == "left 3"
            assert recorded_calls(again) == 3
        assert running.end() == ["bye"]


def in_flight(process: object) -> int:
    """How many calls of a process are open."""
    calls = process.agent.arena.open_calls  # type: ignore[attr-defined]
    return int(((calls["function"] & 0xFFFFFF) != 0).sum())


def hooked_names(path: str, process: object) -> set[str]:
    """The functions of the program that are hooked."""
    hooks = next(hooks for hooks in process.hooks if hooks.module.path == path)  # type: ignore[attr-defined]
    functions = KNOWN_MODULES.get(hooks.module).functions
    return {functions.name(row) for row in hooks.thunks.chosen.tolist()}


def address_of(pid: int, path: str, function: str) -> int:
    """Where a function of the program begins in a process."""
    module = next(module for module in read_modules(pid) if module.path == path)
    known = KNOWN_MODULES.get(module)
    return int(known.functions.start[known.functions.find_name(function)[0]]) + known.bias(module)
