"""Nesting and order of calls equal those that gcc's -finstrument-functions logs, call by call."""

from __future__ import annotations

import pytest

from tests.support.build import PROGRAMS
from tests.support.graphs import read_graph
from tests.support.instrumented import instrument, logged_calls, sequence_differences, traced_calls
from tests.support.recording import record


@pytest.mark.parametrize(
    ("name", "rounds", "flags"),
    [
        ("instrumented_interpreter", 30, ("-fno-optimize-sibling-calls",)),
        ("instrumented_containers", 20, ("-O0",)),
        ("leaving_exception", 50, ()),
        ("leaving_destructor_throw", 50, ()),
        ("scale_many_threads", 3, ()),
        ("shapes_switch", 2000, ()),
        ("tail_short", 2000, ()),
        ("values_ipa_ra", 1000, ()),
    ],
)
def test_calls_are_those_of_the_instrumented_program(name: str, rounds: int, flags: tuple[str, ...]) -> None:
    graph = read_graph(PROGRAMS / f"{name}.graph")
    program = instrument(graph.source, (*graph.build, *flags))
    expected = logged_calls(program, [str(rounds)])
    recording = record([str(program.plain), str(rounds)])
    assert graph.output_differs(recording.outcome.lines) == ""
    names = {name for calls in expected for _, name in calls}
    assert sequence_differences(expected, traced_calls(recording.trace(), names)) == ""
