"""When processes end: noticed at once, by a thread that sleeps on their pidfds."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

__all__ = ["ExitWatch"]


class ExitWatch:
    """Notes the moment at which each watched process ends.

    ``now`` tells the time to be noted; ``wake`` is called when there is something new. Both run in the watch's thread.
    """

    def __init__(self, now: Callable[[], int], wake: Callable[[], None]) -> None:
        self.ended: dict[int, int] = {}
        self._now = now
        self._wake = wake
        self._poll = select.epoll()
        self._pids: dict[int, int] = {}
        self._end_read, self._end_write = os.pipe()
        self._poll.register(self._end_read, select.EPOLLIN)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def watch(self, pid: int) -> None:
        """Begin to watch a process; without effect if it is watched, or gone."""
        if pid in self._pids.values():
            return
        try:
            file = os.pidfd_open(pid)
        except OSError:
            return
        self.ended.pop(pid, None)
        self._pids[file] = pid
        self._poll.register(file, select.EPOLLIN | select.EPOLLONESHOT)

    def close(self) -> None:
        """End the thread and give all files back."""
        os.close(self._end_write)
        self._thread.join()
        for file in [*self._pids, self._end_read]:
            os.close(file)
        self._pids.clear()
        self._poll.close()

    def _watch(self) -> None:
        while True:
            for file, _ in self._poll.poll():
                moment = self._now()
                if file == self._end_read:
                    return
                pid = self._pids.pop(file)
                self.ended[pid] = moment
                self._poll.unregister(file)
                os.close(file)
                self._wake()
