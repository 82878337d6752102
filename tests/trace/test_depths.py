"""Depths of a recording beside other users: those of its own calls, whatever others have had called in between."""

from __future__ import annotations

from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.trace import convert as conversion
from shadowgraph.trace import sorting
from tests.support.synthetic import Call, Recording, simulate_calls


def nested(calls: list[Call]) -> list[Call]:
    """The calls with the depths that brackets have, found by going through all that are open: the oracle."""
    found: list[Call] = []
    for call in calls:
        around = [outer for outer in found if outer.start <= call.start and call.end <= outer.end]
        found.append(call._replace(depth=len(around)))
    return found


def depths_of(recording: Recording, folder: Path, thread: int) -> list[int]:
    recording.write(folder)
    conversion.convert(folder)
    rows = shadowgraph.open(folder).calls.to_pylist()
    return [row["depth"] for row in rows if row["thread"] == thread]


@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_gaps_that_calls_of_others_leave_are_closed(
    tmp_path: Path, seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting.ThreadSorter.__init__, "__defaults__", (block,))
    own = {
        thread: [call for call in simulate_calls(10 * seed + thread, 300) if call.function % 3 != 0]
        for thread in (1, 2)
    }
    assert any(nested(calls) != calls for calls in own.values()), "there are gaps"
    recording = Recording(own, metadata={"beside_others": True})
    recording.write(tmp_path / "a.sgt", segment_records=37)
    conversion.convert(tmp_path / "a.sgt")
    rows = shadowgraph.open(tmp_path / "a.sgt").calls.to_pylist()
    for thread, calls in own.items():
        assert [row["depth"] for row in rows if row["thread"] == thread] == [call.depth for call in nested(calls)]


def test_a_recorder_alone_has_the_depths_that_the_agent_has_written(tmp_path: Path) -> None:
    calls = [call for call in simulate_calls(1, 300) if call.function % 3 != 0]
    assert depths_of(Recording({1: calls}), tmp_path / "a.sgt", 1) == [call.depth for call in calls]


def test_calls_of_two_stacks_keep_their_own_callers(tmp_path: Path) -> None:
    # The call of a coroutine (function 2) is in flight while its thread does other things, and resumed in between.
    calls = [Call(10, 0, 1000, 1), Call(20, 4, 900, 2), Call(100, 1, 50, 3), Call(110, 2, 10, 4), Call(200, 6, 20, 5)]
    recording = Recording({1: calls}, metadata={"beside_others": True})
    assert depths_of(recording, tmp_path / "a.sgt", 1) == [0, 1, 1, 2, 2]
