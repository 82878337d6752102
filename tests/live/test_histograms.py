"""Histograms of values that a program is told to call with, against numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.live import buckets
from tests.support.attached import Running
from tests.support.manners import program

LABEL = "live_values!gives_back"
_ONE = np.int64(1)


def small(random: np.random.Generator) -> npt.NDArray[np.int64]:
    return random.integers(0, 40, 3000)


def wide(random: np.random.Generator) -> npt.NDArray[np.int64]:
    return random.integers(0, 1 << 62, 2000) >> random.integers(0, 62, 2000)


def negative(random: np.random.Generator) -> npt.NDArray[np.int64]:
    return -wide(random) - 1


def both(random: np.random.Generator) -> npt.NDArray[np.int64]:
    return np.concatenate([wide(random), negative(random)])


def huge(random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Sums that leave 64 bits far behind."""
    return (1 << 63) - 1 - random.integers(0, 1 << 60, 500)


def edges(random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Where buckets begin and end."""
    powers = np.array([1 << power for power in range(63)], np.int64)
    parts = np.concatenate([powers + part * (powers >> 3) for part in range(8)])
    around = np.concatenate([parts - 1, parts, parts + 1])
    ends = np.array([0, -1, (1 << 63) - 1, -(1 << 63)], np.int64)
    return np.concatenate([around, -around, ends])


SOURCES = [small, wide, negative, both, huge, edges]


@pytest.mark.parametrize("value", ["arg(0)", "result"])
@pytest.mark.parametrize("source", SOURCES)
def test_values_are_counted_in_the_right_buckets(source, value: str) -> None:  # type: ignore[no-untyped-def]
    values = source(np.random.default_rng(7))
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        histogram = target.register(live.Histogram(["gives_back"], value=value))
        assert running.process.stdin is not None
        running.process.stdin.write("".join(f"{number}\n" for number in values.tolist()))
        assert running.end("") == [f"gives_back {len(values)}", "OK"]
    check(histogram, values)


def check(histogram: live.Histogram, values: npt.NDArray[np.int64]) -> None:
    """All that the histogram says, held against the values."""
    exact = sorted(values.tolist())
    for low, high, count in histogram.buckets(LABEL):
        assert count == sum(low <= number < high for number in exact)
        size = min(abs(low), abs(high - 1))
        assert high - low <= max(1, size / 8), "no bucket is wider than an eighth of its values"
    summary = histogram.percentiles(LABEL)
    assert summary["count"] == len(exact) == sum(count for *_, count in histogram.buckets(LABEL))
    assert summary["mean"] == sum(exact) / len(exact)
    if exact[-1] >= 0:
        assert summary["max"] == exact[-1]
    else:
        assert exact[-1] <= summary["max"] <= exact[-1] * 7 // 8
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        true = exact[max(int(np.ceil(share * len(exact))) - 1, 0)]
        assert abs(summary[name] - true) <= max(1, abs(true) / 8), name


def test_a_spread_has_no_gaps_and_all_values() -> None:
    row = np.zeros(2 * layout.HISTOGRAM_CELLS, np.uint64)
    half = layout.HISTOGRAM_CELLS
    row[[layout.CELL_BUCKETS + 3, layout.CELL_BUCKETS + 60, half + layout.CELL_BUCKETS + 20]] = 5, 7, 11
    for most in (4, 16, 60, 1000):
        steps = buckets.spread(row, most)
        assert sum(count for *_, count in steps) == 23
        assert [high for _, high, _ in steps[:-1]] == [low for low, _, _ in steps[1:]]
        assert len(steps) <= max(most, 2 + 60 // 8 + 20 // 8)


def test_durations_are_those_of_the_calls() -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        histogram = target.register(live.Histogram(["gives_back"]))
        totals = target.register(live.Totals(["gives_back"]))
        assert running.process.stdin is not None
        running.process.stdin.write("1\n" * 500)
        assert running.end("") == ["gives_back 500", "OK"]
    summary, sums = histogram.percentiles(LABEL), totals.totals()[LABEL]
    assert summary["count"] == sums["count"] == 500
    assert 0 < summary["p50"] <= summary["p90"] <= summary["p99"] <= summary["max"] < 1e9
    assert sums["total"] / 500 == pytest.approx(summary["mean"], rel=0.5)
