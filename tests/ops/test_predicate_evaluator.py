"""What the native evaluator of predicates does at the edges, and with programs that no compiler made."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowgraph.agent import layout
from shadowgraph.ops.predicates import compile_predicate
from tests.support.native import ROOT
from tests.support.predicates import (
    PAGE,
    Call,
    Memory,
    build_harness,
    decide,
    decide_at_entry,
    decide_at_exit,
)


def says(text: str, call: Call, ticks_per_second: float = 1e9) -> bool:
    return decide(compile_predicate(text, ticks_per_second), call)


def bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


# --- what is decided when ---


@pytest.mark.parametrize(
    "text",
    [
        "arg(0) == 1 and depth < 3",
        "thread == 1 or pid == 1",
        "farg(0) == 0.0",
        'str(arg(0)) == "x"',
        "not mem8(arg(0)) == 1",
        "1",
    ],
)
def test_what_is_known_at_the_entry_needs_no_exit(text: str) -> None:
    predicate = compile_predicate(text, 1e9)
    assert not predicate.needs_exit
    assert (predicate.exit_code, predicate.saved_words) == (b"", 0)


@pytest.mark.parametrize(
    ("text", "words", "time", "result"),
    [
        ("arg(0) == 1 and result < 0", 0, False, True),
        ("result < 0 or arg(0) == 1", 2, False, True),
        ("result < 0 or arg(0) == 1 or arg(1) == 2", 2, False, True),
        ("arg(0) == 1 or result < 0 or arg(1) == 2", 3, False, True),
        ("result < arg(2)", 2, False, True),
        ("result - arg(2) * 4 + 1 < arg(2) * 4", 2, False, True),
        ("duration > 10us", 0, True, False),
        ("duration // 10 > 5", 0, True, False),
        ("fresult > 1.0 and duration > arg(0)", 2, True, True),
        ("f64(fresult) > 1.0 and duration > arg(0)", 2, True, True),
        ('after(str(arg(0)) == "x")', 2, False, False),
        ("not (result > 0 and depth > 1)", 2, False, True),
        ("result_high == 1", 0, False, True),
    ],
)
def test_what_the_exit_needs_is_known(text: str, words: int, time: bool, result: bool) -> None:
    predicate = compile_predicate(text, 1e9)
    assert predicate.needs_exit
    assert (predicate.saved_words, predicate.needs_time, predicate.needs_result) == (words, time, result)


def test_the_entry_decides_what_it_can() -> None:
    predicate = compile_predicate("arg(0) == 1 and result < 0 and (depth < 5 and arg(1) > result)", 1e9)
    assert decide_at_entry(predicate, Call(integers=[1, 7, 0, 0, 0, 0], depth=4))
    assert not decide_at_entry(predicate, Call(integers=[2, 7, 0, 0, 0, 0], depth=4))
    assert not decide_at_entry(predicate, Call(integers=[1, 7, 0, 0, 0, 0], depth=5))


def test_a_predicate_of_the_exit_alone_has_nothing_to_do_at_the_entry() -> None:
    assert compile_predicate("result < 0 and duration > 1us", 1e9).always_enters
    assert not compile_predicate("result < arg(0)", 1e9).always_enters


def test_arguments_are_those_of_the_entry() -> None:
    predicate = compile_predicate("result == arg(0) + arg(6)", 1e9)
    call = Call(integers=[40, 0, 0, 0, 0, 0], stack=[2, 0, 0], result=42)
    assert decide_at_entry(predicate, call)
    call.integers, call.stack = [0] * 6, [0] * 3
    assert decide_at_exit(predicate, call)


def test_memory_is_read_at_the_entry_and_after_the_call_where_that_is_asked_for() -> None:
    memory = Memory()
    call = Call(integers=[memory.base, 0, 0, 0, 0, 0], result=1)
    before, after = (compile_predicate(f"result == 1 and {part} + result == 6", 1e9) for part in
                     ("mem8(arg(0))", "after(mem8(arg(0)))"))  # fmt: skip
    for predicate, value_before, value_after, expected in (
        (before, 5, 9, True),
        (before, 9, 5, False),
        (after, 5, 9, False),
        (after, 9, 5, True),
    ):
        memory.write(memory.base, bytes([value_before]))
        assert decide_at_entry(predicate, call)
        memory.write(memory.base, bytes([value_after]))
        assert decide_at_exit(predicate, call) == expected


def test_what_could_not_be_computed_at_the_entry_counts_only_if_the_exit_asks_for_it() -> None:
    predicate = compile_predicate("result == 1 or mem8(arg(0)) == 1 or result == 2", 1e9)
    assert [decide(predicate, Call(result=result)) for result in (1, 2, 3)] == [True, False, False]
    predicate = compile_predicate("result == 1 or 7 // arg(0) == result", 1e9)
    assert [decide(predicate, Call(result=result)) for result in (1, 7)] == [True, False]
    assert decide(predicate, Call(integers=[1] * 6, result=7))


@pytest.mark.parametrize(
    "text", ["result == 0", "result_high == 0", "not result == 1", "fresult == 0.0", "result >= 0"]
)
def test_a_call_that_did_not_return_has_no_result(text: str) -> None:
    assert says(text, Call())
    assert not says(text, Call(returned=False))


def test_a_call_that_did_not_return_has_a_duration() -> None:
    assert says("duration == 5 or result == 0", Call(returned=False, ticks=5))


# --- numbers ---


@pytest.mark.parametrize(
    ("text", "left", "right", "expected"),
    [
        ("arg(0) + arg(1) == -9223372036854775808", 2**63 - 1, 1, True),
        ("arg(0) * arg(1) == -2", 2**63 - 1, 2, True),
        ("arg(0) // arg(1) == arg(0)", -(2**63), -1, True),
        ("arg(0) % arg(1) == 0", -(2**63), -1, True),
        ("arg(0) // arg(1) == -4", -7, 2, True),
        ("arg(0) % arg(1) == 1", -7, 2, True),
        ("arg(0) % arg(1) == -1", 7, -2, True),
        ("arg(0) // arg(1) == 0 or 1", 5, 0, False),
        ("not arg(0) % arg(1) == 0", 5, 0, False),
        ("u64(arg(0)) // arg(1) == 0x7fffffffffffffff", -1, 2, True),
        ("arg(0) < u64(arg(1))", -1, -1, True),
        ("u64(arg(0)) == arg(1)", -1, -1, False),
        ("u64(arg(0)) == u64(arg(1))", -1, -1, True),
        ("u64(arg(0)) == 0xffffffffffffffff", -1, 0, True),
        ("u64(arg(0)) > 9223372036854775807", -1, 0, True),
        ("arg(0) << arg(1) == 0", 1, 64, True),
        ("arg(0) >> arg(1) == -1", -1, 200, True),
        ("u64(arg(0)) >> arg(1) == 0", -1, 64, True),
        ("arg(0) << arg(1) == 0 or 1", 1, -1, False),
        ("i32(arg(0)) == -1", 0xFFFFFFFF, 0, True),
        ("arg(0) == -1", 0xFFFFFFFF, 0, False),
        ("i8(arg(0)) == -128 and u8(arg(0)) == 128", 0x1280, 0, True),
        ("i16(arg(0)) == -1 and u16(arg(0)) == 65535", 0xFFFF, 0, True),
        ("u32(arg(0)) == 0xffffffff", -1, 0, True),
        ("~arg(0) == 0 and -arg(0) == 1", -1, 0, True),
        ("arg(0) == 'A' and arg(0) == '\\x41' and arg(0) in ('a', \"A\")", 65, 0, True),
        ("arg(0) == 1_000 and arg(0) == 0x3e8 and arg(0) == 0o1750 and arg(0) == 0b1111101000", 1000, 0, True),
        ("arg(0) == 1e3", 1000, 0, True),
        ("1 < arg(0) < 3 <= arg(1)", 2, 3, True),
        ("1 < arg(0) < 3 < arg(1)", 2, 3, False),
        ("arg(0) & 4", 5, 0, True),
        ("not arg(0) & 2", 5, 0, True),
        ("True and not False", 0, 0, True),
        ("arg(0) not in (1, 2)", 3, 0, True),
    ],
)
def test_whole_numbers_at_their_edges(text: str, left: int, right: int, expected: bool) -> None:
    assert says(text, Call(integers=[left, right, 0, 0, 0, 0])) == expected
    # The same with the numbers that only the exit has.
    later = text.replace("arg(0)", "result").replace("arg(1)", "result_high")
    assert says(later, Call(result=left, result_high=right)) == expected


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("farg(0) == 0", -0.0, True),
        ("farg(0) < 0", -0.0, False),
        ("farg(0) < 0", -5e-324, True),
        ("-farg(0) > 0", -5e-324, True),
        ("farg(0) < inf", 1.7976931348623157e308, True),
        ("farg(0) == inf", float("inf"), True),
        ("farg(0) == -inf", float("-inf"), True),
        ("farg(0) == farg(0)", float("nan"), False),
        ("farg(0) != farg(0)", float("nan"), True),
        ("farg(0) < 1 or farg(0) >= 1", float("nan"), False),
        ("not farg(0) < 1 and not farg(0) >= 1", float("nan"), True),
        ("isnan(farg(0))", float("nan"), True),
        ("isnan(farg(0))", float("inf"), False),
        ("0.5 <= farg(0) <= 1.5", 1.5, True),
        ("farg(0) == 2 * 1.5", 3.0, True),
        ("farg(0)", 0.0, False),
        ("farg(0)", float("nan"), True),
    ],
)
def test_doubles_at_their_edges(text: str, value: float, expected: bool) -> None:
    assert says(text, Call(floats=[bits(value)] * 8)) == expected
    assert says(text.replace("farg(0)", "fresult"), Call(fresult=bits(value))) == expected


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_every_float_is_compared_as_the_double_that_it_is(low: int, high: int) -> None:
    value = struct.unpack("<f", struct.pack("<I", low))[0]
    call = Call(floats=[high << 32 | low, bits(value)] + [0] * 6)
    assert says("f32(farg(0)) == farg(1)", call) == (value == value)  # noqa: PLR0124
    assert says("isnan(f32(farg(0)))", call) == (value != value)  # noqa: PLR0124


# --- time ---


@pytest.mark.parametrize(
    ("literal", "nanoseconds"),
    [
        ("7", 7),
        ("7ns", 7),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("1.5ms", 1_500_000),
        ("2s", 2 * 10**9),
        (".5s", 5 * 10**8),
        ("1_000us", 10**6),
        ("1e3ms", 10**9),
    ],
)
def test_times_are_nanoseconds(literal: str, nanoseconds: int) -> None:
    for ticks in (nanoseconds - 1, nanoseconds, nanoseconds + 1):
        assert says(f"duration == {literal}", Call(ticks=ticks)) == (ticks == nanoseconds)
        assert says(f"duration > {literal}", Call(ticks=ticks)) == (ticks > nanoseconds)
        assert says(f"{literal} >= duration", Call(ticks=ticks)) == (ticks <= nanoseconds)


@given(st.floats(1e6, 1e10) | st.sampled_from([1e9, 2.4e9, 3e9, 2_399_999_123]), st.integers(0, 2**45))
def test_durations_are_the_whole_nanoseconds_of_their_ticks(rate: float, ticks: int) -> None:
    exact = Fraction(ticks * 10**9) / Fraction(rate)
    nanoseconds = int(exact)
    call = Call(ticks=ticks)
    # Within 2^64 ticks the rounding of the factor is worth one tick at the most; close below a nanosecond it may show.
    if exact - nanoseconds > 1 - Fraction(1, 1 << 10):
        nanoseconds += says(f"duration == {nanoseconds + 1}", call, rate)
    # Both ways of comparing, by ticks and by nanoseconds, say the same.
    for form in ("duration", "duration + 0"):
        assert says(f"{form} == {nanoseconds}", call, rate)
        assert says(f"{form} >= {nanoseconds}", call, rate)
        assert not says(f"{form} > {nanoseconds}", call, rate)
        assert says(f"{nanoseconds - 1} < {form} < {nanoseconds + 1}", call, rate)


def test_a_duration_is_compared_with_what_no_clock_reaches() -> None:
    assert says("duration > -1 and duration < 9223372036854775807 and duration < 9223372036s", Call(ticks=1 << 50))
    assert not says("duration < 0 or duration > 0x7fffffffffffffff", Call(ticks=1 << 50))


# --- memory ---


def test_bad_addresses_make_a_predicate_false_and_nothing_else() -> None:
    memory = Memory()
    outside = [0, 1, 4095, memory.base - 1, memory.base + memory.size - 3, memory.behind - 1, -1, -8, 1 << 63, 1 << 47,
               0xFFFFFFFFFF600000]  # fmt: skip
    for address in outside:
        call = Call(integers=[address] + [0] * 5)
        for text in (
            "mem32(arg(0)) == 0",
            "not mem32(arg(0)) == 0",
            "mem32(arg(0)) != 1 or 1",
            "after(mem32(arg(0))) >= 0",
        ):
            assert not says(text, call), hex(address)
            assert says(f"u64(arg(0)) == {address % 2**64} or {text}", call), "what is not looked at is not read"


def test_arguments_on_the_stack_are_read_as_far_as_there_is_a_stack() -> None:
    memory = Memory()
    end = memory.base + memory.size
    memory.write(end - 16, struct.pack("<QQ", 11, 12))
    for first, text, expected in (
        (end - 16, "arg(6) == 11 and arg(7) == 12", True),
        (end - 16, "arg(8) == 0 or 1", False),
        (end, "arg(6) == 0 or 1", False),
        (memory.base + PAGE, "arg(6) == 0", True),
        (0, "arg(6) == 0 or 1", False),
    ):
        assert says(text, Call(stack_at=first)) == expected
    assert says("result == 1 or arg(6) == 0 or 1", Call(stack_at=end, result=1))
    assert not says("result == 1 or arg(6) == 0 or 1", Call(stack_at=end, result=2))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_memory_is_read_across_pages_and_to_the_last_byte(size: int) -> None:
    memory = Memory()
    memory.write(memory.base, bytes(range(1, 255)) * (memory.size // 254))
    for address in range(memory.base + PAGE - 8, memory.base + PAGE + 1):
        (wanted,) = struct.unpack("<Q", bytes_at(memory, address, size).ljust(8, b"\0"))
        wanted -= (wanted >> 63) << 64
        assert says(f"mem{size * 8}(arg(0)) == {wanted}", Call(integers=[address] + [0] * 5))
    last = memory.base + memory.size - size
    assert says(f"mem{size * 8}(arg(0)) == mem{size * 8}(arg(0))", Call(integers=[last] + [0] * 5))
    assert not says(f"mem{size * 8}(arg(0)) == mem{size * 8}(arg(0))", Call(integers=[last + 1] + [0] * 5))


def bytes_at(memory: Memory, address: int, size: int) -> bytes:
    assert memory.holds(address) and memory.holds(address + size - 1)
    return ctypes.string_at(address, size)


def test_a_string_is_read_as_far_as_it_is_needed() -> None:
    memory = Memory()
    end = memory.base + memory.size
    memory.write(end - 3, b"abc")
    call = Call(integers=[end - 3] + [0] * 5)
    assert says('startswith(str(arg(0)), "abc")', call)
    assert says('str(arg(0)) != "abd"', call)
    assert not says('str(arg(0)) != "abc"', call), "whether it goes on cannot be known"
    assert not says('not endswith(str(arg(0)), "abc")', call)
    memory.write(end - 3, b"ab\0")
    assert says('str(arg(0)) == "ab" and endswith(str(arg(0)), "ab") and endswith(str(arg(0)), "")', call)
    assert says('not endswith(str(arg(0)), "zab") and not startswith(str(arg(0)), "abc")', call)


def test_a_string_whose_end_does_not_come_ends_with_nothing() -> None:
    memory = Memory()
    limit = layout.PREDICATE_TEXT_LIMIT
    memory.write(memory.base, b"a" * limit + b"\0")
    assert says('not endswith(str(arg(0)), "a")', Call(integers=[memory.base] + [0] * 5))
    assert says('endswith(str(arg(0)), "a")', Call(integers=[memory.base + 1] + [0] * 5))


def test_texts_are_utf_8() -> None:
    memory = Memory()
    memory.write(memory.base, "größe\n\0".encode())
    assert says(
        'str(arg(0)) == "größe\\n" and endswith(str(arg(0)), "\\xc3\\x9fe\\n")', Call(integers=[memory.base] * 6)
    )


# --- programs that no compiler made ---

RANDOM = """
import ctypes, sys
from tests.support.predicates import Memory
library = ctypes.CDLL(sys.argv[1])
library.harness_random.restype = ctypes.c_long
memory = Memory()
memory.write(memory.base, b"abc\\0" * (memory.size // 4))
held = library.harness_random(ctypes.c_uint64(int(sys.argv[2])), ctypes.c_uint64(200_000),
                              ctypes.c_void_p(memory.base), ctypes.c_uint64(memory.size))
print(held)
"""


def run_random(library: Path, seed: int) -> int:
    """How many of the random programs held. In a process of its own: the test is that it lives."""
    command = [sys.executable, "-c", RANDOM, str(library), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_programs_end_and_touch_nothing_of_others(seed: int) -> None:
    held = run_random(build_harness(), seed)
    assert 0 < held < 200_000


def test_random_programs_do_nothing_that_c_leaves_undefined() -> None:
    checked = build_harness("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    assert 0 < run_random(checked, 4) < 200_000


def test_a_program_that_goes_back_or_does_what_there_is_not_says_no() -> None:
    def program(*steps: int) -> bytes:
        return struct.pack(f"<II{len(steps)}Q", len(steps), len(steps), *steps).ljust(layout.PREDICATE_SIZE, b"\0")

    predicate = compile_predicate("1", 1e9)
    object.__setattr__(predicate, "entry_code", program(layout.PREDICATE_SMALL, layout.PREDICATE_JUMP | 0 << 8))
    assert not decide(predicate, Call())
    object.__setattr__(predicate, "entry_code", program(layout.PREDICATE_SMALL, 255))
    assert not decide(predicate, Call())
    object.__setattr__(predicate, "entry_code", program(layout.PREDICATE_JUMP | 9 << 8))
    assert decide(predicate, Call()), "over the end is the end"
