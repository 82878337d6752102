"""A child that was forked before handlers came does not have their code: it runs without, and its calls are missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shadowgraph import live
from tests.support.attached import Running
from tests.support.manners import program

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
