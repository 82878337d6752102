"""The call/return checker finds what a hardware shadow stack would refuse, and nothing in lawful programs."""

from __future__ import annotations

import pytest

from tests.support.build import PROGRAMS
from tests.support.call_return import CallReport, check_calls
from tests.support.graphs import read_graph
from tests.support.recording import built


def check(name: str, rounds: int) -> CallReport:
    graph = read_graph(PROGRAMS / f"{name}.graph")
    program = built(graph, "o2")
    report, output = check_calls(program, str(rounds))
    assert report.exit == (graph.status if graph.status >= 0 else 128 - graph.status)
    assert graph.output_differs(output.splitlines()) == ""
    return report


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        ("values_all_registers", 5),
        ("shapes_switch", 10),
        ("tail_short", 10),
        ("leaving_exit", 1),
        ("processes_fork", 1),
        ("library_in_loop", 2),
    ],
)
def test_lawful_program_has_no_mismatch(name: str, rounds: int) -> None:
    report = check(name, rounds)
    assert (report.mismatch_count, report.mismatches) == (0, [])
    assert report.calls > rounds


def test_address_pushed_and_returned_to_is_a_mismatch() -> None:
    report = check("callcheck_pushed_return", 3)
    # Two a round: the ret to the pushed address, and that of the caller whose callee took its return address away.
    assert report.mismatch_count == 6
    assert {mismatch.file.rpartition("/")[2] for mismatch in report.mismatches} == {"callcheck_pushed_return"}


def test_longjmp_is_unwinding_and_no_mismatch() -> None:
    report = check("leaving_longjmp", 100)
    assert report.mismatch_count == 0
    # What longjmp leaves: two calls in each of the first rounds, 53 in the recursion, one in each of the last rounds.
    assert report.unwound >= 2 * 100 + 53 + 100


def test_exceptions_are_unwinding_and_no_mismatch() -> None:
    report = check("leaving_destructor_throw", 1)
    assert report.mismatch_count == 0
    assert report.unwound >= 4


def test_inlined_longjmp_that_knows_no_shadow_stack_is_a_mismatch() -> None:
    assert check("leaving_builtin_setjmp", 2).mismatch_count == 2


def test_contexts_have_shadow_stacks_of_their_own() -> None:
    report = check("coroutines", 10)
    assert report.mismatch_count == 0
    assert report.switches == 10 * 6 * 2


def test_hand_written_stack_switch_is_a_mismatch() -> None:
    assert check("coroutines_assembly", 1).mismatch_count > 0


def test_signal_handlers_return_through_their_frame() -> None:
    report = check("leaving_segv_longjmp", 5)
    assert report.mismatch_count == 0
    assert report.signals == 5


def test_every_thread_is_followed() -> None:
    report = check("leaving_pthread_exit", 2)
    assert report.mismatch_count == 0
    assert report.threads == 3


def test_limit_lets_the_program_go_on() -> None:
    graph = read_graph(PROGRAMS / "values_float.graph")
    report, output = check_calls(built(graph, "o2"), "20000", limit=5000)
    assert report.limited
    assert report.steps == 5000
    assert output == "OK\n"
