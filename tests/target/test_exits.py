"""How processes have ended is seen, though they are others' children."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import threading
from collections.abc import Sequence

import pytest

from shadowgraph.target.exits import ExitWatch

# Linux keeps what a process has ended with for those who had it open since 6.15.
KEPT = tuple(map(int, platform.release().split("-")[0].split(".")[:2])) >= (6, 15)
ENDS = [("exit 0", 0), ("exit 7", 7 << 8), ("kill -9 $$", signal.SIGKILL), ("kill -TERM $$", signal.SIGTERM)]


def watched(pid: int, let_go: int) -> tuple[int | None, bool]:
    """The wait status of a process that ends when a file is closed, and whether its end was noted."""
    noted = threading.Event()
    watch = ExitWatch(lambda: 5, noted.set)
    try:
        watch.watch(pid)
        os.close(let_go)
        assert noted.wait(30)
    finally:
        watch.close()
    return watch.statuses.get(pid), watch.ended == {pid: 5}


def starting(command: Sequence[str]) -> tuple[subprocess.Popen[str], int]:
    """A command that reads from a pipe, and the pipe's end."""
    read, write = os.pipe()
    started = subprocess.Popen(command, stdin=read, stdout=subprocess.PIPE, text=True)
    os.close(read)
    return started, write


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_of_one_whose_parent_has_not_asked(end: str, status: int) -> None:
    child, let_go = starting(["sh", "-c", f"read line; {end}"])
    assert watched(child.pid, let_go) == (status, True)
    child.communicate()


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_of_one_whose_parent_asks_at_once(end: str, status: int) -> None:
    """Seen in any case where the kernel keeps it; else if we come first, and never anything wrong."""
    parent, let_go = starting(["bash", "-c", f"(echo $BASHPID; read line; exec sh -c '{end}'); exit 0"])
    assert parent.stdout is not None
    seen, noted = watched(int(parent.stdout.readline()), let_go)
    parent.communicate()
    assert noted
    assert seen == status or (seen is None and not KEPT)


def test_what_ends_before_the_watch_is_closed_is_noted() -> None:
    """Many times, for both happen at once."""
    for _ in range(30):
        child, let_go = starting(["cat"])
        watch = ExitWatch(lambda: 5, lambda: None)
        watch.watch(child.pid)
        os.close(let_go)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        watch.close()
        assert watch.statuses == {child.pid: 0}
        child.communicate()
