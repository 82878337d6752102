"""R22: a trace is complete and reliable, or says why not; it is never short in silence."""

from __future__ import annotations

import pytest

from shadowgraph.ops.selection import LibraryCalls, Selection
from shadowgraph.stack.frame import FrameKind, StackTrace
from tests.support.build import PROGRAMS, available, build
from tests.support.stopped import Stopped

SELECTIONS = [
    pytest.param(Selection(libcalls=LibraryCalls.NONE), id="traced"),
    pytest.param(None, id="untraced"),
]
pytestmark = pytest.mark.parametrize("selection", SELECTIONS)


def trace_of(argument: str, selection: Selection | None, most: int = 100_000) -> StackTrace:
    with Stopped(build(PROGRAMS / "stack_ends.c", "o2"), argument, selection=selection) as stopped:
        assert stopped.run_to([stopped.address("stop_here")])
        return stopped.unwinder.trace(stopped.registers(), most)


def names(trace: StackTrace) -> list[str | None]:
    return [frame.function for frame in trace.program_frames]


def test_code_without_unwind_information(selection: Selection | None) -> None:
    trace = trace_of("0", selection)
    assert not trace.reliable
    assert trace.reason == "there is no unwind information for undescribed in stack_ends"
    assert names(trace) == ["stop_here", "undescribed"]


def test_code_made_at_run_time(selection: Selection | None) -> None:
    trace = trace_of("1", selection)
    assert not trace.reliable
    assert "the return address of stop_here in stack_ends" in str(trace.reason)
    assert "lies in executable memory of no file" in str(trace.reason)
    assert names(trace) == ["stop_here"]


def test_the_stack_of_a_context_ends_with_its_function(selection: Selection | None) -> None:
    trace = trace_of("2", selection)
    assert trace.reliable, trace.reason
    assert names(trace) == ["stop_here", "context_body"]


def test_a_return_address_of_0_in_the_middle_of_memory(selection: Selection | None) -> None:
    trace = trace_of("3", selection)
    assert not trace.reliable
    assert "the return address of hand_made_body in stack_ends is 0" in str(trace.reason)


def test_a_handler_on_a_stack_of_its_own(selection: Selection | None) -> None:
    trace = trace_of("4", selection)
    assert trace.reliable, trace.reason
    assert names(trace)[:2] == ["stop_here", "on_signal"]
    assert FrameKind.SIGNAL in [frame.kind for frame in trace.frames]
    assert "main" in names(trace)
    assert names(trace)[-1] == "_start"


def test_deep_stacks(selection: Selection | None) -> None:
    trace = trace_of("5", selection)
    assert trace.reliable, trace.reason
    assert names(trace).count("deep") == 3001
    cut = trace_of("5", selection, most=1000)
    assert not cut.reliable
    assert "deeper than 1000 frames" in str(cut.reason)
    assert cut.frames == cut.frames[:1000]


def test_a_call_through_a_null_pointer(selection: Selection | None) -> None:
    with Stopped(build(PROGRAMS / "stack_ends.c", "o2"), "6", selection=selection) as stopped:
        assert stopped.run_to([stopped.address("calls_null")])
        while stopped.registers().rip:
            assert stopped.step()
        trace = stopped.trace()
    assert not trace.reliable
    assert trace.reason == "the thread stands at 0x0, which lies in no memory at all"


@pytest.mark.parametrize("variant", ["gold", "mold", "noplt", "lazy", "now", "nopie", "cet", "large", "clang2"])
def test_programs_of_other_tools(variant: str, selection: Selection | None) -> None:
    """By linkers' stubs and the loader's resolver, a trace is right or says why not."""
    if not available(variant):
        pytest.skip(f"cannot build {variant}")
    reasons = set()
    with Stopped(build(PROGRAMS / "stack_ends.c", variant), "2", selection=selection) as stopped:
        assert stopped.run_to([stopped.address("main")])
        for _ in range(700):
            trace = stopped.trace()
            if trace.reliable:
                assert names(trace)[-1] in ("_start", "context_body"), names(trace)
            else:
                reasons.add(trace.reason)
            assert stopped.step()
    stubs = ("no unwind information for sub_", "no unwind information for the linker's stub at ")
    known = (*stubs, "the thread is changing stacks (swapcontext")
    assert all(any(text in str(reason) for text in known) for reason in reasons), reasons
