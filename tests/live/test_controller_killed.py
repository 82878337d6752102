"""A controller is killed at any stage: the program goes on with right results, and the next controller cleans up.

SHADOWGRAPH_KILLS: how many of its some thousand moments are tried (otherwise 24); `all` for each of them.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from shadowgraph import live
from shadowgraph.ops.processes import runs
from tests.attach.conftest import built
from tests.support.attached import Running, Seen
from tests.support.killed_live import run_controller

KILLS = os.environ.get("SHADOWGRAPH_KILLS", "24")
FUNCTIONS = ["leaf", "middle", "tail", "recurse", "loop", "begins_with_call"]
HANDLERS = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call) { *(uint64_t *)call->data = sg_arg(call, 0); return 1; }
void on_exit(struct sg_call *call) { (void)call; }
"""


@cache
def handlers() -> live.Ops:
    """Some that keep data, compiled once."""
    return live.Ops(["leaf"], source=HANDLERS, entry="on_entry", exit="on_exit", data_size=8)


def use(pid: int) -> None:
    """Attach, register users of several kinds, take some off, and leave."""
    with live.attach(pid) as target:
        target.register(live.Counter(FUNCTIONS))
        target.register(handlers())
        totals = target.register(live.Totals(["middle", "leaf"]))
        totals.pause()
        totals.resume()
        handlers().unregister()
        totals.unregister()


def moments_of(seen: int) -> list[int]:
    """Which moments to try: all, or a spread of them that is another one for each program."""
    if KILLS == "all":
        return list(range(1, seen + 1))
    wanted = int(KILLS)
    return [1 + (number * seen + seen // 3) // wanted for number in range(wanted)]


@pytest.mark.parametrize("more", [[], ["malloc"], ["nap"]], ids=["busy", "malloc", "nap"])
def test_the_program_survives_a_kill_at_any_moment_and_the_next_controller_cleans_up(more: list[str]) -> None:
    path = built("attach_busy")
    handlers()
    with Running([path, "4", *more]) as running:
        before = Seen.of(running.pid, path)
        for moment in moments_of(run_controller(lambda: use(running.pid), 0)):
            run_controller(lambda: use(running.pid), moment)
            assert runs(running.pid), f"killed at {moment}"
            with live.attach(running.pid) as target:
                counter = target.register(live.Counter(FUNCTIONS))
                while min(counter.counts().values()) < 100:
                    assert runs(running.pid), f"killed at {moment}"
                assert [user["name"] for user in target.users] == ["counter"], f"killed at {moment}"
            now = Seen.of(running.pid, path)
            assert (now.code, now.tracer) == (before.code, "0"), f"killed at {moment}"
            assert masks_of(running.pid) == {0}, f"killed at {moment}"
        assert running.end() == ["wrong 0 worked 1"]


def masks_of(pid: int) -> set[int]:
    """The signals that threads block."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        line = next(line for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk"))
        found.add(int(line.split()[1], 16))
    return found
