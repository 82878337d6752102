"""The thread that does what must be done by one thread: all ptrace requests for a process (ptrace(2))."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from shadowgraph.target.stopping import let_go_of_late

__all__ = ["Worker"]

_Result = TypeVar("_Result")


class Worker:
    """Runs what it is given in a thread of its own, one after the other; ``idle`` now and then (``pause``, seconds).

    ``pause`` may be changed by what it runs. To be started once all is there that ``idle`` looks at.
    """

    def __init__(self, idle: Callable[[], None], pause: float) -> None:
        self._idle = idle
        self.pause = pause
        self._has_complained = False
        self._taking = threading.Lock()  # held while a job is taken on
        self._is_closed = False
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="shadowgraph", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def do(self, job: Callable[[], _Result]) -> _Result:
        """Have a job done and wait for it; returns what it returns, raises what it raises.

        When the thread has ended, its caller does it: nobody else is at work any more.
        """
        if threading.current_thread() is self._thread:
            return job()
        done: Future[_Result] = Future()
        with self._taking:
            is_closed = self._is_closed
            if not is_closed:
                self._jobs.put((job, done))
        if not is_closed:
            return done.result()
        self._thread.join()
        return job()

    def post(self, job: Callable[[], None]) -> None:
        """Have a job done some time; nobody waits for it."""
        self._jobs.put((job, Future()))

    def close(self) -> None:
        """End the thread when all jobs are done."""
        with self._taking:
            self._is_closed = True
            self._jobs.put(None)
        self._thread.join()

    def _look(self) -> None:
        """Whatever goes wrong in between: who waits for a job waits for this thread. It is said once."""
        let_go_of_late()
        try:
            self._idle()
        except Exception as error:
            if not self._has_complained:
                self._has_complained = True
                told = (type(error), error, error.__traceback__, self._thread)
                threading.excepthook(threading.ExceptHookArgs(told))

    def _run(self) -> None:
        while True:
            try:
                entry = self._jobs.get(timeout=self.pause)
            except queue.Empty:
                self._look()
                continue
            if entry is None:
                return
            job, done = entry
            try:
                done.set_result(job())
            except BaseException as error:
                done.set_exception(error)
