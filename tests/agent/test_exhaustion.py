"""Out of frames, table entries, room in the rings: the result is right, and every call is accounted for."""

from __future__ import annotations

from typing import Any

import pytest

from shadowgraph.agent import layout
from tests.support.counts import Counts
from tests.support.manners import program, run
from tests.support.small_recorder import record_small

FUNCTIONS = ["leaf", "deep", "tail_*", "throws", "catches", "jumps", "lands", "on_signal", "raises", "held"]
FAR = 1 << 40  # ticks: longer than any call here
BLOCK, DROP, OVERWRITE = layout.POLICY_BLOCK, layout.POLICY_DROP, layout.POLICY_OVERWRITE


def recorded(work: str, **settings: Any) -> tuple[int, Counts]:
    """How many calls the program made, and what the trace says, for a result that is the same without a recorder."""
    command = [program("exhaustion", "o2"), *work.split()]
    plain, (ended, counts) = run(command), record_small(command, rules=FUNCTIONS, **settings)
    assert (ended.output, ended.errors, ended.status) == (plain.output, "", 0)
    return int(ended.output.split()[0].removeprefix("calls=")), counts


# Manner, threads, rounds, depth.
EVERY_MANNER = ["leaves 2 3000 0", "deep 2 30 100", "tails 2 1000 0", "throws 2 100 30", "jumps 2 100 30"]
EVERY_MANNER += ["handlers 2 1000 0", "held 4 500 0", "short 30 100 0"]


@pytest.mark.parametrize("work", EVERY_MANNER)
def test_with_room_for_all_every_call_is_recorded(work: str) -> None:
    calls, counts = recorded(work)
    assert counts.calls.total() == calls
    assert counts.missed == counts.dropped == counts.filtered == counts.open.total() == 0
    assert not counts.tail  # that kind is for chains that are too long


# --- frames (R13) ---


def test_a_recursion_a_million_deep_with_a_small_pool_is_right_and_each_call_is_recorded_or_missed() -> None:
    calls, counts = recorded("deep 1 1 1000000", frame_limit=1024)
    assert calls == 1000001
    assert counts.calls.total() + counts.missed == calls
    assert 900 < counts.calls["deep"] <= 1024
    assert counts.dropped == counts.filtered == 0


def test_tracing_resumes_when_there_is_room_again() -> None:
    rounds = 50
    calls, counts = recorded(f"deep 1 {rounds} 1000", frame_limit=64)
    assert counts.calls.total() + counts.missed == calls
    assert counts.calls["deep"] == counts.calls["deep"] // rounds * rounds > 0  # as many in each round


@pytest.mark.parametrize(
    "work",
    ["deep 4 3 10000", "throws 2 50 500", "jumps 2 50 500", "handlers 2 1000 0", "held 30 20 0", "tails 3 500 0"],
)
@pytest.mark.parametrize("pool", [{"frame_limit": 96}, {"chunks": 3}, {"frame_limit": 32}])
def test_with_too_few_frames_each_call_is_recorded_or_missed(work: str, pool: dict[str, int]) -> None:
    calls, counts = recorded(work, **pool)
    assert counts.calls.total() + counts.missed == calls
    assert counts.dropped == counts.filtered == counts.open.total() == 0


# --- the table of threads ---


@pytest.mark.parametrize("work", ["held 30 100 0", "leaves 30 100 0", "short 300 100 0"])
@pytest.mark.parametrize("policy", [BLOCK, DROP])
def test_with_too_few_entries_for_threads_calls_of_the_others_are_missed(work: str, policy: int) -> None:
    calls, counts = recorded(work, threads=8, policy=policy)
    assert counts.total == calls
    assert counts.calls.total() >= 8 * 100


def test_entries_of_threads_that_have_ended_are_used_again() -> None:
    calls, counts = recorded("short 2000 10 0", threads=64)
    assert counts.calls.total() + counts.missed == calls
    assert counts.threads > 64


# --- depth and time ---


@pytest.mark.parametrize("work", EVERY_MANNER)
@pytest.mark.parametrize("depth", [1, 3])
def test_calls_cut_by_depth_are_counted(work: str, depth: int) -> None:
    calls, counts = recorded(work, depth_limit=depth)
    assert counts.calls.total() + counts.filtered == calls
    assert counts.missed == counts.dropped == 0


@pytest.mark.parametrize("work", EVERY_MANNER)
@pytest.mark.parametrize("ticks", [3000, FAR])
def test_calls_cut_by_their_time_are_counted(work: str, ticks: int) -> None:
    calls, counts = recorded(work, minimal_ticks=ticks)
    assert counts.calls.total() + counts.filtered == calls
    assert counts.missed == counts.dropped == 0
    if ticks == FAR:
        assert counts.calls == counts.unwound  # how long those took is known when they are noticed


def test_depth_frames_and_time_may_all_be_short() -> None:
    calls, counts = recorded("deep 2 20 500", depth_limit=100, frame_limit=224, minimal_ticks=1000)
    assert counts.total == calls
    assert counts.filtered > 0


# --- rings ---

SMALL_RINGS = [{"segments": 4, "segment_size": 4096}, {"segments": 16, "segment_size": 4096}]


@pytest.mark.parametrize("work", ["leaves 1 50000 0", "leaves 4 20000 0", *EVERY_MANNER[1:6], "handlers 4 5000 0"])
@pytest.mark.parametrize("rings", SMALL_RINGS, ids=["4", "16"])
def test_blocking_loses_nothing(work: str, rings: dict[str, int]) -> None:
    calls, counts = recorded(work, policy=BLOCK, **rings)
    assert counts.calls.total() == calls
    assert counts.missed == counts.dropped == 0


@pytest.mark.parametrize("work", ["leaves 1 50000 0", "leaves 4 20000 0", *EVERY_MANNER[1:6], "handlers 4 5000 0"])
@pytest.mark.parametrize("rings", SMALL_RINGS, ids=["4", "16"])
@pytest.mark.parametrize("policy", [DROP, OVERWRITE])
def test_what_is_dropped_or_overwritten_is_counted_exactly(work: str, rings: dict[str, int], policy: int) -> None:
    calls, counts = recorded(work, policy=policy, **rings)
    assert counts.calls.total() + counts.dropped == calls
    assert counts.missed == counts.filtered == 0


@pytest.mark.parametrize("policy", [DROP, OVERWRITE])
def test_losses_of_every_kind_add_up(policy: int) -> None:
    # Whoever comes first: two threads find no slot. The other four have a block of 32 frames each and two blocks to
    # share, so that two of them reach the depth of 40, and two have no frame for it.
    calls, counts = recorded(
        "throws 6 300 80", policy=policy, threads=4, frame_limit=192, depth_limit=40, segments=4, segment_size=1024
    )
    assert counts.total == calls
    assert min(counts.missed, counts.dropped, counts.filtered) > 0


def test_overwriting_keeps_the_newest_calls_of_a_thread() -> None:
    calls, counts = recorded("deep 1 2000 1", policy=OVERWRITE, segments=4, segment_size=1024)
    assert counts.dropped == calls - counts.calls.total() > 0
    assert counts.calls["deep"] in (counts.calls["leaf"], counts.calls["leaf"] + 1)  # an end of the sequence, unbroken
