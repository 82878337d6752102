"""A controller is killed while the program loads and unloads a library: it goes on, and the next controller sees all.

SHADOWGRAPH_KILLS: how many of the moments of each way to follow are tried; `all` for each of them.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.ops.processes import runs
from tests.live.test_controller_killed import HANDLERS
from tests.support.attached import Running
from tests.support.build import PROGRAMS, compile_files, scratch_folder
from tests.support.killed_live import run_controller_from, some_moments
from tests.support.manners import program

KILLS = 5
COUNTED = "libreloaded.so!library_function"
FUNCTIONS = ["libreloaded.so!library_*", "step"]
IN_A_ROUND = 3 * (1 + 50 + 1)  # calls of library_function: by the constructor, by the program, by the destructor
Begin = Callable[[], None]


@cache
def command() -> list[str]:
    """The program and its library."""
    path = scratch_folder() / "libreloaded.so"
    compile_files("gcc", [PROGRAMS / "live_reloaded.shared.c"], path, ("-shared", "-fPIC", "-O2"))
    return [program("live_reloaded", "o2", "-pthread"), str(path)]


@cache
def handlers() -> live.Ops:
    """Some that keep data, compiled once."""
    return live.Ops(FUNCTIONS, source=HANDLERS, entry="on_entry", exit="on_exit", data_size=8)


def say_round(running: Running) -> None:
    """Have it load and unload, without waiting for its answer."""
    assert running.process.stdin is not None
    os.write(running.process.stdin.fileno(), b"round\n")


def wait_for_answer(running: Running) -> None:
    """Until it has answered; who has started it reads that."""
    assert running.process.stdout is not None
    assert select.select([running.process.stdout], [], [], 120)[0]


def counted(counter: live.Counter) -> int:
    return counter.counts().get(COUNTED, 0)


def follow_with_users(running: Running, _: Path, begin: Begin) -> None:
    """Be on the process with users of several kinds while it loads and unloads."""
    with live.attach(running.pid) as target:
        counter = target.register(live.Counter(FUNCTIONS))
        target.register(handlers())
        begin()
        say_round(running)
        wait_for_answer(running)
        assert counted(counter) == IN_A_ROUND


def record(running: Running, trace: Path, begin: Begin) -> None:
    """Record the process while it loads and unloads, from when all is hooked that is there."""
    from shadowgraph.cli.main import main
    from shadowgraph.ops.recording import Recording

    watch = Recording._watch

    def from_here(recording: Recording, pid: int) -> None:
        def to_the_answer() -> None:
            wait_for_answer(running)
            recording.stop = True

        begin()
        threading.Thread(target=to_the_answer, daemon=True).start()
        say_round(running)
        watch(recording, pid)

    Recording._watch = from_here  # type: ignore[method-assign]
    with suppress(SystemExit):
        main(["record", "-q", "--pid", str(running.pid), "-o", str(trace), "-f", COUNTED])


@pytest.mark.parametrize("follow", [follow_with_users, record])
def test_the_program_survives_and_the_next_controller_sees_what_is_loaded(
    follow: Callable[[Running, Path, Begin], None], tmp_path: Path
) -> None:
    handlers()
    with Running(command()) as running:

        def run(moment: int) -> int:
            trace = tmp_path / f"{moment}.sgt"
            seen = run_controller_from(lambda begin: follow(running, trace, begin), moment)
            assert runs(running.pid), f"killed at {moment}"
            assert running.line() == "done", f"killed at {moment}"
            return seen

        seen = run(0)
        if follow is record:
            assert len(sg.open(tmp_path / "0.sgt").calls) == IN_A_ROUND
        for moment in some_moments(seen, KILLS):
            run(moment)
            with live.attach(running.pid) as target:
                counter = target.register(live.Counter(FUNCTIONS))
                assert running.say("round") == "done", f"killed at {moment}"
                assert counted(counter) == IN_A_ROUND, f"killed at {moment}"
                assert [user["name"] for user in target.users] == ["counter"], f"killed at {moment}"
        assert running.end() == ["OK"]
