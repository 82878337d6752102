"""A controller is killed at any stage: the program goes on with right results, and the next controller cleans up.

SHADOWGRAPH_KILLS: how many of its some thousand moments are tried; `all` for each of them.
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
from tests.support.killed_live import Executed, run_controller, some_moments
from tests.support.manners import program

KILLS = 24
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


@pytest.mark.parametrize("more", [[], ["malloc"], ["nap"]], ids=["busy", "malloc", "nap"])
def test_the_program_survives_a_kill_at_any_moment_and_the_next_controller_cleans_up(more: list[str]) -> None:
    path = built("attach_busy")
    handlers()
    with Running([path, "4", *more]) as running:
        before = Seen.of(running.pid, path)
        for moment in some_moments(run_controller(lambda: use(running.pid), 0), KILLS):
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


COUNTED, OUTPUT = ("2000", "2", "0"), "1259200001\n"  # of tests/programs/manners_counted.c


def start_and_use(path: str, executed: Executed, output: int) -> None:
    """Start a program, register users of several kinds before it begins and while it runs, take some off."""
    executed.watch()
    os.dup2(output, 1)
    with live.launch([path, *COUNTED]) as target:
        target.register(live.Counter(["leaf", "middle"]))
        target.register(handlers())
        totals = target.register(live.Totals(["middle", "work"]))
        handlers().unregister()
        target.register(live.Counter(["main"]))
        target.resume()
        totals.unregister()


def test_a_program_that_was_started_survives_a_kill() -> None:
    path = program("manners_counted", "o1", "-pthread")
    handlers()
    outlived, moments = 0, some_moments(run_one(path, 0)[2], KILLS)
    for moment in [0, *moments]:
        output, executed, _ = run_one(path, moment)
        assert output == OUTPUT or (not executed and not output), f"killed at {moment}"
        outlived += executed
    assert outlived > len(moments) // 2


def run_one(path: str, moment: int) -> tuple[str, bool, int]:
    """What the program has printed, whether it was executed before the kill, and all moments of its controller."""
    executed = Executed()
    read, write = os.pipe()
    try:
        seen = run_controller(lambda: start_and_use(path, executed, write), moment)
    finally:
        os.close(write)
    with open(read) as file:
        return file.read(), bool(executed), seen


def masks_of(pid: int) -> set[int]:
    """The signals that threads block."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        line = next(line for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk"))
        found.add(int(line.split()[1], 16))
    return found
