"""A program that we have started and do not watch any more: its end is waited for, and its status is ours."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

from shadowgraph.target.stopping import let_go_of_late

__all__ = ["see_out"]

_LOOK_SECONDS = 0.1  # until a signal that tells us to leave is noticed


def see_out(pid: int, is_to_leave: Callable[[], bool]) -> int | None:
    """Wait for a child of ours to end; its wait status, or None if we are to leave before that.

    It is in our place on the terminal and in the shell's list of jobs: if we left first, the shell would take the
    terminal from it.
    """
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return None  # somebody has asked for its status before
    try:
        while not is_to_leave():
            let_go_of_late()
            if select.select([end], [], [], _LOOK_SECONDS)[0]:
                return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        pass
    finally:
        os.close(end)
    return None
