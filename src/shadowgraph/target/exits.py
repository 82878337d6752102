"""When processes end, and how: noticed at once, by a thread that sleeps on their pidfds."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import threading
from collections.abc import Callable

__all__ = ["ExitWatch"]


# struct pidfd_info and PIDFD_GET_INFO of include/uapi/linux/pidfd.h (exit codes since Linux 6.15).
_PIDFD_INFO = struct.Struct("QQ11Ii")
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 8
_EXIT_CODE = 49  # field 52 of /proc/PID/stat, counted from the state behind the name (proc(5))


class ExitWatch:
    """Notes the moment at which each watched process ends.

    ``statuses`` has the wait statuses of those of which it was seen. A process tells its parent alone how it has ended,
    but shows it until the parent has asked (and on newer kernels afterwards, to whom had it open before).

    ``now`` tells the time to be noted; ``wake`` is called when there is something new. Both run in the watch's thread.
    """

    def __init__(self, now: Callable[[], int], wake: Callable[[], None]) -> None:
        self.ended: dict[int, int] = {}
        self.statuses: dict[int, int] = {}
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
        if self.watches(pid):
            return
        try:
            file = os.pidfd_open(pid)
        except OSError:
            return
        self.ended.pop(pid, None)
        self.statuses.pop(pid, None)
        self._pids[file] = pid
        self._poll.register(file, select.EPOLLIN | select.EPOLLONESHOT)

    def watches(self, pid: int) -> bool:
        """Whether the end of a process that is watched has not been noted yet."""
        return pid in self._pids.values()

    def close(self) -> None:
        """End the thread, once it has noted what has ended by now, and give all files back."""
        os.close(self._end_write)
        self._thread.join()
        for file in [*self._pids, self._end_read]:
            os.close(file)
        self._pids.clear()
        self._poll.close()

    def _watch(self) -> None:
        while True:
            files = [file for file, _ in self._poll.poll()]
            moment = self._now()
            for file in files:
                if file != self._end_read:
                    self._note(file, moment)
            if self._end_read in files:
                return

    def _note(self, file: int, moment: int) -> None:
        pid = self._pids[file]
        status = _status_of(file, pid)
        if status is not None:
            self.statuses[pid] = status
        self.ended[pid] = moment
        del self._pids[file]  # last: who sees that it is not watched any more sees how it has ended
        self._poll.unregister(file)
        os.close(file)
        self._wake()


def _status_of(file: int, pid: int) -> int | None:
    """The wait status of a process that has ended: of a zombie from /proc, of one that is gone from its pidfd."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        if fields[0] == b"Z":
            return int(fields[_EXIT_CODE])
    except OSError:
        pass  # its parent knows already
    try:
        info = fcntl.ioctl(file, _PIDFD_GET_INFO, _PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
    except OSError:
        return None  # an older kernel
    mask, *_, code = _PIDFD_INFO.unpack(info)
    return int(code) if mask & _PIDFD_INFO_EXIT else None
