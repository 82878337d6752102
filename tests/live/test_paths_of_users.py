"""Each kind of users has ways of its own into a function and out of it; a program sees no difference on any of them.

The programs check themselves: registers, flags and values at both ends, signal handlers that come at any instruction,
calls that are left by exceptions and longjmp, tail calls, other threads, coroutines.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import shadowgraph as sg
from shadowgraph import live
from tests.support.attached import Running
from tests.support.live import send, until
from tests.support.manners import program, run

_HANDLERS = """
#include <shadowgraph/ops.h>
static volatile uint64_t calls;
int on_entry(struct sg_call *call) { calls += sg_arg(call, 0) != 1; return 1; }
void on_exit(struct sg_call *call) { calls += sg_result(call) != 1; }
"""
_SOME = _HANDLERS.replace("return 1", "return calls & 1")
_TIMED = _HANDLERS.replace("calls += sg_result(call) != 1", "calls += call->duration")
_KEEPING = """
#include <shadowgraph/ops.h>
static volatile uint64_t calls;
int on_entry(struct sg_call *call) { *(uint64_t *)call->data = sg_arg(call, 0); return 1; }
void on_exit(struct sg_call *call) { calls += *(uint64_t *)call->data == sg_result(call); }
"""
_Make = Callable[[list[str], Path], Sequence[live.User]]


def handlers(functions: list[str], source: str = _HANDLERS, data_size: int = 0) -> live.User:
    """A pair of handlers that do little."""
    return live.Ops(functions, source=source, entry="on_entry", exit="on_exit", data_size=data_size)


KINDS: dict[str, _Make] = {
    "counter": lambda functions, folder: [live.Counter(functions)],
    "totals": lambda functions, folder: [live.Totals(functions)],
    "histogram and totals": lambda functions, folder: [live.Histogram(functions), live.Totals(functions)],
    "counter and totals": lambda functions, folder: [live.Counter(functions), live.Totals(functions)],
    "handlers": lambda functions, folder: [handlers(functions)],
    "handlers that keep something": lambda functions, folder: [handlers(functions, _KEEPING, 24)],
    "handlers of several kinds": lambda functions, folder: [
        handlers(functions, _SOME),
        handlers(functions),
        handlers(functions, _TIMED),
    ],
    "three pairs of handlers": lambda functions, folder: [
        handlers(functions),
        handlers(functions, _TIMED),
        handlers(functions, _KEEPING, 24),
    ],
    "recorder and counter": lambda functions, folder: [
        live.Recorder(folder / "run.sgt", functions),
        live.Counter(functions),
    ],
    "counter and handlers": lambda functions, folder: [live.Counter(functions), handlers(functions, _SOME)],
    "recorder, counter and handlers": lambda functions, folder: [
        handlers(functions, _SOME),
        live.Recorder(folder / "run.sgt", functions),
        live.Counter(functions),
        handlers(functions, _TIMED),
    ],
    "recorder, histogram and handlers": lambda functions, folder: [
        live.Histogram(functions),
        live.Recorder(folder / "run.sgt", functions),
        handlers(functions, _TIMED),
    ],
}

# How each is built, and how many rounds of it are run.
PROGRAMS: dict[str, tuple[str, list[str], int]] = {
    "values_all_registers": ("o2", [], 20000),
    "values_asm_conventions": ("o2", [], 20000),
    "values_red_zone": ("o2", [], 20000),
    "values_vectors": ("o2", [], 2000),
    "scale_signals": ("o2", ["-fno-optimize-sibling-calls"], 20000),
    "tail_mutual": ("o2", [], 100000),
    "leaving_longjmp": ("o1", [], 2000),
    "leaving_exception": ("o1", [], 2000),
    "processes_fork": ("o2", [], 20),
}


def without_numbers(output: str) -> str:
    """What does not depend on when signals come."""
    return re.sub(r"ticks=\d+", "ticks", output)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["values_all_registers", "scale_signals", "leaving_longjmp"])
def test_a_program_of_another_c_library_sees_no_difference(
    name: str, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With musl the agent finds its thread in another way, and has paths built for that."""
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc is not installed")
    _, flags, rounds = PROGRAMS[name]
    sees_no_difference(name, "musl", flags, rounds, KINDS[kind], tmp_path, capfd)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_sees_no_difference(name: str, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    variant, flags, rounds = PROGRAMS[name]
    sees_no_difference(name, variant, flags, rounds, KINDS[kind], tmp_path, capfd)


def sees_no_difference(
    name: str,
    variant: str,
    flags: list[str],
    rounds: int,
    make: _Make,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Run a program that checks itself, with such users on all of its functions."""
    command = [program(name, variant, *flags), str(rounds)]
    expected = run(command)
    assert expected.status == 0
    users = make([f"{Path(command[0]).name}!*"], tmp_path)
    with live.launch(command) as target:
        for user in users:
            target.register(user)
        assert target.wait() == 0
        # What a signal handler calls while a handler of ours runs is not given to handlers.
        missed = [user.missed for user in users if not isinstance(user, live.Ops)]
    assert without_numbers(capfd.readouterr().out) == without_numbers(expected.output)
    assert not any(missed)


@pytest.mark.parametrize(
    ("name", "flags", "functions", "rounds", "calls"),
    [
        ("tail_mutual", [], ["is_even", "is_odd"], 900, 901),
        ("scale_signals", ["-fno-optimize-sibling-calls"], ["recursive", "leaf"], 3000, 30000),
    ],
)
def test_all_ways_count_the_same_calls(
    name: str, flags: list[str], functions: list[str], rounds: int, calls: int, tmp_path: Path
) -> None:
    counts: dict[str, dict[str, int]] = {}
    recorded: dict[str, int] = {}
    for kind, make in KINDS.items():
        (tmp_path / kind).mkdir()
        users = make(functions, tmp_path / kind)
        with live.launch([program(name, "o2", *flags), str(rounds)]) as target:
            for user in users:
                target.register(user)
            assert target.wait() == 0
        for user in users:
            if isinstance(user, live.Counter):
                counts[f"{kind}: counter"] = user.counts()
            elif isinstance(user, live.Totals):
                counts[f"{kind}: totals"] = {label: int(row["count"]) for label, row in user.totals().items()}
            elif isinstance(user, live.Recorder):
                recorded[kind] = sg.open(tmp_path / kind / "run.sgt").calls.num_rows
            elif isinstance(user, live.Histogram):
                found = user.all_percentiles()
                counts[f"{kind}: histogram"] = {label: int(row["count"]) for label, row in found.items()}
    first = counts["counter: counter"]
    assert sum(first.values()) == calls
    assert {kind: found for kind, found in counts.items() if found != first} == {}
    assert set(recorded.values()) == {calls}, recorded


def test_users_that_come_and_go_beside_a_recorder_have_their_calls_and_it_has_all(tmp_path: Path) -> None:
    """The way in is another one each time."""
    functions, folder = ["gives_back"], tmp_path / "run.sgt"
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter, totals, pair = live.Counter(functions), live.Totals(functions), handlers(functions)
        target.register(live.Recorder(folder, functions))
        sent = 0
        for users in (
            [counter],
            [totals],
            [totals, counter],
            [pair],
            [counter, pair],
            [totals, pair, counter],
            [counter],
        ):
            for user in users:
                target.register(user)
            send(running, range(100))
            sent += 100
            for user in users:
                if user is counter:
                    until(lambda: sum(counter.counts().values()) == 100)
                elif user is totals:
                    until(lambda: sum(row["count"] for row in totals.totals().values()) == 100)
            for user in users:
                user.unregister()
                assert user.missed == 0
        assert running.end("") == [f"gives_back {sent}", "OK"]
    trace = sg.open(folder)
    assert trace.calls.num_rows == sent
