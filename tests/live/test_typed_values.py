"""Histograms and totals of values of narrow types, and of arguments on the stack, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shadowgraph import live
from shadowgraph.errors import UsageError
from shadowgraph.live.measured_value import measured_value
from tests.support.attached import Running
from tests.support.manners import program

_TYPES = [f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)]
_FLIPPED = np.int64(0x5A5A << 48)


def numbers() -> Any:
    """All kinds of sizes, signs, and garbage above the low bits."""
    random = np.random.default_rng(11)
    sizes = random.integers(0, 63, 600)
    ends = [0, -1, 1, 127, 128, 255, 32768, 65535, 1 << 31, (1 << 32) - 1, -(1 << 63), (1 << 63) - 1, 1 << 62]
    return np.concatenate([random.integers(-(1 << 63), (1 << 63) - 1, 600) >> sizes, np.array(ends, np.int64)])


def check(histogram: live.Histogram, function: str, expected: list[int]) -> None:
    """All that it says of a function, held against the values."""
    label = f"live_typed!{function}"
    found = histogram.buckets(label)
    exact = sorted(expected)
    assert sum(count for *_, count in found) == len(exact)
    for low, high, count in found:
        assert count == sum(low <= number < high for number in exact)
    summary = histogram.percentiles(label)
    assert summary["count"] == len(exact)
    mean = sum(exact) / len(exact)
    # The sum is kept in 64 bits; how often it has left them is guessed from buckets, which u64 makes too wide for that.
    assert summary["mean"] == (pytest.approx(mean, rel=1 / 16) if exact[-1] > 1 << 63 else mean)
    assert summary["max"] == exact[-1]


@pytest.mark.parametrize("when", [None, "duration >= 0"])
@pytest.mark.parametrize("source", ["arg(0)", "result"])
def test_of_a_narrow_type_the_upper_bits_do_not_count(source: str, when: str | None) -> None:
    values = numbers()
    seen = values if source == "arg(0)" else values ^ _FLIPPED
    with Running([program("live_typed")]) as running, live.attach(running.pid) as target:
        made = {kind: live.Histogram(["narrow"], value=f"{kind}({source})", when=when) for kind in _TYPES}
        sums = {kind: live.Totals(["narrow"], value=f"{kind}({source})", when=when) for kind in _TYPES}
        for user in [*made.values(), *sums.values()]:
            target.register(user)
        assert running.process.stdin is not None
        running.process.stdin.write("".join(f"{number}\n" for number in values.tolist()))
        assert running.end("") == [f"typed {len(values)}", "OK"]
    for kind in _TYPES:
        # seen.astype() wraps as a cast in C does.
        exact = seen.astype(np.dtype(f"{kind[0]}{int(kind[1:]) // 8}")).tolist()
        check(made[kind], "narrow", exact)
        totals = sums[kind].totals()["live_typed!narrow"]
        assert (totals["count"], totals["max"]) == (len(exact), max(exact))
        if kind not in ("i64", "u64"):  # whose sums may not fit into 64 bits
            assert totals["total"] == sum(exact)


@pytest.mark.parametrize("when", [None, "duration >= 0"])
def test_arguments_on_the_stack(when: str | None) -> None:
    values = numbers()
    with Running([program("live_typed")]) as running, live.attach(running.pid) as target:
        made = {text: live.Histogram(["many"], value=text, when=when) for text in ("arg(5)", "arg(6)", "u8(arg(7))")}
        far = live.Histogram(["many"], value="arg(63)", when=when)  # above what main has: the environment, or nothing
        for user in [*made.values(), far]:
            target.register(user)
        assert running.process.stdin is not None
        running.process.stdin.write("".join(f"{number}\n" for number in values.tolist()))
        assert running.end("") == [f"typed {len(values)}", "OK"]
    check(made["arg(5)"], "many", [6] * len(values))
    check(made["arg(6)"], "many", values.tolist())
    check(made["u8(arg(7))"], "many", values.astype(np.uint8).tolist())
    assert far.percentiles("live_typed!many")["count"] + far.missed == len(values)


@pytest.mark.parametrize("text", ["i32( result )", " u8(arg( 1 ))", "result", "arg(63)", "i64(arg(0))", "duration"])
def test_a_value_is_written_as_predicates_write_it(text: str) -> None:
    assert measured_value(text).code >= 0


TRY = "is no value of a call; try duration, result, arg(0), i32(result), u8(arg(1)), fresult or farg(0)"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((text, f"{text}: {TRY}") for text in ("bogus", "arg(-1)", "arg", "i7(result)", "i32(i8(result))", "f32()")),
        ("", f"'': {TRY}"),
        (" ", f"' ': {TRY}"),
        ("time", "time: is no value of a call; write duration"),
        ("retval", "retval: is no value of a call; write result"),
        ("arg0", "arg0: is no value of a call; write arg(0)"),
        ("i32(arg1)", "i32(arg1): is no value of a call; write i32(arg(1))"),
        ("ARG[2]", "ARG[2]: is no value of a call; write arg(2)"),
        ("f32(farg1)", "f32(farg1): is no value of a call; write f32(farg(1))"),
        ("arg(64)", "arg(64): whole-number arguments are arg(0) to arg(63)"),
        ("farg(8)", "farg(8): floating-point arguments are farg(0) to farg(7)"),
        ("i32(duration)", "i32(duration): i32() is for result and arg(n)"),
        ("u8(fresult)", "u8(fresult): u8() is for result and arg(n)"),
        ("u8(farg1)", "u8(farg1): u8() is for result and arg(n)"),
        ("f32(result)", "f32(result): f32() is for fresult and farg(n)"),
        ("f64(arg1)", "f64(arg1): f64() is for fresult and farg(n)"),
        ("f32(duration)", "f32(duration): f32() is for fresult and farg(n)"),
    ],
)
def test_of_a_value_that_no_call_has_it_is_said_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        measured_value(text)
    assert str(error.value) == sentence
