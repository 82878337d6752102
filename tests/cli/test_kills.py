"""kill -9 at any moment, of the program or its recorder: what was recorded can be read, and nobody else is harmed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pytest

import shadowgraph
from tests.support.killed import Killed, kill_at
from tests.support.manners import program, recorder, usual_environment

ROUNDS, THREADS, STATUS = 2000, 2, 42
OUTPUT = "1259200001\n"
SEED = 2026
KILLED = 128 + signal.SIGKILL
KIND_OPEN = 3
NEAR = 8  # by so many moments the beginning differs from run to run


def counted(*more: str) -> list[str]:
    return [program("manners_counted", "o1", "-pthread"), str(ROUNDS), str(THREADS), str(STATUS), *more]


def moments_of(command: list[str], folder: Path) -> Killed:
    """A recording in which nobody is killed."""
    (whole,) = kill_at("recorder", folder / "whole", [0], command)
    assert (whole.output, whole.recorder, whole.others) == (OUTPUT, STATUS, [])
    return whole


def some(first: int, last: int, count: int) -> list[int]:
    """Moments at random from ``first`` to ``last``, both among them."""
    return sorted({first, last, *random.Random(SEED).sample(range(first, last + 1), count)})


def calls_by_name(path: str, kind: int | None = None) -> Counter[str]:
    """How many calls of each function there are, of one kind or of all."""
    with shadowgraph.open(path) as trace:
        assert not trace.problems
        names = dict(zip(*(trace.functions[name].to_pylist() for name in ("function", "name")), strict=True))
        calls = trace.calls if kind is None else trace.calls.filter(pc.field("kind") == kind)
        counts = calls.group_by("function").aggregate([([], "count_all")]).to_pylist()
        return Counter({names[row["function"]]: row["count_all"] for row in counts})


def open_names(path: str) -> Counter[str]:
    return calls_by_name(path, KIND_OPEN)


@pytest.mark.parametrize("start", [[], ["env"]], ids=["the program", "a program that executes another"])
def test_a_program_killed_at_any_moment_ends_its_recording_with_its_status(start: list[str], tmp_path: Path) -> None:
    command = start + counted()
    whole = moments_of(command, tmp_path)
    moments = some(1, whole.begun - NEAR, 3) + some(whole.begun + NEAR, whole.moments - 40, 3)
    results = kill_at("program", tmp_path, moments, command)
    assert len(results) == len(moments)
    seen = Counter[str]()
    for moment, killed in zip(moments, results, strict=True):
        ended = (killed.output, killed.recorder) == (OUTPUT, STATUS)  # it was faster than the recorder
        assert ended or (killed.output, killed.recorder) == ("", KILLED), (moment, killed)
        assert killed.others == []
        calls = calls_by_name(killed.trace)
        assert calls["leaf"] <= ROUNDS * THREADS * 100
        assert ended == (calls["leaf"] == ROUNDS * THREADS * 100 and not open_names(killed.trace)["main"])
        assert moment > whole.begun or not calls
        seen += calls
    assert seen["middle"]  # of some that were killed as they ran


@pytest.mark.parametrize("start", [[], ["env"]], ids=["the program", "a program that executes another"])
def test_a_recorder_killed_at_any_moment_leaves_what_it_wrote(start: list[str], tmp_path: Path) -> None:
    command = start + counted()
    whole = moments_of(command, tmp_path)
    moments = some(1, whole.begun - NEAR, 1) + some(whole.begun + NEAR, whole.moments - 1, 4)
    for moment, killed in zip(moments, kill_at("recorder", tmp_path, moments, command), strict=True):
        if killed.moments < moment:  # it was done before, having had less to write
            assert (killed.output, killed.recorder, killed.others) == (OUTPUT, STATUS, [])
            continue
        assert killed.recorder == KILLED
        assert killed.output == OUTPUT, (moment, killed)
        assert start or sorted(killed.others) in ([0, STATUS], [0]), (moment, killed)
        calls = calls_by_name(killed.trace)
        assert calls["leaf"] <= ROUNDS * THREADS * 100
        with shadowgraph.open(killed.trace) as trace:
            assert trace.metadata["state"] in ("recovered", "complete")
            assert trace.metadata["state"] == "recovered" or calls["leaf"] == ROUNDS * THREADS * 100


@pytest.mark.parametrize(
    "start", [["env"], ["sh", "-c", 'exec 2>/dev/null; "$@"; exit $?', "sh"]], ids=["in its place", "as a child"]
)
def test_an_executed_program_outlives_a_recorder_that_is_killed_while_it_enters_it(
    start: list[str], tmp_path: Path
) -> None:
    command = start + counted()
    whole = moments_of(command, tmp_path)
    first, last = whole.entering
    assert whole.begun < first < last
    results = kill_at("recorder", tmp_path, some(first, last, 10), command)
    seen = Counter(killed.stage for killed in results)
    for killed in results:
        assert (killed.output, STATUS in killed.others) == (OUTPUT, True), killed
    assert seen["entering"] >= 5, seen


def test_a_program_outlives_a_recorder_that_is_killed_while_it_is_loaded_or_stands_at_its_entry(tmp_path: Path) -> None:
    whole = moments_of(counted(), tmp_path)
    results = kill_at("recorder", tmp_path, some(1, whole.begun, 14), counted())
    for killed in results:
        assert (killed.output, STATUS in killed.others) == (OUTPUT, True), killed
    seen = Counter(killed.stage for killed in results)
    assert seen["starting"] >= 10, seen


@contextmanager
def waiting_half_way(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int, Path, Path]]:
    """A recorded program whose threads wait half-way for a file: recorder, program, that file, the trace."""
    go, trace = tmp_path / "go", tmp_path / "t.sgt"
    command = [*recorder(*options, trace=trace), *counted(str(go))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=usual_environment()) as process:
        assert process.stdout is not None
        for _ in range(THREADS):
            assert process.stdout.readline() == "half-way\n"
        yield process, child_that_runs(process.pid, command[-5]), go, trace


def child_that_runs(pid: int, path: str) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(child) for child in children if os.readlink(f"/proc/{child}/exe") == path)


def test_calls_in_flight_of_a_killed_program_are_open(tmp_path: Path) -> None:
    with waiting_half_way(tmp_path) as (process, pid, _, trace):
        os.kill(pid, signal.SIGKILL)
        assert process.wait(60) == KILLED
    calls, in_flight = calls_by_name(str(trace)), open_names(str(trace))
    assert calls["middle"] == ROUNDS * THREADS // 2 and calls["leaf"] == 100 * calls["middle"]
    assert {name: in_flight[name] for name in ("main", "work", "wait_for", "middle", "leaf")} == {
        "main": 1, "work": THREADS, "wait_for": THREADS, "middle": 0, "leaf": 0,
    }  # fmt: skip
    with shadowgraph.open(trace) as opened:
        assert opened.metadata["end"] == {"reason": "exited", "status": -signal.SIGKILL}
        assert opened.processes["exit_status"].to_pylist() == [-signal.SIGKILL]


def test_calls_in_flight_are_open_soon_in_what_a_killed_recorder_leaves(tmp_path: Path) -> None:
    with waiting_half_way(tmp_path) as (process, _, go, trace):
        time.sleep(1.5)  # they are noted once a second at least
        process.kill()
        process.wait()
        in_flight = open_names(str(trace))
        go.touch()
        assert process.stdout is not None and process.stdout.read() == OUTPUT
    assert (in_flight["main"], in_flight["work"], in_flight["wait_for"]) == (1, THREADS, THREADS)
    calls = calls_by_name(str(trace))
    assert calls["leaf"] <= ROUNDS * THREADS * 100 // 2


def test_a_program_that_waits_for_room_goes_on_when_its_recorder_is_killed(tmp_path: Path) -> None:
    with waiting_half_way(tmp_path, "--buffer", "512K", "--on-full", "block") as (process, _, go, trace):
        os.kill(process.pid, signal.SIGSTOP)
        go.touch()  # more calls than there is room for
        time.sleep(0.2)
        process.kill()
        process.wait()
        assert process.stdout is not None and process.stdout.read() == OUTPUT
    assert calls_by_name(str(trace))["middle"] >= ROUNDS * THREADS // 4


def test_a_recorder_asked_to_end_leaves_the_program_running_and_the_trace_whole(tmp_path: Path) -> None:
    with waiting_half_way(tmp_path) as (process, pid, go, trace):
        process.terminate()
        assert process.wait(60) == 0
        Path(f"/proc/{pid}/stat").read_text()  # it lives
        go.touch()
        assert process.stdout is not None and process.stdout.read() == OUTPUT
    assert calls_by_name(str(trace))["middle"] == ROUNDS * THREADS // 2
    assert open_names(str(trace))["wait_for"] == THREADS
    with shadowgraph.open(trace) as opened:
        assert opened.metadata["state"] == "complete" and opened.metadata["end"] == {"reason": "stopped"}
