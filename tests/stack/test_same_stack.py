"""R23: while traced calls are in flight, the program and its debugger see the same callers as without tracing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.build import PROGRAMS, available, build
from tests.support.recording import environment
from tests.support.stopped import Stopped

LIBRARIES = ["libgcc_s.so.1", *map(str, sorted(Path("/usr/lib").glob("llvm-*/lib/libunwind.so.1")))]
FLAGS = ("-rdynamic", "-pthread", "-Wno-infinite-recursion")


def output_of(command: list[str]) -> list[str]:
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("options", [[], ["--all"], ["--depth", "5"], ["-f", "throws", "-f", "looks*", "-f", "tail*"]])
@pytest.mark.parametrize("variant", ["o0", "o2", "framepointer", "clang2"])
def test_backtraces_exceptions_and_cancellation(variant: str, options: list[str], tmp_path: Path) -> None:
    if not available(variant, ".cpp"):
        pytest.skip(f"no compiler for {variant}")
    program = build(PROGRAMS / "stack_same.cpp", variant, FLAGS)
    plain = output_of([str(program), *LIBRARIES])
    record = [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "-o", str(tmp_path / "same.sgt"), *options]
    assert output_of([*record, "--", str(program), *LIBRARIES]) == plain
    assert sum(line.startswith("nested:") for line in plain) == 1


def debugged(stopped: Stopped) -> tuple[list[str], list[str]]:
    """What gdb shows of a program that waits: the functions of `bt`, and the result in eax after each `finish`."""
    command = ["gdb", "-nx", "-batch", "-p", str(stopped.pid)]
    finishes = ["finish", "print $eax"] * (8 if stopped.process else 4)
    for line in ["bt", "echo DONE\\n", "up", "set var go = 1", "frame function waits", *finishes]:
        command += ["-ex", line]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    backtrace, _, rest = done.stdout.partition("DONE")
    functions = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\w+) \(", backtrace, re.MULTILINE)
    return functions, re.findall(r"^\$\d+ = (-?\d+)", rest, re.MULTILINE)


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_gdb_sees_and_finishes_calls_in_flight() -> None:
    program = build(PROGRAMS / "stack_debugger.c", "o2")
    seen = {}
    for traced in (True, False):
        with Stopped(program) if traced else Stopped(program, selection=None) as stopped:
            assert stopped.run_to([stopped.address("waits")])
            stopped.hand_over()
            stopped.resume()
            seen[traced] = debugged(stopped)
            assert stopped.wait_free() == 0
    assert [name for name in seen[True][0] if name != "sg_sites"] == seen[False][0]
    # Out of waits, inner, middle and outer; of each call in flight, gdb finishes the site as a frame of its own.
    assert seen[False][1] == ["8", "16", "19", "95"]
    assert seen[True][1] == [value for value in seen[False][1] for _ in range(2)]
