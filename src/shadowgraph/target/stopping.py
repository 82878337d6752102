"""Stopping all threads of a running process for a moment, such that none of them notices.

Every thread is seized and interrupted. One that waits in the kernel wakes up for it, and the kernel restarts what it
was doing when the thread goes on (restart_syscall(2)); where it would fail with EINTR instead, that is put right here
(remote.py). A stop of the whole process by a signal (SIGSTOP, SIGTSTP) outlives ours: the kernel renews it when the
tracer goes (kernel/ptrace.c: __ptrace_unlink).
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

from shadowgraph.errors import StartError
from shadowgraph.target import ptrace
from shadowgraph.target.remote import undisturbed

__all__ = ["StoppedProcess", "is_alive", "let_go_of_late", "stop_thread", "thread_state", "threads_of"]

_WALL = 0x40000000
_ENDS = (os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED)
_MOST_SECONDS = 2.0
_QUEUE_SECONDS = 8.0  # more, for threads that only wait for a processor
_MOST_PASSES = 100


class StoppedProcess:
    """A process whose threads all stand still, as a context manager. ``registers`` are those of each thread.

    StartError if a thread cannot be stopped within ``seconds``; then all run on. ``stood_still`` is for how long the
    process was stopped, in seconds, when that is over.
    """

    def __init__(self, pid: int, seconds: float = _MOST_SECONDS) -> None:
        self.pid = pid
        self.registers: dict[int, ptrace.Registers] = {}
        self.stood_still = 0.0
        self._seconds = seconds
        self._seized: set[int] = set()
        self._is_our_child = _parent_of(pid) == os.getpid()

    def __enter__(self) -> StoppedProcess:
        self._began = time.monotonic()
        self._hurry = _Hurry()
        try:
            self._stop_all()
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._let_go()

    def change(self, tid: int, registers: ptrace.Registers) -> None:
        """Let a thread go on with other registers."""
        ptrace.set_registers(tid, registers)
        self.registers[tid] = registers

    def _stop_all(self) -> None:
        """Again and again until there is none that runs: what is stopped begins no more threads."""
        for _ in range(_MOST_PASSES):
            new = [tid for tid in threads_of(self.pid) if tid not in self._seized]
            seized = [tid for tid in new if self._seize(tid)]
            asked = [tid for tid in seized if self._interrupt(tid)]
            if not asked:
                if not self.registers:
                    raise StartError(f"process {self.pid} has just ended")
                return
            self._wait_for(asked)
        raise StartError(f"process {self.pid} begins new threads faster than they can be stopped; nothing was changed")

    def _seize(self, tid: int) -> bool:
        """Become the tracer of a thread, which runs on; False if it has ended."""
        if _late.pop((threading.get_ident(), tid), None) is not None:
            self._seized.add(tid)  # it has been ours ever since
            return True
        try:
            ptrace.seize(tid, ptrace.OPTION_MARK_SYSTEM_CALLS)
        except StartError:
            if is_alive(self.pid, tid):
                raise
            return False
        self._seized.add(tid)
        return True

    def _interrupt(self, tid: int) -> bool:
        """Ask a thread to stop; False if it has ended."""
        try:
            ptrace.interrupt(tid)
        except ProcessLookupError:
            self._seized.discard(tid)
            return False
        return True

    def _wait_for(self, asked: list[int]) -> None:
        """Until each of these stands still or has ended; signals that come first are delivered."""
        deadline, waiting = self._began + self._seconds, set(asked)
        while True:
            for tid in list(waiting):
                if self._has_stopped(tid):
                    waiting.discard(tid)
            if not waiting:
                return
            if time.monotonic() > deadline:
                if time.monotonic() < deadline + _QUEUE_SECONDS and self._are_in_queue(waiting):
                    continue
                raise StartError(_why_it_runs_on(self.pid, min(waiting), time.monotonic() - self._began))
            time.sleep(0.0001)

    def _are_in_queue(self, waiting: set[int]) -> bool:
        """Whether all of these wait for a processor, on a machine with too much to do: they stop when they have it."""
        return all(thread_state(self.pid, tid) == "R" for tid in waiting)

    def _has_stopped(self, tid: int) -> bool:
        if self._waits_for_us(tid):
            self._seized.discard(tid)
            return True
        try:
            got, status = os.waitpid(tid, _WALL | os.WNOHANG)
        except ChildProcessError:
            got, status = tid, 0
        if got == 0:
            if is_alive(self.pid, tid):
                return False
            self._seized.discard(tid)  # a first thread that has ended before the others is told of when they have, too
            return True
        if not os.WIFSTOPPED(status):
            self._seized.discard(tid)
            return True
        if ptrace.event_of(status) != ptrace.EVENT_STOP:
            _pass_on(tid, status)
            return False
        try:
            found = ptrace.get_registers(tid)
            if undisturbed(found):
                ptrace.set_registers(tid, found)
        except ProcessLookupError:  # killed in the meantime: its end is told next
            return False
        self.registers[tid] = found
        return True

    def _waits_for_us(self, tid: int) -> bool:
        """Whether this is a child of ours that has ended: its status, told once, is for who has started it."""
        if tid != self.pid or not self._is_our_child:
            return False
        try:
            seen = os.waitid(os.P_PID, tid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return seen is not None and seen.si_code in _ENDS  # a tracee's stops are told, too, whatever is asked for

    def _let_go(self) -> None:
        """All run on. Those that have not stopped yet are let go of as soon as they have."""
        late = []
        for tid in self._seized:
            if tid in self.registers:
                ptrace.detach(tid)
            else:
                late.append(tid)
        self.stood_still = time.monotonic() - self._began
        self._hurry.end()
        for tid in late:
            _let_go_later(self.pid, tid)
        self._seized.clear()


class _Hurry:
    """While this lasts we run before all others, if we may: who holds a process must not wait for busy threads."""

    def __init__(self) -> None:
        self._usual = os.sched_getscheduler(0)
        self._parameters = os.sched_getparam(0)
        try:
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            self._lasts = True
        except OSError:
            self._lasts = False

    def end(self) -> None:
        """Run as before."""
        if self._lasts:
            os.sched_setscheduler(0, self._usual, self._parameters)
        self._lasts = False


def _pass_on(tid: int, status: int) -> None:
    """Let a thread run on that has stopped for something else; its interruption is still to come."""
    try:
        ptrace.cont(tid, os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0)
    except ProcessLookupError:
        pass


# Threads that would not stop, by the thread of ours that is their tracer and their number: their processes.
_late: dict[tuple[int, int], int] = {}


def _let_go_later(pid: int, tid: int) -> None:
    """Let go of a thread that would not stop: it stops when it leaves the kernel. We remain its tracer until then.

    If that takes long it is left to :func:`let_go_of_late`, or to our end: the kernel lets go of what we trace then.
    """
    for _ in range(20):
        if _has_been_let_go(pid, tid):
            return
        time.sleep(0.001)
    _late[threading.get_ident(), tid] = pid


def let_go_of_late() -> None:
    """Let go of threads that would not stop and have stopped since. Whoever stops processes and lives on calls it."""
    own = threading.get_ident()
    for key, pid in list(_late.items()):
        if key[0] == own and _has_been_let_go(pid, key[1]):
            _late.pop(key, None)


def _has_been_let_go(pid: int, tid: int) -> bool:
    try:
        got, status = os.waitpid(tid, _WALL | os.WNOHANG)
    except ChildProcessError:
        return True
    if got and os.WIFSTOPPED(status):
        ptrace.detach(tid, os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0)
    return bool(got) or not is_alive(pid, tid)


def stop_thread(tid: int, seconds: float = _MOST_SECONDS, pid: int = 0) -> ptrace.Registers | None:
    """Seize one thread and stop it; its registers, or None if it has ended. The others run on."""
    pid = pid or tid
    one = _OneThread(pid, tid, seconds)
    return one.stop()


class _OneThread(StoppedProcess):
    """One thread of a process, by the same means."""

    def __init__(self, pid: int, tid: int, seconds: float) -> None:
        super().__init__(pid, seconds)
        self._tid = tid
        self._began = time.monotonic()
        self._hurry = _Hurry()

    def stop(self) -> ptrace.Registers | None:
        try:
            if self._seize(self._tid) and self._interrupt(self._tid):
                self._wait_for([self._tid])
        except BaseException:
            self._let_go()
            raise
        self._hurry.end()
        return self.registers.get(self._tid)


def threads_of(pid: int) -> list[int]:
    """The threads of a process, those that have ended and not been reaped included; none if it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _parent_of(pid: int) -> int:
    """The parent of a process, 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b") ")[2].split()[1])
    except (OSError, IndexError):
        return 0


def thread_state(pid: int, tid: int) -> str:
    """The letter that proc(5) gives for a thread's state; "X" if it is gone."""
    try:
        with open(f"/proc/{pid}/task/{tid}/stat", "rb") as file:
            return chr(file.read().rpartition(b") ")[2][0])
    except (OSError, IndexError):
        return "X"


def is_alive(pid: int, tid: int) -> bool:
    """Whether a thread has not ended."""
    return thread_state(pid, tid) not in "ZX"


def _why_it_runs_on(pid: int, tid: int, seconds: float) -> str:
    where = f"thread {tid} of process {pid}" if tid != pid else f"process {pid}"
    if thread_state(pid, tid) == "D":
        return (
            f"{where} has been waiting in the kernel for {seconds:.0f} seconds where it cannot be interrupted "
            "(a device, a network file system, or a child made by vfork that has not executed its program yet); "
            "nothing was changed"
        )
    return (
        f"{where} could not be stopped within {seconds:.0f} seconds (is the machine overloaded?); nothing was changed"
    )
