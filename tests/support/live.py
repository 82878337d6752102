"""Commands on running programs, and waiting until they are at it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from shadowgraph.live.others import read_users
from tests.support.attached import Running
from tests.support.manners import usual_environment

__all__ = ["SHADOWGRAPH", "result", "send", "started", "until", "wait_for_users"]

SHADOWGRAPH = [sys.executable, "-m", "shadowgraph.cli.main"]
_PATIENCE = 120


def started(*words: str, typing: bool = False) -> subprocess.Popen[str]:
    """A command of ours, started; with a pipe to type into, or without anything to be read."""
    return subprocess.Popen(
        [*SHADOWGRAPH, *words],
        env=usual_environment(),
        stdin=subprocess.PIPE if typing else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(command: subprocess.Popen[str], status: int = 0) -> dict[str, Any]:
    """The last JSON object that a command prints."""
    output, errors = command.communicate(timeout=_PATIENCE)
    assert command.returncode == status, errors
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_users(pid: int, count: int) -> list[dict[str, Any]]:
    """Until so many users are on a process."""
    until(lambda: len(read_users(pid).rows) == count)
    return read_users(pid).rows


def send(running: Running, numbers: Iterable[int]) -> None:
    """Let tests/programs/live_values.c call its function with these."""
    assert running.process.stdin is not None
    running.process.stdin.write("".join(f"{number}\n" for number in numbers))
    running.process.stdin.flush()
