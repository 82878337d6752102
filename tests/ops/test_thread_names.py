"""Threads have the names that they gave themselves, though they made their first calls before."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.ops.thread_names import ThreadNames
from tests.support.manners import program, recorder, usual_environment

_PATIENCE = 30


def names_in(trace: Path) -> list[str]:
    with shadowgraph.open(trace) as opened:
        return sorted(opened.threads["name"].to_pylist())


def wait_until_told(spool: Path, *names: str) -> None:
    """Until a recording that goes on has written these names."""
    end = time.monotonic() + _PATIENCE
    while not (spool.exists() and all(f'"name":"{name}"'.encode() in spool.read_bytes() for name in names)):
        assert time.monotonic() < end, f"{names} were not told"
        time.sleep(0.01)


@pytest.mark.parametrize("executes", [[], ["/bin/true"]], ids=["ends", "executes another program"])
def test_threads_that_name_themselves_have_these_names(executes: list[str], tmp_path: Path) -> None:
    trace = tmp_path / "t.sgt"
    command = [*recorder(trace=trace), program("thread_names", "o1", "-pthread"), *executes]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, env=usual_environment(), cwd=tmp_path)
    wait_until_told(trace / "calls.spool", "the first", "worker (a)", "worker b")
    running.communicate(b"", timeout=_PATIENCE)
    assert running.returncode == 0
    assert names_in(trace) == sorted(["the first", "worker (a)", "worker b", *(["true"] if executes else [])])


def test_a_thread_is_looked_at_less_and_less_often() -> None:
    told: list[tuple[int, str]] = []
    names = ThreadNames(lambda number, name: told.append((number, name)))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    path = f"/proc/self/task/{thread.native_id}/comm"
    try:
        assert (
            names.meet(7, os.getpid(), thread.native_id or 0, "first", lambda: True, 100.0)
            == Path(path).read_text()[:-1]
        )
        looked = []
        for step in range(20_000):
            Path(path).write_text(f"name {step}")
            before = len(told)
            names.look(100 + step / 1000)
            looked += [step] * (len(told) - before)
        assert looked == [1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 2047, 4095, 8191, 16191]
        names.end(7)
        assert told[-1] == (7, "name 19999")
        names.look(1000.0)
        names.end(7)
        assert told[-1] == (7, "name 19999")
    finally:
        done.set()
        thread.join()


def test_what_has_ended_or_runs_another_program_keeps_its_first_name() -> None:
    told: list[tuple[int, str]] = []
    names = ThreadNames(lambda number, name: told.append((number, name)))
    with subprocess.Popen(["sh", "-c", "read line; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        assert names.meet(1, child.pid, child.pid, "before", lambda: False, 0.0) == "before"
        assert names.meet(2, child.pid, child.pid, "before", lambda: True, 0.0) == "sh"
        child.stdin.write(b"go on\nas cat\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"as cat\n"
        names.look(1.0)
        names.end(2)
    assert names.meet(3, child.pid, child.pid, "gone", lambda: True, 0.0) == "gone"
    assert told == []
