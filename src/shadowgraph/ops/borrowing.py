"""Borrowing threads of a running process: any for system calls, one at a safe place for loading a library."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from shadowgraph.errors import StartError
from shadowgraph.target import ptrace
from shadowgraph.target.memory import Memory, program_mark
from shadowgraph.target.remote import RemoteThread
from shadowgraph.target.status import ignores
from shadowgraph.target.stopping import StoppedProcess, stop_thread, thread_state, threads_of

__all__ = ["CALL_SECONDS", "Judge", "Verdict", "at_safe_place", "borrowed", "judging_nobody", "refuse_other_program"]

CALL_SECONDS = 20.0
_SAFE_SECONDS = 10.0
_MARKED_SECONDS = 5.0  # the last ones of these
_RETURN_SECONDS = 0.5
_SOME_TIME = 0.0002
_SOME_THREADS = 4


@dataclass(frozen=True)
class Verdict:
    """Whether a thread's stack holds neither the loader nor an allocator.

    If not, ``returns_to`` is where the outermost of their functions returns to (0: unknown), ``where`` its name, and
    ``in_loader`` tells whether it may hold the loader's lock, which is not always released soon.
    """

    safe: bool
    returns_to: int = 0
    where: str = ""
    in_loader: bool = False


Judge = Callable[[ptrace.Registers], Verdict]


def judging_nobody(*_: object) -> nullcontext[Judge]:
    """For who attaches to no process: no thread of any is known to be at a safe place."""
    return nullcontext(lambda _: Verdict(False))


@contextmanager
def borrowed(
    pid: int, memory: Memory, mark: bytes, stops: list[float], *, own_stack: bool = True
) -> Iterator[RemoteThread]:
    """Borrow a thread for system calls and functions that need no lock, wherever it stands."""
    for tid in threads_of(pid):
        began = time.monotonic()
        if stop_thread(tid, pid=pid) is None:
            continue
        try:
            refuse_other_program(pid, mark)
            with RemoteThread(tid, memory, own_stack=own_stack, seconds=CALL_SECONDS) as thread:
                yield thread
            return
        finally:
            ptrace.detach(tid)
            stops.append(time.monotonic() - began)
    raise StartError(f"process {pid} has just ended")


@contextmanager
def at_safe_place(pid: int, memory: Memory, mark: bytes, judge: Judge, stops: list[float]) -> Iterator[RemoteThread]:
    """Borrow a thread that holds no lock of the loader or an allocator."""
    _learn(pid, judge, stops)
    if _is_stopped(pid):
        _refuse_stopped_inside(pid, judge)
    else:
        _wait_for_loader(pid, judge, stops)
    deadline, where = time.monotonic() + _SAFE_SECONDS, ""
    while True:
        for tid in sorted(threads_of(pid), key=lambda tid: thread_state(pid, tid) != "S"):
            began = time.monotonic()
            registers = stop_thread(tid, pid=pid)
            if registers is None:
                continue
            try:
                marked = time.monotonic() > deadline - _MARKED_SECONDS
                verdict = _run_to_safe_place(tid, registers, judge, marked=marked)
                if verdict is not None and verdict.safe:
                    refuse_other_program(pid, mark)
                    with RemoteThread(tid, memory, own_stack=True, seconds=CALL_SECONDS) as thread:
                        yield thread
                    return
                where = verdict.where if verdict is not None else where
            finally:
                ptrace.detach(tid)
                stops.append(time.monotonic() - began)
        if time.monotonic() > deadline or not threads_of(pid):
            raise StartError(
                f"process {pid}: for {_SAFE_SECONDS:g} seconds all its threads were in its loader or its "
                f"allocator ({where or 'it has ended'}), where nothing can be loaded; nothing was changed"
            )
        time.sleep(0.001)


def _learn(pid: int, judge: Judge, stops: list[float]) -> None:
    """Have some threads judged that run on meanwhile, so that the files on their stacks are read while none waits."""
    for tid in threads_of(pid)[:_SOME_THREADS]:
        began = time.monotonic()
        registers = stop_thread(tid, pid=pid)
        if registers is not None:
            ptrace.detach(tid)
            stops.append(time.monotonic() - began)
            judge(registers)


def _wait_for_loader(pid: int, judge: Judge, stops: list[float]) -> None:
    """Until each thread has been seen outside of the loader.

    One that stays there (in a constructor that waits, say) holds a lock that ours would wait for, with others held.
    """
    deadline = time.monotonic() + _SAFE_SECONDS
    left = set(threads_of(pid))
    while left:
        for tid in sorted(left & set(threads_of(pid))):
            began = time.monotonic()
            registers = stop_thread(tid, pid=pid)
            if registers is None:
                left.discard(tid)
                continue
            verdict = judge(registers)
            ptrace.detach(tid)
            stops.append(time.monotonic() - began)
            if verdict.safe or not verdict.in_loader:
                left.discard(tid)
            elif time.monotonic() > deadline:
                raise StartError(
                    f"thread {tid} of process {pid} has been in its loader ({verdict.where}) for {_SAFE_SECONDS:g} "
                    "seconds, where nothing else can be loaded; nothing was changed"
                )
        left &= set(threads_of(pid))
        time.sleep(0.001)


def _refuse_stopped_inside(pid: int, judge: Judge) -> None:
    """Of a process that a signal has stopped, no thread may be where it holds a lock: it would not release it."""
    with StoppedProcess(pid) as stop:
        verdicts = [judge(registers) for registers in stop.registers.values()]
    inside = next((verdict for verdict in verdicts if not verdict.safe), None)
    if inside is not None:
        raise StartError(
            f"process {pid} is stopped while a thread of it is in its loader or its allocator "
            f"({inside.where}); let it run (kill -CONT {pid}) and try again"
        )


def refuse_other_program(pid: int, mark: bytes) -> None:
    """StartError if a process has executed another program since ``mark`` was taken; asked while it stands still."""
    if program_mark(pid) != mark:
        raise StartError(f"process {pid} has executed another program, or ended, while it was being attached to")


def _is_stopped(pid: int) -> bool:
    return any(thread_state(pid, tid) == "T" for tid in threads_of(pid))


def _run_to_safe_place(tid: int, registers: ptrace.Registers, judge: Judge, *, marked: bool) -> Verdict | None:
    """Let a stopped thread run until it has left the loader and the allocator, for a while; then it is stopped.

    None if it has ended on the way. It is looked at again and again; where that has not helped, ``marked``, it is
    stopped by a debug register where it returns to. That outlives us: should we be killed then, so would the process.
    """
    deadline = time.monotonic() + _RETURN_SECONDS
    verdict = judge(registers)
    try:
        if not marked:
            while not verdict.safe and time.monotonic() < deadline:
                ptrace.cont(tid)
                time.sleep(_SOME_TIME)
                ptrace.stop(tid)
                verdict = judge(ptrace.get_registers(tid))
            return verdict
        # The kernel forces the signal of a mark: where it is ignored or blocked, its disposition would be lost.
        if ignores(tid, signal.SIGTRAP) or ptrace.get_signal_mask(tid) & 1 << signal.SIGTRAP - 1:
            return verdict
        while not verdict.safe and verdict.returns_to and time.monotonic() < deadline:
            if not ptrace.can_stop_at(tid, verdict.returns_to):
                break
            ptrace.stop_at(tid, verdict.returns_to)
            ptrace.cont(tid)
            arrived = _wait_for_arrival(tid, deadline)
            ptrace.stop_at(tid, 0)
            if not arrived:
                break
            verdict = judge(ptrace.get_registers(tid))
    except (ProcessLookupError, ptrace.TraceeEnded):
        return None
    return verdict


def _wait_for_arrival(tid: int, deadline: float) -> bool:
    """Until a thread stops at its mark; signals are delivered on the way. False if the time is over: it is stopped."""
    asked = False
    while True:
        status = ptrace.wait_stop_now(tid)
        if status is None:
            if time.monotonic() > deadline and not asked:
                ptrace.interrupt(tid)
                asked = True
            time.sleep(0.0001)
        elif not os.WIFSTOPPED(status):
            raise ProcessLookupError
        elif ptrace.event_of(status) == ptrace.EVENT_STOP:
            return False
        elif os.WSTOPSIG(status) == signal.SIGTRAP:
            return True
        else:
            ptrace.cont(tid, os.WSTOPSIG(status))
