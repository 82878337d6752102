"""R26: return addresses that somebody else has replaced are noticed, and the trace says so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowgraph.image import open_image, read_functions
from shadowgraph.ops.selection import LibraryCalls, Selection, function_rule
from shadowgraph.stack.frame import StackTrace
from tests.support.build import PROGRAMS, build
from tests.support.stopped import Stopped

TRACING = Path("/sys/kernel/tracing")
SELECTIONS = [
    pytest.param(Selection(libcalls=LibraryCalls.NONE), id="traced"),
    pytest.param(None, id="untraced"),
]


def trace_in_stop_here(argument: str, selection: Selection | None) -> StackTrace:
    program = build(PROGRAMS / "stack_rewriter.c", "o2")
    with Stopped(program, argument, selection=selection) as stopped:
        assert stopped.run_to([stopped.address("stop_here")])
        return stopped.trace()


@pytest.mark.parametrize("selection", SELECTIONS)
def test_an_untouched_stack_is_reliable(selection: Selection | None) -> None:
    trace = trace_in_stop_here("0", selection)
    assert trace.reliable, trace.reason
    assert {"tells_apart", "main"} <= {frame.function for frame in trace.frames}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_trampoline_in_a_file_is_noticed(selection: Selection | None) -> None:
    trace = trace_in_stop_here("1", selection)
    assert not trace.reliable
    assert "return address of rewrites" in str(trace.reason)
    assert "does not follow a call (trampoline in stack_rewriter): another tool has replaced it" in str(trace.reason)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_trampoline_made_at_run_time_is_noticed(selection: Selection | None) -> None:
    trace = trace_in_stop_here("2", selection)
    assert not trace.reliable
    assert "return address of rewrites" in str(trace.reason)
    assert "lies in executable memory of no file: another tool has replaced it" in str(trace.reason)


def test_a_copied_site_is_noticed() -> None:
    trace = trace_in_stop_here("3", SELECTIONS[0].values[0])  # type: ignore[arg-type]
    assert not trace.reliable
    assert "belongs to the slot at" in str(trace.reason)


def tell_kernel(line: str) -> None:
    """Append a line to the list of probes, which others may be using, too."""
    descriptor = os.open(TRACING / "uprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def uretprobe(program: Path, function: str) -> Iterator[None]:
    """A uretprobe on a function of a file, for all processes that map it."""
    functions = read_functions(open_image(program))
    image = open_image(program)
    address = int(functions.start[functions.find_name(function)[0]])
    segment = next(s for s in image.segments if s.address <= address < s.end)
    offset = address - segment.address + segment.file_offset
    name = f"shadowgraph_test_{os.getpid()}"
    tell_kernel(f"r:{name}/{function} {program}:{offset:#x}\n")
    try:
        (TRACING / "events" / name / "enable").write_text("1")
        yield
    finally:
        (TRACING / "events" / name / "enable").write_text("0")
        tell_kernel(f"-:{name}/{function}\n")


@pytest.mark.skipif(not os.access(TRACING / "uprobe_events", os.W_OK), reason="needs root and the kernel's uprobes")
@pytest.mark.parametrize(
    "selection",
    [
        pytest.param(
            Selection([function_rule("re:^(main|tells_apart|stop_here)$", include=True)], libcalls=LibraryCalls.NONE),
            id="all traced",
        ),
        pytest.param(
            Selection([function_rule("stop_here", include=True)], libcalls=LibraryCalls.NONE), id="callee traced"
        ),
        pytest.param(None, id="untraced"),
    ],
)
def test_a_uretprobe_is_noticed(selection: Selection | None) -> None:
    program = build(PROGRAMS / "stack_rewriter.c", "o2")
    with uretprobe(program, "tells_apart"), Stopped(program, "0", selection=selection) as stopped:
        assert stopped.run_to([stopped.address("stop_here")])
        trace = stopped.trace()
        assert not trace.reliable
        assert "lies in the kernel's trampoline for uprobes" in str(trace.reason)
        assert [frame.function for frame in trace.program_frames] == ["stop_here", "tells_apart"]
        assert os.WEXITSTATUS(stopped.run()) == 0
