"""A profile says what its slow twin says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shadowgraph
from shadowgraph.agent import layout
from shadowgraph.analysis.profile import Profile, profile
from shadowgraph.trace.convert import convert
from tests.support import slow
from tests.support.synthetic import Call, Recording, simulate_calls


def profiled(recording: Recording, folder: Path, by: str = "function") -> Profile:
    recording.write(folder)
    convert(folder)
    with shadowgraph.open(folder) as trace:
        return profile(trace, by)


def check(result: Profile, expected: dict[int, slow.SlowRow]) -> None:
    assert {row.key for row in result.rows} == {key for key, row in expected.items() if row.durations}
    for row in result.rows:
        twin = expected[row.key]
        assert row.calls == len(twin.durations)
        assert row.total_ns == twin.total
        assert row.self_ns == twin.self
        assert row.mean_ns == sum(twin.durations) / len(twin.durations)
        assert (row.min_ns, row.max_ns) == (min(twin.durations), max(twin.durations))
        assert (row.open, row.unwound) == (twin.open, twin.unwound)
        for share, value in ((0.5, row.p50_ns), (0.95, row.p95_ns), (0.99, row.p99_ns)):
            exact = slow.quantile(twin.durations, share)
            limit = 0 if row.calls <= 32 else exact / 256
            assert abs(value - exact) <= limit


@pytest.mark.parametrize("seed", range(6))
def test_nested_and_recursive_calls(tmp_path: Path, seed: int) -> None:
    threads = {n: simulate_calls(seed * 7 + n, 400, functions=3 + seed, root=n > 0) for n in range(3)}
    check(profiled(Recording(dict(threads)), tmp_path / "a.sgt"), slow.profile(dict(threads)))


def test_recursion_does_not_count_time_twice(tmp_path: Path) -> None:
    calls = [Call(depth * 10, depth, 1000 - 20 * depth, 1) for depth in range(10)]
    (row,) = profiled(Recording({0: calls}), tmp_path / "a.sgt").rows
    assert (row.calls, row.total_ns, row.self_ns) == (10, 1000, 1000)


def test_recursion_far_deeper_than_a_record_can_say(tmp_path: Path) -> None:
    count = 70_000
    calls = [Call(10 * n, min(n, 65535), 20 * (count - n), 1 + n % 2) for n in range(count)]
    rows = profiled(Recording({0: calls}), tmp_path / "a.sgt").rows
    assert sum(row.self_ns for row in rows) == calls[0].duration
    assert all(row.self_ns > 0 for row in rows)


def test_coroutines_and_unwound_calls_do_not_disturb_what_goes_on_beside_them(tmp_path: Path) -> None:
    body = Call(15, 2, 500, 3)  # a coroutine's frame, in flight while main does other things
    beside = [Call(100, 1, 50, 4), Call(110, 2, 10, 5), Call(200, 1, 50, 2), Call(210, 3, 20, 6)]
    left = Call(300, 1, 400, 7, layout.KIND_UNWOUND)  # left by longjmp, noticed late
    after = [Call(320, 1, 30, 8), Call(325, 2, 5, 9)]
    calls = sorted([Call(10, 0, 700, 1), Call(12, 1, 30, 2), body, *beside, left, *after])
    result = profiled(Recording({0: calls}), tmp_path / "a.sgt")
    check(result, slow.profile({0: calls}))
    rows = {row.key: row for row in result.rows}
    assert rows[4].self_ns == 40
    assert rows[8].self_ns == 25
    assert rows[3].self_ns == 480  # 6 was called from within the coroutine, 5 was not
    assert rows[7].unwound == 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 6), st.integers(0, 40), st.integers(1, 4)), min_size=1, max_size=40
    )
)
def test_any_calls_whatever(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int, int]]) -> None:
    unique = {(start, depth): Call(start, depth, duration, function) for start, depth, duration, function in rows}
    calls = sorted(unique.values())
    folder = tmp_path_factory.mktemp("any") / "a.sgt"
    check(profiled(Recording({0: calls}), folder), slow.profile({0: calls}))


def test_by_module_thread_and_process(tmp_path: Path) -> None:
    threads = {n: simulate_calls(n, 200, functions=6) for n in range(4)}
    modules = {1: "app", 2: "app", 3: "liba.so", 4: "liba.so", 5: "libb.so", 6: "libb.so"}
    processes = {2: 1, 3: 1}
    recording = Recording(dict(threads), modules=modules, processes=processes)
    by_module = profiled(recording, tmp_path / "a.sgt", "module")
    assert by_module.names[:3] == ["app", "liba.so", "libb.so"]
    key_of = {function: by_module.names.index(name) for function, name in modules.items()}
    check(by_module, slow.profile(dict(threads), key_of))
    with shadowgraph.open(tmp_path / "a.sgt") as trace:
        by_thread, by_process = profile(trace, "thread"), profile(trace, "process")
    everything = dict.fromkeys(range(1, 7), 0)
    for row in by_thread.rows:
        check(Profile("thread", [row], []), {row.key: slow.profile({0: threads[row.key]}, everything)[0]})
    for row in by_process.rows:
        own = {n: calls for n, calls in threads.items() if processes.get(n, 0) == row.key}
        check(Profile("process", [row], []), {row.key: slow.profile(dict(own), everything)[0]})


def test_quantiles_are_within_their_bound_over_all_magnitudes(tmp_path: Path) -> None:
    random_ = random.Random(1)
    calls, now = [], 0
    for n in range(3000):
        duration = int(2 ** random_.uniform(0, 36))
        calls.append(Call(now, 0, duration, 1 + n % 3))
        now += duration + 1
    check(profiled(Recording({0: calls}), tmp_path / "a.sgt"), slow.profile({0: calls}))
