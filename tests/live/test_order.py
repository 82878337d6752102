"""The order of users holds for a call during which others come and go (R5)."""

from __future__ import annotations

import time

import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from tests.support.attached import Running
from tests.support.manners import program

# A user writes its number into the log at the entry, and minus that at the exit; one of them reads a byte before that
# is over.
_HANDLERS = """
#include <shadowgraph/ops.h>
struct log {{ int64_t count; int64_t entries[]; }};
static void wait_for_a_byte(void)
{{
    char byte;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(0), "D"(0), "S"(&byte), "d"(1) : "rcx", "r11", "memory");
}}
int on_entry(struct sg_call *call)
{{
    struct log *log = (struct log *)sg_arg(call, 1);
    *(struct log **)call->data = log;
    log->entries[log->count++] = {user};
    if ({user} == {waits_at_entry})
        wait_for_a_byte();
    return 1;
}}
void on_exit(struct sg_call *call)
{{
    struct log *log = *(struct log **)call->data;
    log->entries[log->count++] = -{user};
    if ({user} == {waits_at_exit})
        wait_for_a_byte();
}}
"""


@pytest.mark.parametrize("at_entry", [True, False])
def test_users_that_come_and_go_during_a_call_change_nothing_of_its_order(at_entry: bool) -> None:
    waiting = {"waits_at_entry": 2 if at_entry else 0, "waits_at_exit": 0 if at_entry else 3}
    with Running([program("live_log")], ready=None) as running, live.attach(running.pid) as target:
        others = [target.register(live.Totals(["logged"])) for _ in range(layout.USERS - 3)]
        users = []
        for number in (1, 2, 3, 4):
            source = _HANDLERS.format(user=number, **waiting)
            user = live.Ops(["logged"], source=source, entry="on_entry", exit="on_exit", data_size=8)
            users.append(target.register(user))
            if number == 1:
                for other in (others.pop(5), others.pop(20), others.pop(20)):
                    other.unregister()  # the next ones get their slots
        slots = [user._registered_place().slot for user in users]
        assert slots != sorted(slots), "the order is not that of the slots"
        assert running.process.stdin is not None and running.process.stdout is not None
        running.process.stdin.write("7\n")
        running.process.stdin.flush()
        threads = users[0]._registered_place().registry.arena.threads
        while not threads["inside"].any():
            time.sleep(0.001)
        others.pop(0).unregister()
        target.register(live.Totals(["logged"]))
        log = running.say("")  # the byte
        assert [int(word) for word in log.split()] == [1, 2, 3, 4, 0, -4, -3, -2, -1]
        assert [user.missed for user in users] == [0] * 4
        assert running.end("") == ["OK"]
