"""What is said of users of a process that has ended."""

from __future__ import annotations

import sys

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
