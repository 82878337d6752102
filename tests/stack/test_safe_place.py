"""Which threads may be borrowed to load a library is told by what stands on their stacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shadowgraph.ops.borrowing import Verdict
from shadowgraph.stack.safe_place import SafePlace
from shadowgraph.target.stopping import StoppedProcess, thread_state
from tests.attach.conftest import built
from tests.support.attached import KNOWN_MODULES, Running
from tests.support.live import until


@contextmanager
def verdicts(running: Running) -> Iterator[dict[int, Verdict]]:
    """What is said of each thread of a program, which stands still meanwhile."""
    judge = SafePlace(running.pid, KNOWN_MODULES)
    try:
        with StoppedProcess(running.pid) as stop:
            yield {tid: judge(registers) for tid, registers in stop.registers.items()}
    finally:
        judge.close()


def test_threads_that_wait_for_something_are_safe_to_borrow() -> None:
    with Running([built("attach_waiting")]) as running:
        with verdicts(running) as found:
            assert len(found) == 15
            assert [verdict.where for verdict in found.values() if not verdict.safe] == []
        running.end()


def test_a_thread_below_the_loader_is_not_and_it_is_told_where_that_returns_to() -> None:
    with Running([built("attach_loader"), "thread"]) as running:
        until(lambda: thread_state(running.pid, running.pid) == "S")  # the other thread may be there sooner
        with verdicts(running) as found:
            assert found[running.pid].safe, "the first thread waits for the other one, and holds nothing"
            verdict = next(verdict for tid, verdict in found.items() if tid != running.pid)
            assert (verdict.safe, verdict.in_loader, verdict.where) == (False, True, "dl_iterate_phdr")
            assert verdict.returns_to != 0
        assert running.end() == ["saw objects 1"]


def test_a_thread_in_a_handler_that_has_interrupted_a_function_is_judged_by_both() -> None:
    with Running([built("attach_inside")]) as running:
        with verdicts(running) as found:
            assert all(verdict.safe for verdict in found.values())
        assert running.end() == ["results 2 42 2"]
