"""R22: at random moments, a trace shows the calls that the program itself has noted, or says why it does not."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from shadowgraph.ops.selection import LibraryCalls, Selection, function_rule
from shadowgraph.target import ptrace
from tests.support.build import PROGRAMS, build
from tests.support.oracle import Oracle
from tests.support.stopped import Stopped

FLAGS = ("-finstrument-functions", "-fno-optimize-sibling-calls", "-pthread")
HOOKS = function_rule("__cyg_profile_func_*", include=False)


@pytest.fixture(scope="module", params=["o0", "o2"])
def program(request: pytest.FixtureRequest) -> Path:
    return build(PROGRAMS / "stack_oracle.cpp", request.param, FLAGS)


# Where libgcc is about to go to a landing pad, or libc to another stack.
EXCUSED = re.compile(
    "return address of _Unwind_(Resume|RaiseException) .* (does not follow a call|is not behind a call of it)"
    "|is changing stacks"
)

SELECTIONS = [
    pytest.param(Selection([HOOKS], libcalls=LibraryCalls.NONE), id="traced"),
    pytest.param(Selection([], libcalls=LibraryCalls.ALL), id="everything traced"),
    pytest.param(None, id="untraced"),
]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_single_stepped_thread(program: Path, selection: Selection | None) -> None:
    """Stopped after so many instructions that no two stops are alike; the same ones in each run of this test."""
    steps = random.Random(22)
    compared = 0
    with Stopped(program, "1000000", selection=selection) as stopped:
        oracle = Oracle(stopped)
        assert stopped.run_to([stopped.address("works")])
        for _ in range(400):
            for _ in range(steps.randrange(1, 200)):
                assert stopped.step()
            trace = stopped.trace()
            calls = oracle.calls(stopped.pid)
            if calls is None or oracle.changes_stacks(trace):
                continue
            if not trace.reliable and EXCUSED.search(trace.reason or ""):
                continue
            assert trace.reliable, trace.reason
            assert oracle.agrees(calls, trace), f"{calls}\n" + "\n".join(map(str, trace.frames))
            compared += 1
    assert compared > 300


@pytest.mark.parametrize("selection", SELECTIONS)
def test_running_threads_under_signals(program: Path, selection: Selection | None) -> None:
    """Four threads with coroutines and a signal every other millisecond, stopped together wherever they are."""
    moments = random.Random(22)
    shown: Counter[str] = Counter()
    with Stopped(program, selection=selection) as stopped:
        oracle = Oracle(stopped)
        ptrace.detach(stopped.pid)
        while stopped.memory.read_word(oracle.ready) <= 3:
            time.sleep(0.001)
        for _ in range(20_000):  # handlers are rare where others keep the processors busy
            if shown["compared"] > 250 and shown["in a handler"] > 0:
                break
            time.sleep(moments.random() * 0.005)
            threads = stopped.stop_all()
            for tid in threads:
                trace = stopped.unwinder.trace(stopped.registers(tid))
                calls = oracle.calls(tid)
                if calls is None or oracle.changes_stacks(trace):
                    shown["not on one list"] += 1
                    continue
                if not trace.reliable and EXCUSED.search(trace.reason or ""):
                    shown["excused"] += 1
                    continue
                assert trace.reliable, f"{trace.reason}\n" + "\n".join(map(str, trace.frames))
                assert oracle.agrees(calls, trace), f"{calls}\n" + "\n".join(map(str, trace.frames))
                shown["compared"] += 1
                shown["in a handler"] += any(frame.function == "handles" for frame in trace.frames)
            stopped.let_all_run(threads)
    assert shown["compared"] > 250 and shown["in a handler"] > 0, shown
    assert shown["excused"] < shown["compared"] / 10, shown
