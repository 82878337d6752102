"""`record --when`: the calls for which a condition holds are in the trace, the others are counted as filtered."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.counts import Counts, read_counts
from tests.support.live import SHADOWGRAPH
from tests.support.manners import program, recorder, run

CALLS = {"main": 1, "twice": 107, "down": 21, "leaves": 10, "take_time": 6}
ALL = sum(CALLS.values())
OWN = [word for name in CALLS for word in ("-f", name)]


def recorded(tmp_path: Path, *options: str) -> Counts:
    trace = tmp_path / "t.sgt"
    path = program("conditions", "o1", "-pthread")
    ended = run([*recorder(*(options if "-f" in options else (*OWN, *options)), trace=trace), path])
    assert (ended.output, ended.errors, ended.status) == ("OK\n", "", 0)
    return read_counts(trace)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("i32(arg(0)) >= 90", {"twice": 17}),
        ("i32(result) == 20", {"twice": 1, "down": 1}),
        ("duration >= 25ms", {"main": 1, "take_time": 2}),
        ("depth == 0", {"main": 1, "twice": 7}),
        ("depth < 3", {"main": 1, "twice": 107, "down": 2, "leaves": 10, "take_time": 6}),
        ("depth > 3", {}),  # nothing is let in that it could be nested in
        ("depth > 15 and duration >= 0 or result == 77", {"down": 6}),  # main is 0, and the outermost down 1
        ("thread != pid", {"twice": 7}),
        ("i32(arg(0)) == 30 and duration > 25ms", {"take_time": 2}),
    ],
)
def test_calls_for_which_a_condition_holds_are_recorded_and_the_others_counted(
    predicate: str, expected: dict[str, int], tmp_path: Path
) -> None:
    counts = recorded(tmp_path, "--when", predicate)
    assert counts.calls == expected
    assert (counts.total, counts.missed, counts.dropped) == (ALL, 0, 0)


def test_calls_that_longjmp_leaves_have_no_result_and_a_duration(tmp_path: Path) -> None:
    counts = recorded(tmp_path, "-f", "leaves", "--when", "i32(result) >= 0")
    assert (counts.calls, counts.unwound.total(), counts.filtered) == ({"leaves": 5}, 0, 5)


def test_calls_that_longjmp_leaves_are_recorded_if_the_condition_needs_no_result(tmp_path: Path) -> None:
    counts = recorded(tmp_path, "-f", "leaves", "--when", "duration >= 0 and i32(arg(0)) % 2 == 1")
    assert counts.calls == {"leaves": 5}
    assert (counts.unwound, counts.filtered) == ({"leaves": 5}, 5)


def test_a_condition_holds_together_with_depth_and_minimal_time(tmp_path: Path) -> None:
    counts = recorded(tmp_path, "--when", "i32(arg(0)) == 30", "--min-time", "25ms", "--depth", "2")
    assert counts.calls == {"take_time": 2}
    assert counts.filtered == ALL - 2


def test_recursion_is_chosen_call_by_call(tmp_path: Path) -> None:
    counts = recorded(tmp_path, "-f", "down", "--when", "i32(result) % 4 == 0")
    assert counts.calls == {"down": 6}
    assert counts.filtered == 15


@pytest.mark.parametrize(
    ("predicate", "sentence", "mark"),
    [
        ("agr(0) == 1", "'agr' is not known; did you mean arg?", "^^^"),
        ("arg(0) = 1", "'=': equality is written ==", "       ^"),
    ],
)
def test_a_mistake_is_shown_with_a_mark_below_it_before_anything_runs(
    predicate: str, sentence: str, mark: str, tmp_path: Path
) -> None:
    trace = tmp_path / "t.sgt"
    ended = run([*recorder("--when", predicate, trace=trace), program("conditions", "o1", "-pthread")])
    assert (ended.output, ended.status) == ("", 2)
    assert ended.errors == f"shadowgraph: --when: {sentence}\n    {predicate}\n    {mark}\n"
    assert not trace.exists()


@pytest.mark.parametrize("command", ["count", "hist"])
def test_where_a_condition_holds_for_no_call_that_is_what_is_said(command: str) -> None:
    ended = run(
        [
            *SHADOWGRAPH,
            command,
            "-f",
            "down",
            "--when",
            "arg(0) == 99999",
            "--",
            program("conditions", "o1", "-pthread"),
        ]
    )
    assert "--when left out all calls of these" in ended.output
    assert "none of these was called" not in ended.output + ended.errors
    assert "21 calls left out by --when" in ended.errors
