"""What is said of users of a process that has ended."""

from __future__ import annotations

import os
import signal
import sys
import time

from shadowgraph import live
from tests.support.attached import Running
from tests.support.live import until

FORKING = """
import os
print("ready", flush=True)
input()
if os.fork():
    os._exit(0)
print("child", flush=True)
input()
"""


def test_users_are_on_until_the_process_and_all_that_have_forked_from_it_have_ended() -> None:
    with Running([sys.executable, "-c", FORKING]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["libc.so*!read"]))
        assert running.say("fork") == "child"
        assert running.process.wait(timeout=120) == 0
        assert [row["state"] for row in target.users] == ["on"]
        assert running.process.stdin is not None
        running.process.stdin.write("end\n")
        until(lambda: [row["state"] for row in target.users] == ["ended"])
        target.close()
        assert target.users == []  # nobody is asked any more who has gone
        assert sum(counter.counts().values()) > 0


LARGE = """
keep = bytearray(1 << 29)
print("ready", flush=True)
input()
"""
HANDLERS = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call) { (void)call; return 1; }
void on_exit(struct sg_call *call) { (void)call; }
"""


def test_a_target_closes_quietly_while_its_process_is_dying() -> None:
    """It takes a while to give back so much memory, in which the process runs but has none."""
    for number in range(4):
        with Running([sys.executable, "-c", LARGE]) as running:
            with live.attach(running.pid) as target:
                target.register(live.Counter(["libc.so*!read"]))
                target.register(live.Ops(["libc.so*!read"], source=HANDLERS, entry="on_entry", exit="on_exit"))
                os.kill(running.pid, signal.SIGKILL)
                time.sleep(number * 0.01)  # whenever it is
            assert running.process.wait(timeout=120) == -signal.SIGKILL
