"""Histograms and totals of floating-point values, against what Python says of the same numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shadowgraph import live
from shadowgraph.errors import UsageError
from shadowgraph.live import float_buckets
from shadowgraph.live.measured_value import measured_value
from tests.support.attached import Running
from tests.support.manners import program

FINE = 2.0**-128, 2.0**128  # where buckets are an eighth of their values
_BITS = st.integers(0, (1 << 64) - 1)
_ENDS = [
    sign * math.ldexp(part, power) for sign in (1, -1) for part in (1.0, 1.125, 1.875) for power in (-128, -1, 127)
]
_EDGES = [
    bits + step for value in _ENDS for (bits,) in [struct.unpack("<Q", struct.pack("<d", value))] for step in (-1, 0, 1)
]
_ODD = [0, 1 << 63, 1, 1 << 63 | 1, 0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 1, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with Running([program("live_floats", "o2")]) as process:
        yield process
        assert process.end("") == ["OK"]


def send(running: Running, bits: Sequence[int]) -> None:
    assert running.say("\n".join([str(len(bits)), *(f"{number:x}" for number in bits)])) == "done"


def doubles(bits: Sequence[int]) -> list[float]:
    return [struct.unpack("<d", struct.pack("<Q", number))[0] for number in bits]


def floats(bits: Sequence[int]) -> list[float]:
    """What the program calls its function of floats with: the upper half."""
    return [struct.unpack("<f", struct.pack("<I", number >> 32))[0] for number in bits]


def check_others(found: dict[str, float], values: list[float]) -> list[float]:
    """Hold against the values what is said of those that are no finite numbers; the others, in their order."""
    assert found["nan"] == sum(map(math.isnan, values))
    assert found["plus_infinity"] == values.count(math.inf)
    assert found["minus_infinity"] == values.count(-math.inf)
    finite = [value for value in values if math.isfinite(value)]
    assert found["count"] == len(finite)
    assert found["max"] == max(finite, default=0.0)
    return sorted(finite)


def check_sum(total: float, finite: list[float]) -> None:
    """A sum of doubles is off by no more than each addition rounds (or leaves them)."""
    sizes = sum(map(abs, finite))
    if sizes < 1e308:
        assert abs(total - math.fsum(finite)) <= len(finite) * (2.0**-52 * sizes + math.ulp(0.0))
    else:
        assert not finite or math.isnan(total) or abs(total) > 0 or total == 0


def check(histogram: live.Histogram, label: str, values: list[float]) -> None:
    """All that the histogram says, held against the values."""
    summary, found = histogram.percentiles(label), histogram.buckets(label)
    finite = check_others(summary, values)
    assert sum(count for *_, count in found) == len(finite)
    for low, high, count in found:
        assert count == sum(low <= value < high for value in finite)
        least = min(abs(low), abs(high))
        if FINE[0] <= least and max(abs(low), abs(high)) < FINE[1]:
            assert high - low <= least / 8
    assert [high for _, high, _ in found[:-1]] <= [low for low, _, _ in found[1:]]
    for most in (4, 16):
        steps = histogram.spread(label, most)
        assert sum(count for *_, count in steps) == len(finite)
        assert all(count == sum(low <= value < high for value in finite) for low, high, count in steps)
    if not finite:
        return
    if math.isfinite(summary["mean"]):
        check_sum(summary["mean"] * len(finite), finite)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        true = finite[max(math.ceil(share * len(finite)) - 1, 0)]
        if true == 0 or FINE[0] * 1.125 < abs(true) <= FINE[1] / 2:
            assert abs(summary[name] - true) <= abs(true) / 8, name
        assert summary[name] <= summary["max"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(_BITS, st.sampled_from([*_EDGES, *_ODD])), max_size=60))
@example(bits=[*_EDGES, *_ODD])
@example(bits=[])
@example(bits=[0, 0xB7F2000000000000])  # the last of the bucket next to zero
def test_all_kinds_of_numbers_are_in_the_right_buckets(running: Running, bits: list[int]) -> None:
    sources = {
        "fresult": ("of_double", doubles),
        "f64(farg(0))": ("of_double", doubles),
        "farg(1)": ("of_double", lambda bits: [2.5] * len(bits)),
        "f32(fresult)": ("of_float", floats),
        "f32(farg(0))": ("of_float", floats),
    }
    with live.attach(running.pid) as target:
        made = {value: target.register(live.Histogram([name], value=value)) for value, (name, _) in sources.items()}
        sums = {value: target.register(live.Totals([name], value=value)) for value, (name, _) in sources.items()}
        send(running, bits)
    for value, (name, values_of) in sources.items():
        label, values = f"live_floats!{name}", values_of(bits)
        check(made[value], label, values)
        totals = sums[value].totals()[label]
        check_sum(totals["total"], check_others(totals, values))
        assert made[value].missed == sums[value].missed == 0


def test_a_condition_may_leave_numbers_out_and_an_argument_waits_for_it(running: Running) -> None:
    values = [0.5, 2.5, -7.25, 1e300, math.inf, math.nan]
    with live.attach(running.pid) as target:
        one = target.register(live.Histogram(["of_double"], value="farg(0)", when="fresult > 1"))
        send(running, [struct.unpack("<Q", struct.pack("<d", value))[0] for value in values])
    check(one, "live_floats!of_double", [2.5, 1e300, math.inf])
    assert one.filtered == 3


@given(st.lists(st.lists(st.floats(), max_size=20), min_size=2, max_size=3))
def test_threads_and_functions_of_one_name_are_added_up(parts: list[list[float]]) -> None:
    rows = [_row(part) for part in parts]
    whole = rows[0]
    for row in rows[1:]:
        whole = float_buckets.joined(whole, row)
    together = _row([value for part in parts for value in part])
    finite = [value for part in parts for value in part if math.isfinite(value)]
    assert float_buckets.used(whole) == float_buckets.used(together)
    assert float_buckets.others(whole) == float_buckets.others(together)
    assert float_buckets.largest(whole) == max(finite, default=0.0)
    check_sum(float_buckets.total(whole), finite)


def _row(values: list[float]) -> np.ndarray:  # type: ignore[type-arg]
    """The cells of some values, put there one by one: which bucket is looked for from the lowest on."""
    from shadowgraph.agent import layout

    row = np.zeros(layout.FLOAT_HISTOGRAM_CELLS, np.uint64)
    total = 0.0
    for value in values:
        if math.isnan(value):
            row[layout.CELL_NAN] += np.uint64(1)
        elif math.isinf(value):
            row[layout.CELL_INFINITY if value > 0 else layout.CELL_MINUS_INFINITY] += np.uint64(1)
        else:
            total += value
            bits = struct.unpack("<Q", struct.pack("<d", value or 0.0))[0]
            order = ~bits & ((1 << 64) - 1) if bits >> 63 else bits | 1 << 63
            row[layout.CELL_MAXIMUM] = max(int(row[layout.CELL_MAXIMUM]), order)
            row[layout.CELL_COUNT] += np.uint64(1)
            row[_cell(value)] += np.uint64(1)
    row[layout.CELL_SUM : layout.CELL_SUM + 1] = np.array([total]).view(np.uint64)
    return row


def _cell(value: float) -> int:
    from shadowgraph.agent import layout

    if value == 0:
        return layout.CELL_ZEROS
    fraction, power = math.frexp(abs(value))
    part = (fraction * 2 - 1) * 8
    whole = math.ceil(part) - 1 if value < 0 else math.floor(part)
    at = min(max((power - 1 + 128) * 8 + whole, 0), layout.FLOAT_BUCKETS - 1)
    return layout.PAGE_CELLS + at + (layout.FLOAT_BUCKETS if value < 0 else 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("farg(8)", r"floating-point arguments are farg\(0\) to farg\(7\)"),
        *((text, r"is for fresult and farg\(n\)") for text in ("f32(result)", "f64(arg(0))")),
        *((text, r"is for result and arg\(n\)") for text in ("i32(fresult)", "u8(farg(0))")),
        *((text, r"is no value of a call; try .* fresult or farg\(0\)") for text in ("f16(fresult)", "farg")),
    ],
)
def test_what_is_no_such_value_is_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        measured_value(text)
