"""Every program of tests/programs, recorded: result, output and status as without a recorder, and the right graph."""

from __future__ import annotations

import pytest

from tests.support.build import VARIANTS, available
from tests.support.graphs import Graph, differences, read_graph
from tests.support.recording import built, plain_run, record, refused_names, usual

# Every program is built in these ways; every way of building is tried with the programs below.
EVERYWHERE = ["o0", "o2", "nopie", "clang2"]
PROBES = [
    "imports",
    "leaving_exception",
    "leaving_longjmp",
    "scale_many_threads",
    "shapes_cold",
    "shapes_ifunc",
    "shapes_switch",
    "tail_short",
    "values_structs",
    "values_variadic",
]


def possible(graph: Graph, variant: str) -> bool:
    """Whether a program exists in a variant, here."""
    chosen = VARIANTS[variant]
    if (graph.variants and variant not in graph.variants) or variant in graph.unless:
        return False
    if graph.only and chosen.family != graph.only:
        return False
    return available(variant, graph.source.suffix)


def cases() -> list[tuple[str, str]]:
    found = []
    for path in usual():
        graph = read_graph(path)
        everywhere = [*EVERYWHERE, *(graph.variants if path.stem not in PROBES else [])]
        names = list(VARIANTS) if path.stem in PROBES else list(dict.fromkeys(everywhere))
        found += [(path.stem, variant) for variant in names if possible(graph, variant)]
    return found


def rounds_in(graph: Graph, variant: str) -> int:
    """The usual number of rounds in one build, a twentieth in the others."""
    return graph.rounds if variant == "o2" or graph.rounds < 1000 else graph.rounds // 20


@pytest.mark.parametrize(("name", "variant"), cases())
def test_program_runs_as_without_a_recorder_and_its_graph_is_right(name: str, variant: str) -> None:
    graph = read_graph(next(path for path in usual() if path.stem == name))
    program = built(graph, variant)
    rounds = rounds_in(graph, variant)
    command = [str(program), str(rounds)]
    status = graph.status if graph.status >= 0 else 128 - graph.status

    plain = plain_run(command)
    assert graph.output_differs(plain.lines) == ""
    assert (plain.status, plain.errors) == (status, b"")

    recording = record(command, *graph.record)
    assert graph.output_differs(recording.outcome.lines) == ""
    assert (recording.outcome.status, recording.outcome.errors) == (status, b"")

    names = graph.variables(recording.outcome.lines, rounds)
    refusals: dict[str, str] = {}

    def refused(function: str) -> bool:
        if not refusals:
            refusals.update(refused_names(program))
        return bool(refusals.get(function))

    found = differences(graph, recording.trace(), names, refused)
    assert not found, "\n".join(found)
