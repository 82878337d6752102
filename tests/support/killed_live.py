"""A controller of live users that is killed with SIGKILL at a chosen moment of its work.

Moments are counted in what it does to the program: requests to the kernel about its threads, writes to its memory, and
steps in the registry of users. There is one before and one behind each of them.
"""

from __future__ import annotations

import functools
import mmap
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["Executed", "run_controller", "run_controller_from", "some_moments"]

_COUNT = struct.Struct("<Q")


class Executed:
    """Whether a controller had come so far that the program which it starts was executed, when it was killed."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)

    def __bool__(self) -> bool:
        return self._shared[0] != 0

    def watch(self) -> None:
        """Note it in this process, which is going to be killed."""
        from shadowgraph.target import launch

        start = launch.launch

        def noted(*arguments: Any) -> int:
            pid = start(*arguments)
            self._shared[0] = True
            return pid

        launch.launch = noted


def run_controller(work: Callable[[], None], moment: int) -> int:
    """Do some work in a process of its own, which is killed at a moment (0: never); how many moments it has seen."""

    def watched(begin: Callable[[], None]) -> None:
        begin()
        work()

    return run_controller_from(watched, moment)


def run_controller_from(work: Callable[[Callable[[], None]], None], moment: int) -> int:
    """As above; moments count from when the work calls what it is given."""
    shared = mmap.mmap(-1, _COUNT.size)
    child = os.fork()
    if not child:
        try:
            work(lambda: _watch(_Moments(shared, moment)))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (seen,) = _COUNT.unpack(shared[:])
    assert status == (-signal.SIGKILL if moment and seen >= moment else 0)
    return int(seen)


def some_moments(seen: int, usual: int) -> list[int]:
    """Which of all the moments that were seen to try: SHADOWGRAPH_KILLS of them, `all`, or as many as usual.

    They are a spread, which is another one after each change.
    """
    kills = os.environ.get("SHADOWGRAPH_KILLS", str(usual))
    wanted = seen if kills == "all" else int(kills)
    return [1 + (number * seen + seen // 3) // wanted for number in range(wanted)]


class _Moments:
    """Counts, in memory that outlives this process."""

    def __init__(self, shared: mmap.mmap, moment: int) -> None:
        self._shared, self._moment = shared, moment

    def pass_one(self) -> None:
        """The next moment has come."""
        (seen,) = _COUNT.unpack(self._shared[:])
        self._shared[:] = _COUNT.pack(seen + 1)
        if seen + 1 == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)


def _watch(moments: _Moments) -> None:
    from shadowgraph.agent.registry import Registry
    from shadowgraph.agent.user_masks import UserMasks
    from shadowgraph.target import memory, ptrace

    for owner, name in (
        (ptrace, "_request"),
        (memory.Memory, "write"),
        (UserMasks, "set"),
        (Registry, "_lead"),
        (Registry, "_write_user"),
        (Registry, "_append_order"),
        (Registry, "_take_off"),
    ):
        setattr(owner, name, _counted(getattr(owner, name), moments))


def _counted(function: Callable[..., Any], moments: _Moments) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*arguments: Any, **named: Any) -> Any:
        moments.pass_one()
        result = function(*arguments, **named)
        moments.pass_one()
        return result

    return counted
