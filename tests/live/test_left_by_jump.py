"""A signal handler of the program jumps out of a handler of ours: that one can go, and others are served as before."""

from __future__ import annotations

import os
import signal
import time

import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.live.user import Place
from tests.support.attached import Running
from tests.support.manners import program

LABEL = "live_jumps!visited"
_WAITS = """
#include <shadowgraph/ops.h>
static void wait_for_a_byte(void)
{{
    char byte;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(0), "D"(0), "S"(&byte), "d"(1) : "rcx", "r11", "memory");
}}
int on_entry(struct sg_call *call)
{{
    if ({at_entry} && sg_arg(call, 0) == 7)
        wait_for_a_byte();
    return 1;
}}
void on_exit(struct sg_call *call)
{{
    if (!{at_entry} && call->result == 8)
        wait_for_a_byte();
}}
"""


@pytest.mark.parametrize("at_entry", [1, 0])
def test_a_handler_that_was_left_by_siglongjmp_keeps_nobody_from_going_or_coming(at_entry: int) -> None:
    with Running([program("live_jumps")], ready=None) as running, live.attach(running.pid) as target:
        totals = target.register(live.Totals(["visited"]))
        user = waiting(at_entry)
        for turn in range(3):
            target.register(user)
            place = user._registered_place()
            assert running.say("1") == "2"
            leave_inside(running, place)
            user.unregister()
            with place.registry.locked():
                place.registry.settle()
            assert int(place.registry.user(place.slot)["kind"]) == layout.USER_FREE
            assert running.say("3") == "4"
            assert totals.totals()[LABEL]["count"] == 2 * (turn + 1), "calls that were left do not return"
        target.register(user)
        assert running.say("4") == "5"
        leave_inside(running, user._registered_place())
        assert running.say("5") == "6"
        assert user.missed == 0, "the next call is served"
        assert running.end("") == ["OK"]


_SPINS = """
#include <shadowgraph/ops.h>
static volatile uint64_t never;
int on_entry(struct sg_call *call) {{ while ({at_entry} && sg_arg(call, 0) == 7 && !never); return 1; }}
void on_exit(struct sg_call *call) {{ while (!{at_entry} && call->result == 8 && !never); }}
"""


@pytest.mark.parametrize("at_entry", [1, 0])
def test_so_with_one_that_is_called_from_assembly(at_entry: int) -> None:
    with Running([program("live_jumps")], ready=None) as running, live.attach(running.pid) as target:
        user = live.Ops(["visited"], source=_SPINS.format(at_entry=at_entry), entry="on_entry", exit="on_exit")
        keeps_hooked = target.register(live.Counter(["leave"]))
        for _ in range(3):
            target.register(user)
            place = user._registered_place()
            assert int(place.registry.arena.registry["frugal"]) >> place.slot & 1
            running.say("1")
            blocks = int((place.registry.arena.chunks["state"] != 0).sum())
            for _ in range(40):
                assert running.say("1") == "2"
                leave_inside(running, place)
            assert running.say("3") == "4"
            assert user.missed == 0, "the next call is served"
            assert int((place.registry.arena.chunks["state"] != 0).sum()) == blocks, "what was left is given back"
            leave_inside(running, place)
            user.unregister()
            with place.registry.locked():
                place.registry.settle()
            assert int(place.registry.user(place.slot)["kind"]) == layout.USER_FREE
        keeps_hooked.unregister()
        assert running.end("") == ["OK"]


def waiting(at_entry: int) -> live.Ops:
    """A user that waits in its handler for a byte at stdin in the call visited(7)."""
    source = _WAITS.format(at_entry=at_entry)
    return live.Ops(["visited"], source=source, entry="on_entry", exit="on_exit")


def leave_inside(running: Running, place: Place) -> None:
    """Let the program call, wait until it is in the handler, and let it leave by a signal."""
    assert running.process.stdin is not None and running.process.stdout is not None
    running.process.stdin.write("7\n")
    running.process.stdin.flush()
    threads = place.registry.arena.threads
    while not (threads["inside"] & layout.INSIDE_SLOT == place.slot + 1).any():
        time.sleep(0.001)
    os.kill(running.pid, signal.SIGUSR1)
    assert running.process.stdout.readline() == "left\n"
